#!/bin/sh
# One pod of a store on three nodes, as its containers and probes call it:
#   store.sh node|sentinel   start the program
#   store.sh ready           whether the node is a primary, or a replica in step
#   store.sh handover        before the pod stops: let another node become the primary, for at most STORE_HANDOVER_SECONDS
#   store.sh failover        the same without a limit
# Each pod has a Service of its own, whose address stays when the pod moves. Nodes and sentinels know each other by these addresses:
# a name that DNS forgets with its pod would stop a failover.
set -eu

name=${STORE_NAME:-sluice-valkey} ordinal=${POD_NAME##*-} data=${STORE_DATA:-/data} etc=${STORE_ETC:-/etc/valkey}
here=${STORE_LOCAL:-127.0.0.1} port=${STORE_PORT:-6379} sentinel_port=${STORE_SENTINEL_PORT:-26379}
handover_seconds=${STORE_HANDOVER_SECONDS:-45}
admin=$(sed -n 's/^requirepass //p' "$etc/auth/auth.conf")
export VALKEYCLI_AUTH="$admin" REDISCLI_AUTH="$admin"
umask 077

# The address of a pod's Service, as soon as DNS has it. Without the namespace, a pod's own name is that of its host (/etc/hosts).
address() {
  until getent hosts "$name-$1.$POD_NAMESPACE.svc" | { read -r found _ && echo "$found"; }; do sleep 1; done
}

# Asks this pod's node.
ask() {
  timeout 2 valkey-cli -h "$here" -p "$port" --raw "$@" 2>/dev/null || true
}

# Asks every sentinel, and prints each answer on a line.
ask_sentinels() {
  for number in 0 1 2; do
    timeout 2 valkey-cli -h "$(address $number)" -p "$sentinel_port" --user store --raw "$@" 2>/dev/null | tr '\n' ' ' || true
    echo
  done
}

# The address that two or all of the sentinels name as the primary, in answers to SENTINEL MASTER. None if an answer differs:
# one sentinel is the first to know that another node has taken over.
named() {
  echo "$1" | sed -n 's/^name [^ ]* ip \([0-9a-f.:]*\) .*/\1/p' | sort | uniq -c | {
    read -r count found && ! read -r _ && [ "$count" -ge 2 ] && echo "$found"
  }
}

# Whether, by the same answers, another node is about to take over, or must: a primary that lost its volume would empty its replicas.
replaced() {
  case "$1" in
    *failover_in_progress*) return 0 ;;
  esac
  [ ! -d "$data/appendonlydir" ] && echo "$1" | grep -q 'num-slaves [1-9]'
}

node() {
  me=$(address "$ordinal")
  while :; do
    told=$(ask_sentinels SENTINEL MASTER "$name")
    if ! primary=$(named "$told"); then
      echo "waiting: no two sentinels name a primary, or they name several"
    elif [ "$primary" = "$me" ] && replaced "$told"; then
      echo "waiting: another node takes over"
    else
      break
    fi
    sleep 1
  done
  {
    echo "include $etc/conf/valkey.conf"
    echo "port $port"
    echo "replica-announce-ip $me"
    echo "replica-announce-port $port"
    echo "masterauth $admin"
    # A replica that was away for less than this catches up without a copy of everything.
    echo "repl-backlog-size 256mb"
    [ "$primary" = "$me" ] || echo "replicaof $primary $port"
  } >"$data/node.conf"
  exec valkey-server "$data/node.conf"
}

sentinel() {
  me=$(address "$ordinal") conf=$data/sentinel.conf
  if [ ! -s "$conf" ]; then
    primary=$(named "$(ask_sentinels SENTINEL MASTER "$name")") || primary=$(address 0)
    {
      echo "sentinel monitor $name $primary $port 2"
      echo "sentinel down-after-milliseconds $name 5000"
      echo "sentinel failover-timeout $name 30000"
      echo "sentinel parallel-syncs $name 1"
    } >"$conf"
  fi
  # Sentinel has written down what it learnt. Settings of this pod and passwords are those of now.
  sed -i -E '/^(user|port|bind|dir|protected-mode|sentinel (auth-pass|sentinel-user|sentinel-pass|announce-ip|announce-port)) /d' "$conf"
  {
    echo "port $sentinel_port"
    [ -z "${STORE_LOCAL:-}" ] || echo "bind $here"
    echo "dir $data"
    echo "protected-mode no"
    # Anybody may ask where the primary is; NetworkPolicies say who gets here. Sentinels and this script are `store`.
    echo "user default on nopass resetkeys resetchannels -@all +ping +hello +client|id +client|setname" \
      "+sentinel|get-master-addr-by-name +sentinel|replicas +sentinel|sentinels +sentinel|master"
    echo "user store on >$admin allkeys allchannels +@all"
    echo "sentinel auth-pass $name $admin"
    echo "sentinel sentinel-user store"
    echo "sentinel sentinel-pass $admin"
    echo "sentinel announce-ip $me"
    echo "sentinel announce-port $sentinel_port"
  } >>"$conf"
  exec valkey-server "$conf" --sentinel
}

ready() {
  ask INFO replication | tr -d '\r' | grep -qxE 'role:master|master_link_status:up'
}

# The rest of the pod's grace period is for the end of the server. `timeout` also ends a try that waits for DNS or for a sentinel.
handover() {
  exec timeout "$handover_seconds" sh "$0" failover
}

failover() {
  while ask INFO replication | grep -q '^role:master'; do
    # COORDINATED: the replica has everything before it takes over. Sentinels that are asked meanwhile say that one is under way.
    ask_sentinels SENTINEL FAILOVER "$name" COORDINATED
    sleep 1
  done
}

"$1"
