"""From kube-apiserver to the pods: namespace, Service, EndpointSlices, DNS, the route, and a request that takes it."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from apiserver.doctor.findings import Answers, Check, found, good
from apiserver.doctor.installation import CONNECT_SECONDS, Installation, Object


async def namespace(installation: Installation) -> Answers:
    name = installation.names.namespace
    have = await installation.get(f"/api/v1/namespaces/{name}")
    if have is None:
        text = f"there is no namespace {name} (another one: --namespace)"
        yield found("namespace-missing", text, "kubectl apply -f manifests/base/namespace.yaml")
    elif have["metadata"].get("deletionTimestamp"):
        conditions = have.get("status", {}).get("conditions") or []
        why = "; ".join(each.get("message", "") for each in conditions if each.get("status") == "True")
        text = f"the namespace {name} is being deleted{': ' * bool(why)}{why}"
        yield found("namespace-missing", text, f"kubectl get namespace {name} -o yaml")


async def service(installation: Installation) -> Answers:
    names = installation.names
    have = await installation.service()
    if have is None:
        text = f"there is no Service {names.namespace}/{names.service}"
        yield found("service-missing", text, "kubectl apply -f manifests/base/service.yaml")
        return
    spec = have.get("spec", {})
    if spec.get("type") == "ExternalName":
        yield good(f"Service {names.service} leads to {spec.get('externalName')}, outside of the cluster")
        return
    wrong = False
    ports = spec.get("ports") or []
    for port in sorted({await installation.port(wanted) for wanted in installation.registered}):
        if not any(each.get("port") == port for each in ports):
            have_ports = ", ".join(str(each.get("port")) for each in ports) or "none"
            text = f"Service {names.service} has the ports {have_ports}, and the APIService names {port}"
            yield found("service-port", text, "kubectl apply -f manifests/base/service.yaml")
            wrong = True
    template = ((await installation.deployment()) or {}).get("spec", {}).get("template", {})
    selector = spec.get("selector") or {}
    labels = template.get("metadata", {}).get("labels") or {}
    if template and selector and not selector.items() <= labels.items():
        missing = ", ".join(f"{key}={value}" for key, value in selector.items() if labels.get(key) != value)
        text = f"Service {names.service} selects {missing}, which the pods of Deployment {names.service} do not have"
        yield found("service-selector", text, "kubectl apply -f manifests/base/service.yaml")
        wrong = True
    for port in ports if template and selector else ():
        if not _has_port(template, port.get("targetPort", port.get("port"))):
            text = f"Service {names.service} leads to the port {port.get('targetPort')}, which no container has"
            yield found("service-target-port", text, "kubectl apply -f manifests/base/service.yaml")
            wrong = True
    if not wrong:
        yield good(f"Service {names.service} leads to the pods")


def _has_port(template: Object, target: object) -> bool:
    """Return whether a container names the port. Ports by number need not be declared."""
    if isinstance(target, int):
        return True
    containers = template.get("spec", {}).get("containers") or []
    return any(port.get("name") == target for each in containers for port in each.get("ports") or [])


async def endpoints(installation: Installation) -> Answers:
    names = installation.names
    have = await installation.service()
    if have is None or have.get("spec", {}).get("type") == "ExternalName":
        return
    found_ = [endpoint for each in await installation.slices() for endpoint in each.get("endpoints") or []]
    ready = [each for each in found_ if (each.get("conditions") or {}).get("ready", True)]
    look = f"kubectl -n {names.namespace} get pods,endpointslices"
    if not found_:
        yield found("endpoints-missing", f"Service {names.service} has no endpoints: it selects no pods", look)
    elif not ready:
        text = f"none of the {len(found_)} endpoints of Service {names.service} is ready"
        yield found("endpoints-not-ready", text, f"kubectl -n {names.namespace} describe pods")
    else:
        yield good(f"{len(ready)} of {len(found_)} endpoints are ready")


async def dns(installation: Installation) -> Answers:
    if not installation.pod:
        return
    host = installation.names.host
    loop = asyncio.get_running_loop()
    port = await installation.port(installation.registered[0]) if installation.registered else 443
    try:
        await loop.getaddrinfo(host, port)
    except socket.gaierror as error:
        text = f"DNS does not resolve {host}: {error.strerror}"
        yield found("dns", text, "kubectl -n kube-system get pods -l k8s-app=kube-dns")
        return
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        text = f"no connection from this pod to {host}:{port}: {str(error) or 'timed out'}"
        yield found(
            "route-blocked", text, f"kubectl -n {installation.names.namespace} get networkpolicies,endpointslices"
        )
        return
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    yield good(f"{host} resolves and accepts connections")


async def aggregation(installation: Installation) -> Answers:
    names = installation.names
    for wanted in installation.registered[:1]:
        spec = wanted["spec"]
        path = f"/apis/{spec['group']}/{spec['version']}"
        answer = await installation.cluster.probe(path)
        said = answer.body[:300].decode("utf-8", "replace").strip()
        if answer.status == 200:
            yield good(f"requests through kube-apiserver reach Sluice ({path})")
        elif answer.status in (401, 403):
            text = f"GET {path} through kube-apiserver gets {answer.status}: {said}"
            remedy = "kubectl -n kube-system get configmap extension-apiserver-authentication -o yaml"
            yield found("front-proxy-refused", text, remedy)
        else:
            text = f"GET {path} through kube-apiserver gets {answer.status}: {said}"
            yield found("aggregation", text, f"kubectl -n {names.namespace} logs deployment/{names.service}")


CHECKS = (
    Check("namespace", "whether the namespace exists", namespace),
    Check("service", "whether the Service has the right ports and selects the pods", service),
    Check("endpoints", "whether the Service has ready endpoints", endpoints),
    Check("dns", "in a pod: whether the Service's name resolves and accepts connections", dns),
    Check("aggregation", "whether a request through kube-apiserver reaches Sluice", aggregation),
)
