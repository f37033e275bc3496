"""Where a Service is, when DNS does not know the cluster."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from apiserver.admission.webhooks.calls import Caller, CallFailed, Target
from apiserver.cluster.errors import ClusterError, Refused
from tests.unit.admission.webhooks import hook as plays
from tests.unit.admission.webhooks.hook import Hook

SERVICE = "/api/v1/namespaces/space/services/hook"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/space/endpointslices"


class Cluster:
    """Answers of kube-apiserver, and the questions that it received."""

    def __init__(self, service: Any, slices: Any = ()) -> None:
        self.says = {SERVICE: service, SLICES: {"items": list(slices)}}
        self.asked: list[str] = []

    async def ask(self, method: str, path: str, *, query: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        assert query in (None, {"labelSelector": "kubernetes.io/service-name=hook"})
        self.asked.append(path)
        if isinstance(self.says[path], Exception):
            raise self.says[path]
        found: Mapping[str, Any] = self.says[path]
        return found


def service(**spec: Any) -> dict[str, Any]:
    return {"spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": 443, "targetPort": "web"}], **spec}}


def slice_of(port: int, *addresses: str, ready: bool | None = True, kind: str = "IPv4", name: str = "https") -> Any:
    endpoints = [{"addresses": [address], "conditions": {"ready": ready}} for address in addresses]
    return {"addressType": kind, "ports": [{"name": name, "port": port}], "endpoints": endpoints}


async def call(hook: Hook, cluster: Cluster, *, times: int = 1, port: int | None = None) -> bytes:
    caller = Caller(cluster=cluster)
    bundle = base64.b64encode(hook.ca.cert_pem).decode()
    where = {"namespace": "space", "name": "hook", "path": "/judge", "port": port}
    try:
        for _ in range(times):
            found = await caller.call(Target.of({"service": where, "caBundle": bundle}), b"{}", seconds=10)
    finally:
        await caller.close()
    return found


async def test_a_ready_endpoint_is_called_by_the_services_name(hook: Hook) -> None:
    gone = slice_of(1, "127.0.0.9", ready=False)
    other = slice_of(1, "127.0.0.9", name="metrics")
    cluster = Cluster(service(), [gone, other, slice_of(hook.port, "127.0.0.1", ready=None)])
    hook.plays = [plays.answer("{}", Connection="close")]
    assert await call(hook, cluster, times=3) == b"{}"
    assert cluster.asked == [SERVICE, SLICES]
    assert hook.seen[0].headers["Host"] == "hook.space.svc:443"
    assert hook.seen[0].line == "POST /judge?timeout=10s HTTP/1.1"


async def test_endpoints_of_the_services_first_family_are_preferred(hook: Hook) -> None:
    slices = [slice_of(1, "::1", kind="IPv6"), slice_of(hook.port, "127.0.0.1")]
    hook.plays = [plays.answer("{}")]
    assert await call(hook, Cluster(service(ipFamilies=["IPv4", "IPv6"]), slices)) == b"{}"


async def test_an_external_name_is_called_where_it_points(hook: Hook) -> None:
    hook.plays = [plays.answer("{}")]
    cluster = Cluster({"spec": {"type": "ExternalName", "externalName": "localhost"}})
    assert await call(hook, cluster, port=hook.port) == b"{}"
    assert hook.seen[0].headers["Host"] == f"hook.space.svc:{hook.port}"


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (Cluster(Refused("gone", code=404)), 'service "hook" not found'),
        (Cluster(ClusterError("it is away")), "it is away"),
        (Cluster(service(type="Weird")), 'unsupported service type "Weird"'),
        (Cluster(service(ports=[{"port": 80}])), 'no service port 443 found for service "hook"'),
        (Cluster(service()), 'no endpoints available for service "hook"'),
        (Cluster(service(), [slice_of(1, "10.0.0.1", ready=False)]), 'no endpoints available for service "hook"'),
    ],
)
async def test_service_without_endpoints_gets_upstreams_message(cluster: Cluster, words: str, hook: Hook) -> None:
    with pytest.raises(CallFailed) as failed:
        await call(hook, cluster)
    assert str(failed.value) == f'Post "https://hook.space.svc:443/judge?timeout=10s": {words}'
