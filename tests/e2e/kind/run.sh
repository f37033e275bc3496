#!/usr/bin/env bash
# The end-to-end suite against Sluice in a kind cluster of its own: tests/e2e/kind/run.sh [PYTEST ARGUMENT]...      (see README.md)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../../.." && pwd)
engine=${KIND_EXPERIMENTAL_PROVIDER:-docker}
# In full: nodes look for the manifests' `sluice` under this name, whichever engine built it.
image=docker.io/library/sluice:latest

say() { printf 'e2e-kind: %s\n' "$*" >&2; }

for tool in kind "$engine" openssl python; do
  if ! command -v "$tool" >/dev/null; then
    say "$tool is not on PATH (tests/e2e/kind/README.md)"
    exit 2
  fi
done
cd "$project"
# The release of the nodes (cluster.yaml): the tests take kubectl and the expected answers from it.
export KUBERNETES=${KUBERNETES:-1.36.3}
kubectl=${KUBECTL:-$(python -c 'from tests.e2e.controlplane import binaries; print(binaries.kubectl())')}

work=$(mktemp -d)
cluster=sluice-e2e-$$
# Ours alone: nobody's current context is touched, and no test can reach another cluster by accident.
export KUBECONFIG=$work/kubeconfig
created=

finish() {
  local result=$?
  # A second Ctrl-C must not leave the cluster behind.
  trap '' INT TERM HUP
  trap - EXIT
  if [ -n "$created" ]; then
    if [ "$result" -ne 0 ]; then
      local logs
      logs=$(mktemp -d)
      "$kubectl" get apiservices,all --all-namespaces --output wide >"$logs/objects.txt" 2>&1 || true
      "$kubectl" describe apiservice v1.resource.sluice.dev >"$logs/apiservice.txt" 2>&1 || true
      kind export logs "$logs" --name "$cluster" >/dev/null 2>&1 || true
      say "failed; logs of the cluster: $logs"
    fi
    say "deleting the cluster $cluster"
    kind delete cluster --name "$cluster" || true
  fi
  rm -rf "$work"
  exit "$result"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

say "building the image"
"$engine" build --tag "$image" "$project"
"$engine" save --output "$work/image.tar" "$image"

say "creating the cluster $cluster"
# Before the call, which may be interrupted half-way.
created=yes
kind create cluster --name "$cluster" --config "$here/cluster.yaml" --wait 180s
kind load image-archive "$work/image.tar" --name "$cluster"

say "deploying"
# A copy, so that the secrets of this cluster do not replace those of another one in certs/out.
mkdir "$work/deploy" "$work/deploy/certs"
cp -R "$project/manifests" "$work/deploy/"
cp -R "$project/certs/make.sh" "$project/certs/kustomization.yaml" "$work/deploy/certs/"
"$work/deploy/certs/make.sh"
"$kubectl" apply --server-side --validate=strict --kustomize "$work/deploy/manifests/overlays/test"
"$kubectl" --namespace sluice-system rollout status statefulset/sluice-valkey --timeout=300s
"$kubectl" apply --server-side --validate=strict --kustomize "$work/deploy/manifests/store-init"
"$kubectl" --namespace sluice-system wait job/sluice-store-init --for=condition=Complete --timeout=300s
"$kubectl" --namespace sluice-system rollout status deployment/sluice --timeout=300s
"$kubectl" wait apiservice/v1.resource.sluice.dev --for=condition=Available --timeout=120s

say "testing"
SLUICE_E2E_KUBECONFIG=$KUBECONFIG python -m pytest "${@:-tests/e2e}"
