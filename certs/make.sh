#!/usr/bin/env bash
# Throw-away secrets for a development cluster: certs/make.sh [OUT] [SERVICE] [NAMESPACE]      (see README.md)
set -euo pipefail
umask 077
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/out} service=${2:-sluice} namespace=${3:-sluice-system}
mkdir -p "$out"
cd "$out"

key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

# The serving CA. Its certificate becomes the caBundle of the APIService.
key ca.key
openssl req -x509 -new -key ca.key -sha256 -days 365 -subj "/CN=$service-serving-ca" \
  -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign -out ca.crt

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

# The store's password, as Valkey and as Sluice read it.
password=$(openssl rand -hex 24)
echo "requirepass $password" >auth.conf
printf %s "$password" >password
printf %s "redis://:$password@$service-valkey.$namespace.svc:6379/0" >redis-url

# Whom the cluster's front proxy and its clients are signed by. These two are the cluster's, not ours.
for bundle in client-ca-file requestheader-client-ca-file; do
  if [ -n "${CLUSTER_TRUST:-}" ]; then
    cp "$CLUSTER_TRUST/$bundle" "$bundle"
  else
    "${KUBECTL:-kubectl}" --namespace kube-system get configmap extension-apiserver-authentication \
      --output "jsonpath={.data.$bundle}" >"$bundle"
  fi
done
