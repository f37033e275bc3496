"""The APIServices: does each group version have one, is its spec right, and does kube-apiserver find it available?"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Iterator

from cryptography import x509

from apiserver.doctor.findings import Answers, Check, Finding, found, good
from apiserver.doctor.installation import Installation, Object

AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
_REMEDIES = {
    "ServiceNotFound": "kubectl apply -f manifests/base/service.yaml",
    "ServicePortError": "kubectl apply -f manifests/base/service.yaml -f manifests/base/apiservice.yaml",
    "ServiceAccessError": "kubectl -n {ns} get service {svc}",
    "EndpointsNotFound": "kubectl -n {ns} get endpointslices,pods",
    "MissingEndpoints": "kubectl -n {ns} get endpointslices,pods",
    "EndpointsAccessError": "kubectl -n {ns} get endpointslices",
}
"""By the reason of the condition. Upstream: kubernetes/kube-aggregator `pkg/controllers/status/remote/remote_available_controller.go`."""


async def apiservices(installation: Installation) -> Answers:
    for wanted in installation.registered:
        name = wanted["metadata"]["name"]
        have = await installation.apiservice(name)
        if have is None:
            text = f"no APIService {name}: kube-apiserver passes nothing of this group version on"
            yield found(
                "apiservice-missing", text, f"sluice manifests | kubectl apply --server-side -f -   # or {_FILE}"
            )
            continue
        wrong = [*spec_findings(installation, wanted, have), *condition_findings(installation, have)]
        for finding in wrong:
            yield finding
        if not wrong:
            yield good(f"APIService {name} is right and Available")


_FILE = "kubectl apply -f manifests/base/apiservice.yaml"


def spec_findings(installation: Installation, wanted: Object, have: Object) -> Iterator[Finding]:
    """Compare a spec with that of the manifests."""
    name, names, spec = wanted["metadata"]["name"], installation.names, have.get("spec", {})
    if AUTOMANAGED in (have["metadata"].get("labels") or {}):
        text = f"APIService {name} has the label {AUTOMANAGED}: kube-apiserver owns it"
        yield found("apiservice-automanaged", text, f"kubectl label apiservice {name} {AUTOMANAGED}-")
    if (spec.get("group"), spec.get("version")) != (wanted["spec"]["group"], wanted["spec"]["version"]):
        text = f"APIService {name} has the group {spec.get('group')} and the version {spec.get('version')}"
        yield found("apiservice-wrong-group", text, _FILE)
    service = spec.get("service")
    if service is None:
        text = f"APIService {name} names no Service: kube-apiserver serves the group itself"
        yield found("apiservice-local", text, f"{_FILE}   # for resource.k8s.io see docs/take-over.md")
        return
    if (service.get("namespace"), service.get("name")) != (names.namespace, names.service):
        text = f"APIService {name} leads to {service.get('namespace')}/{service.get('name')}, not {names.namespace}/{names.service}"
        yield found("apiservice-wrong-service", text, _FILE)
    priorities = [
        f"{member} is {spec.get(member)}, not {wanted['spec'][member]}"
        for member in ("groupPriorityMinimum", "versionPriority")
        if spec.get(member) != wanted["spec"][member]
    ]
    if priorities:
        yield found("apiservice-priority", f"APIService {name}: {'; '.join(priorities)}", _FILE)
    yield from _bundle_findings(name, spec, installation.wall())


def _bundle_findings(name: str, spec: Object, now: float) -> Iterator[Finding]:
    patch = f"kubectl patch apiservice {name} --type=merge -p "
    if spec.get("insecureSkipTLSVerify"):
        text = f"APIService {name} has insecureSkipTLSVerify: kube-apiserver sends users' names to any server at this address"
        remedy = '\'{"spec":{"insecureSkipTLSVerify":null,"caBundle":"\'$(base64 -w0 certs/out/ca.crt)\'"}}\''
        yield found("apiservice-insecure", text, patch + remedy)
        return
    remedy = patch + '\'{"spec":{"caBundle":"\'$(base64 -w0 certs/out/ca.crt)\'"}}\''
    if not spec.get("caBundle"):
        text = f"APIService {name} has no caBundle: kube-apiserver accepts certificates of public authorities only"
        yield found("ca-bundle-missing", text, f"{remedy}   # cert-manager: annotation cert-manager.io/inject-ca-from")
        return
    try:
        authorities = x509.load_pem_x509_certificates(base64.b64decode(spec["caBundle"], validate=True))
    except (ValueError, binascii.Error):
        yield found("ca-bundle-unreadable", f"the caBundle of APIService {name} holds no certificates", remedy)
        return
    at = dt.datetime.fromtimestamp(now, dt.UTC)
    if all(each.not_valid_after_utc < at for each in authorities):
        ended = max(each.not_valid_after_utc for each in authorities)
        yield found("ca-bundle-expired", f"the caBundle of APIService {name} expired on {ended:%Y-%m-%d}", remedy)


def condition_findings(installation: Installation, have: Object) -> Iterator[Finding]:
    """Read the condition Available."""
    name, names = have["metadata"]["name"], installation.names
    conditions = have.get("status", {}).get("conditions") or []
    available = next((each for each in conditions if each.get("type") == "Available"), None)
    if available is None:
        text = f"APIService {name} has no condition Available: kube-apiserver has not looked at it yet"
        yield found("apiservice-unavailable", text, f"kubectl get apiservice {name} -o yaml")
    elif available.get("status") != "True":
        reason = available.get("reason", "")
        text = f"APIService {name} is not Available: {reason}: {available.get('message', '')}"
        usual = "kubectl -n {ns} logs deployment/{svc}"
        remedy = _REMEDIES.get(reason, usual).format(ns=names.namespace, svc=names.service)
        yield found("apiservice-unavailable", text, remedy)


CHECKS = (Check("apiservice", "whether each group version has a right and available APIService", apiservices),)
