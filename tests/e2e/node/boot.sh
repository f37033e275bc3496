#!/bin/sh
# The first process of a node's namespaces (isolation.py starts it): boot.sh STATE SETTINGS PAUSE [SYSCTL]...
# Makes everything of the machine read-only but STATE, then holds the namespaces until it is killed. SETTINGS stays readable, wherever it is.
set -eu
state=$1 settings=$2 pause=$3
shift 3

mount --bind "$state" "$state"
mount -o remount,bind,ro /

# The kernel keeps some settings for each network namespace: those are ours. All others are the machine's.
mount -t tmpfs -o mode=755 node /run
mkdir /run/sysctl /run/sysctl/net
mount --bind /proc/sys/net /run/sysctl/net
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount --bind /run/sysctl/net /proc/sys/net
umount /run/sysctl/net
# The kubelet insists on setting these. It gets files that look the same.
for name; do
  file=/run/sysctl/$(echo "$name" | tr / -)
  cat "/proc/sys/$name" >"$file"
  mount --bind "$file" "/proc/sys/$name"
done

mkdir /run/lock /run/settings
mount --bind "$settings" /run/settings
for folder in /tmp /var/lib /var/log; do
  mount -t tmpfs -o mode=755 node "$folder"
done
chmod 1777 /tmp
# The kubelet's folder has its usual path: those of the sockets in it may have 107 characters, and drivers have long names.
mkdir /var/lib/kubelet "$state/kubelet"
mount --bind "$state/kubelet" /var/lib/kubelet
mkdir -p "$settings"
mount --move /run/settings "$settings"
# Volumes that the kubelet mounts must show in containers. Only now: what is shared already would be mounted twice. Nothing shows outside.
mount --make-rshared /
hostname "${state##*/}"
: >"$state/booted"
exec "$pause"
