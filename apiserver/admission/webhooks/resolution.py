"""Find the addresses of a host: by DNS, or for a Service that DNS does not know, by its endpoints at kube-apiserver.

The second needs the rights to `get` `services` and `list` `endpointslices.discovery.k8s.io` in the namespaces of webhooks.
Upstream: kubernetes/apiserver `pkg/util/webhook/serviceresolver.go`, `pkg/util/proxy/proxy.go` (ResolveEndpoint), golang/go
`src/net/dnsclient.go`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from apiserver.admission.webhooks.causes import Broken
from apiserver.cluster.errors import ClusterError, Refused
from apiserver.runtime import workers
from kubetext import names
from kubetext.quoting import go_quote

REMEMBER_SECONDS = 5.0
"""How long what kube-apiserver said of a Service is believed, and how long DNS is not asked for one of which it knew nothing."""
MOST_SERVICES = 1000
_UNKNOWN = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
_RESOLVER = Path("/etc/resolv.conf")

Address = tuple[str, int]


class Cluster(Protocol):
    """A client of kube-apiserver (`cluster.client.Client`)."""

    async def ask(self, method: str, path: str, *, query: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """The decoded JSON of a 2xx. Raises ClusterError."""


class Unknown(Exception):
    """DNS has no such name."""


async def lookup(host: str, port: int) -> list[Address]:
    """The addresses of a host, which may be one itself. Raises Broken with Go's text, of it Unknown as its cause."""
    try:
        return [(str(ipaddress.ip_address(host)), port)]
    except ValueError:
        pass
    try:
        found = await workers.LOOKUPS.once(host, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except socket.gaierror as error:
        if error.errno in _UNKNOWN:
            raise Broken(f"dial tcp: lookup {host} on {_server()}: no such host") from Unknown()
        raise Broken(f"dial tcp: lookup {host} on {_server()}: server misbehaving") from None
    except (UnicodeError, OSError) as error:
        raise Broken(f"dial tcp: lookup {host}: no such host") from error
    return [(str(info[4][0]), port) for info in found]


def _server() -> str:
    """The first name server, as Go names it."""
    try:
        lines = _RESOLVER.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    servers = (line.split()[1] for line in lines if line.startswith("nameserver") and len(line.split()) > 1)
    first = next(servers, "127.0.0.1")
    return f"[{first}]:53" if ":" in first else f"{first}:53"


class Resolver:
    """Finds the Services of webhooks. Without a cluster to ask there is only DNS."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self._cluster = cluster
        self._known: dict[tuple[str, str, int], tuple[float, asyncio.Task[list[Address]]]] = {}
        self._silent: dict[str, float] = {}

    async def service(self, namespace: str, name: str, port: int) -> list[Address]:
        """The addresses of a port of a Service. Raises Broken."""
        host = f"{name}.{namespace}.svc"
        if self._cluster is None:
            return await lookup(host, port)
        if self._silent.get(host, 0.0) <= time.monotonic():
            try:
                return await lookup(host, port)
            except Broken as error:
                if not isinstance(error.__cause__, Unknown):
                    raise
                self._remember_silence(host)
        return await self._asked(self._cluster, namespace, name, port)

    def _remember_silence(self, host: str) -> None:
        if len(self._silent) >= MOST_SERVICES:
            self._silent.clear()
        self._silent[host] = time.monotonic() + REMEMBER_SECONDS

    async def _asked(self, cluster: Cluster, namespace: str, name: str, port: int) -> list[Address]:
        """All who ask at the same time share one question; errors are not remembered."""
        key = namespace, name, port
        until, task = self._known.get(key, (0.0, None))
        if task is None or until <= time.monotonic() or (task.done() and (task.cancelled() or task.exception())):
            if len(self._known) >= MOST_SERVICES:
                self._known.clear()
            task = asyncio.ensure_future(_endpoints(cluster, namespace, name, port))
            self._known[key] = time.monotonic() + REMEMBER_SECONDS, task
            task.add_done_callback(_seen)
        found = list(await asyncio.shield(task))
        random.shuffle(found)
        return found


def _seen(task: asyncio.Task[list[Address]]) -> None:
    if not task.cancelled():
        task.exception()  # a waiter that is left gets it


async def _endpoints(cluster: Cluster, namespace: str, name: str, port: int) -> list[Address]:
    if names.dns_label(namespace) or names.dns_label(name):
        raise Broken(f"service {go_quote(name)} not found")
    spec = (await service(cluster, namespace, name)).get("spec") or {}
    kind = spec.get("type") or "ClusterIP"
    if kind == "ExternalName":
        return await lookup(spec.get("externalName") or "", port)
    if kind not in ("ClusterIP", "NodePort", "LoadBalancer"):
        raise Broken(f"unsupported service type {go_quote(kind)}")
    wanted = next((each for each in spec.get("ports") or () if each.get("port") == port), None)
    if wanted is None:
        raise Broken(f"no service port {port} found for service {go_quote(name)}")
    found = _ready(
        await slices(cluster, namespace, name), wanted.get("name") or "", (spec.get("ipFamilies") or [""])[0]
    )
    if not found:
        raise Broken(f"no endpoints available for service {go_quote(name)}")
    return found


async def service(cluster: Cluster, namespace: str, name: str) -> Mapping[str, Any]:
    """Raises Broken."""
    return await _ask(cluster, name, f"/api/v1/namespaces/{namespace}/services/{name}")


async def slices(cluster: Cluster, namespace: str, name: str) -> Sequence[Mapping[str, Any]]:
    """Those of one Service. Raises Broken."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    found = await _ask(cluster, name, path, labelSelector=f"kubernetes.io/service-name={name}")
    return found.get("items") or ()


async def _ask(cluster: Cluster, name: str, path: str, **query: str) -> Mapping[str, Any]:
    try:
        return await cluster.ask("GET", path, query=query or None)
    except Refused as error:
        if error.code == 404:
            raise Broken(f"service {go_quote(name)} not found") from None
        raise Broken(str(error)) from None
    except ClusterError as error:
        raise Broken(str(error)) from None


def _ready(known: Sequence[Mapping[str, Any]], port_name: str, family: str) -> list[Address]:
    """The ready endpoints of a port. Slices of the Service's first family win, where they have any."""
    ranked = sorted(known, key=lambda each: each.get("addressType") != family)
    kind, found = None, list[Address]()
    for each in ranked:
        if found and each.get("addressType") != kind:
            break
        ports = [p["port"] for p in each.get("ports") or () if (p.get("name") or "") == port_name and p.get("port")]
        for endpoint in each.get("endpoints") or () if ports else ():
            if (endpoint.get("conditions") or {}).get("ready") is not False and endpoint.get("addresses"):
                found.append((endpoint["addresses"][0], ports[0]))
                kind = each.get("addressType")
    return found
