#!/usr/bin/env bash
# Throw-away secrets for a development cluster: certs/make.sh [OUT] [SERVICE] [NAMESPACE] [STORE_NODES]      (see README.md)
set -euo pipefail
umask 077
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/out} service=${2:-sluice} namespace=${3:-sluice-system} nodes=${4:-1}
mkdir -p "$out"
cd "$out"

key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

# The serving CA. Its certificate becomes the caBundle of the APIService, so it stays when the pair is renewed,
# unless it would end before the pair does.
if ! openssl x509 -in ca.crt -noout -checkend $((90 * 24 * 3600)) &>/dev/null; then
  key ca.key
  openssl req -x509 -new -key ca.key -sha256 -days 365 -subj "/CN=$service-serving-ca" \
    -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign -out ca.crt
fi

# The serving pair. kube-apiserver dials <service>.<namespace>.svc and looks at nothing but the SAN.
key tls.key
openssl req -new -key tls.key -subj "/CN=$service.$namespace.svc" -out tls.csr
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -sha256 -days 90 -out tls.crt -extfile <(
  echo "basicConstraints = critical, CA:FALSE"
  echo "keyUsage = critical, digitalSignature"
  echo "extendedKeyUsage = serverAuth"
  echo "subjectKeyIdentifier = hash"
  echo "authorityKeyIdentifier = keyid"
  echo "subjectAltName = DNS:$service.$namespace.svc, DNS:$service.$namespace, DNS:localhost"
) 2>/dev/null
rm -f tls.csr ca.srl

# The store's users, as Valkey and as their programs read them: `sluice` serves, `backup` reads, `default` administers. Passwords stay too: a running
# Valkey reads them only at its start.
for name in password backup-password admin-password; do
  if [ ! -e $name ]; then
    word=$(openssl rand -hex 24)
    printf %s "$word" >$name
  fi
done
password=$(cat password) backup=$(cat backup-password) admin=$(cat admin-password)
rights='resetkeys resetchannels -@all ~{sl:* +fcall +fcall_ro +xread +function|list +info +time +wait +ping +auth +hello +select +client|id +client|kill +client|setname +cluster|slots +cluster|shards +xadd +xrange +xtrim +hget +hmget +hset +hdel +hlen +hscan +exists'
reading='resetkeys resetchannels -@all %R~{sl:* +fcall_ro +info +time +ping +auth +hello +select +client|id +client|setname +xrange +hget +hmget +hlen +hscan +exists +scan'
printf '%s\n' "requirepass $admin" "user sluice on >$password $rights" "user backup on >$backup $reading" >auth.conf
# A store of three nodes (manifests/store-nodes) is found through its sentinels.
scheme=redis address="$service-valkey.$namespace.svc:6379/0"
if [ "$nodes" = 3 ]; then
  at="-valkey" to=".$namespace.svc:26379" scheme=redis+sentinel
  address="$service$at-0$to,$service$at-1$to,$service$at-2$to/$service$at"
fi
printf %s "$scheme://sluice:$password@$address" >redis-url
printf %s "$scheme://default:$admin@$address" >admin-redis-url
printf %s "$scheme://backup:$backup@$address" >backup-redis-url
