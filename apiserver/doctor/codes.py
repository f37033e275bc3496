"""The catalogue of findings: code, state and meaning of each. docs/doctor.md has the same table; a test compares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Code(NamedTuple):
    state: str
    meaning: str


OK, SKIP, WARN, FAIL = "ok", "skip", "warn", "fail"

CODES: Mapping[str, Code] = {
    # Everywhere
    "ok": Code(OK, "The check found nothing wrong."),
    "not-permitted": Code(SKIP, "The user who runs doctor may not read what the check needs."),
    "not-reachable": Code(SKIP, "The machine that runs doctor has no route to what the check asks."),
    "not-asked": Code(SKIP, "The check depends on another one that failed, or on a flag that is missing."),
    "no-answer": Code(WARN, "kube-apiserver gave no usable answer to a question of this check."),
    "timeout": Code(WARN, "The check did not end within `--timeout`."),
    # kube-apiserver
    "kube-apiserver-unreachable": Code(FAIL, "No connection to kube-apiserver, or its certificate is not accepted."),
    "kube-apiserver-unauthorized": Code(FAIL, "kube-apiserver does not accept the credentials of the kubeconfig."),
    "kube-apiserver-not-ready": Code(FAIL, "`/readyz` of kube-apiserver fails."),
    "version-unknown": Code(WARN, "This Sluice cannot be kube-apiserver's release; it serves the nearest."),
    "version-emulated": Code(WARN, "Sluice is fixed to another release than kube-apiserver (`--emulated-version`)."),
    "version-differs": Code(WARN, "The server's version differs from that of this doctor."),
    "clock-skew": Code(WARN, "Clocks differ by 5 s or more: tokens and certificates may be refused."),
    # APIService
    "apiservice-missing": Code(FAIL, "A group version that Sluice serves has no APIService."),
    "apiservice-local": Code(FAIL, "The APIService names no Service: kube-apiserver serves the group itself."),
    "apiservice-automanaged": Code(FAIL, "A label gives the APIService to kube-apiserver, which changes it back."),
    "apiservice-wrong-service": Code(FAIL, "The APIService names another Service than that of Sluice."),
    "apiservice-wrong-group": Code(FAIL, "The group or version in the spec differs from the name."),
    "apiservice-priority": Code(
        WARN, "The priorities differ from those of the manifests: clients may prefer another version."
    ),
    "apiservice-insecure": Code(WARN, "`insecureSkipTLSVerify`: anybody in the network can pose as Sluice."),
    "ca-bundle-missing": Code(FAIL, "The APIService has no `caBundle`, so kube-apiserver trusts public CAs only."),
    "ca-bundle-unreadable": Code(FAIL, "The `caBundle` holds no certificates."),
    "ca-bundle-expired": Code(FAIL, "All CAs of the `caBundle` have expired."),
    "apiservice-unavailable": Code(FAIL, "kube-apiserver does not find Sluice available; the text has its reason."),
    # Service and route
    "namespace-missing": Code(FAIL, "The namespace does not exist, or it is being deleted."),
    "service-missing": Code(FAIL, "The Service does not exist."),
    "service-port": Code(FAIL, "The Service has no such port as the APIService names."),
    "service-selector": Code(FAIL, "The selector of the Service does not match the pods of the Deployment."),
    "service-target-port": Code(FAIL, "No container of the Deployment has the port to which the Service leads."),
    "endpoints-missing": Code(FAIL, "The Service has no endpoints."),
    "endpoints-not-ready": Code(FAIL, "The Service has endpoints, and none is ready."),
    "dns": Code(FAIL, "DNS does not resolve the name of the Service."),
    "route-blocked": Code(FAIL, "No connection from this pod to the Service: a NetworkPolicy or kube-proxy."),
    "aggregation": Code(FAIL, "A request through kube-apiserver does not reach Sluice."),
    "front-proxy-refused": Code(FAIL, "Sluice does not accept kube-apiserver's front-proxy certificate."),
    # Workload
    "deployment-missing": Code(FAIL, "The Deployment does not exist."),
    "deployment-scaled-to-zero": Code(FAIL, "The Deployment has no replicas."),
    "pods-refused": Code(FAIL, "Pods cannot be created: quota, Pod Security or admission."),
    "pods-missing": Code(FAIL, "The Deployment has replicas, and no pod exists."),
    "pod-unschedulable": Code(FAIL, "No node takes the pod."),
    "pod-image": Code(FAIL, "The image cannot be pulled."),
    "pod-config": Code(FAIL, "The container cannot be created, usually for a missing Secret or key."),
    "pod-crash-loop": Code(FAIL, "The container ends again and again."),
    "pod-out-of-memory": Code(WARN, "The kernel killed the container for its memory limit."),
    "pod-not-ready": Code(FAIL, "The pod runs and is not ready."),
    "deployment-rollout": Code(WARN, "A rollout does not progress, or some replicas are missing."),
    "secret-missing": Code(FAIL, "A Secret that the pods use does not exist."),
    # Serving certificate
    "certificate-expired": Code(FAIL, "The serving certificate has expired."),
    "certificate-not-yet-valid": Code(FAIL, "The serving certificate is not valid yet."),
    "certificate-expires-soon": Code(WARN, "The serving certificate ends within 14 days."),
    "certificate-name": Code(FAIL, "The serving certificate does not carry `<service>.<namespace>.svc`."),
    "certificate-untrusted": Code(FAIL, "The `caBundle` does not vouch for the serving certificate."),
    "tls-refused": Code(FAIL, "The server at Sluice's address breaks off the TLS handshake."),
    # Trust
    "trust-missing": Code(FAIL, "The ConfigMap extension-apiserver-authentication does not exist."),
    "front-proxy-ca-missing": Code(
        FAIL, "kube-apiserver runs without a front proxy: no `requestheader-client-ca-file`."
    ),
    "trust-unreadable": Code(FAIL, "A value of that ConfigMap cannot be parsed."),
    "front-proxy-ca-expired": Code(FAIL, "The front proxy's CA has expired."),
    "client-ca-expired": Code(WARN, "The CA of client certificates has expired."),
    "front-proxy-any-client": Code(WARN, "Every client certificate of the cluster may pose as the front proxy."),
    # RBAC
    "rbac-missing": Code(FAIL, "Sluice's service account lacks a right that the manifests grant."),
    "rbac-optional": Code(WARN, "It lacks a right without which Sluice serves, but otherwise than the cluster asks."),
    "service-account-missing": Code(FAIL, "Sluice's service account does not exist."),
    # Server
    "server-not-ready": Code(FAIL, "`/readyz` of Sluice fails; the text names the checks."),
    "server-store": Code(FAIL, "Sluice runs, and its store accepts no writes."),
    "server-crds": Code(WARN, "A changed file of definitions is not served."),
    "slow": Code(WARN, "One hop takes a second or more."),
    # Store
    "store-unreachable": Code(FAIL, "No connection to the store."),
    "store-password": Code(FAIL, "The store refuses the user or the password."),
    "store-tls": Code(FAIL, "The TLS connection to the store fails."),
    "store-rights": Code(FAIL, "The store's user lacks commands or keys (ACL)."),
    "store-address": Code(FAIL, "The URL does not fit the store: a sentinel or a cluster's node."),
    "store-loading": Code(FAIL, "The store is loading its data."),
    "store-replica": Code(FAIL, "The store is a replica: it takes no writes."),
    "store-eviction": Code(FAIL, "`maxmemory-policy` lets the store drop objects."),
    "store-volatile": Code(FAIL, "The store has no append-only file."),
    "store-version": Code(FAIL, "The store is too old."),
    "store-library-missing": Code(FAIL, "The function library is not loaded."),
    "store-library-differs": Code(FAIL, "The function library is another version's."),
    "store-resource-missing": Code(FAIL, "The keys of a resource are missing."),
    "store-schema": Code(FAIL, "A resource has a schema that this version does not read."),
    "store-clock": Code(FAIL, "The store's clock is a second or more off."),
    "store-memory": Code(WARN, "Less than a tenth of `maxmemory` is free."),
    "store-fsync": Code(WARN, "`appendfsync` is not `always`, or is suspended during rewrites."),
    "store-replicas": Code(WARN, "Fewer replicas are in step than `--store-durability` needs."),
    "store-sentinels": Code(WARN, "Sentinels are missing or configured otherwise."),
    "store-log": Code(WARN, "Somebody else changed the log of a resource, or it cannot be read."),
    "store-coverage": Code(WARN, "The loss of one primary stops the whole cluster."),
    "store-unknown": Code(SKIP, "The store does not tell this user some settings."),
    "store-unfit": Code(FAIL, "Another reason not to serve from this store; the text has it."),
    "store-warning": Code(WARN, "Another warning about the store; the text has it."),
}
