"""Everything that checks ask: objects of the cluster, the server itself at its own address, the store.

Each answer is fetched once and shared.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from apiserver.cluster import kubeconfigs
from apiserver.cluster.client import Client, Probe
from apiserver.cluster.credentials import Elsewhere, Kubeconfig, ServiceAccount, Source, in_pod
from apiserver.cluster.errors import ClusterError, Refused
from apiserver.doctor import forwarding
from apiserver.storage.options import StoreOptions

Object = Mapping[str, Any]
_Value = TypeVar("_Value")

DELEGATED = "/apis/apiregistration.k8s.io/v1"
"""Served by each kube-apiserver with aggregation, and by no `sluice dev`."""
CONNECT_SECONDS = 2.0
MOST_ADDRESSES = 3
"""The most endpoints that are tried: they are alike, and each that is unreachable costs `CONNECT_SECONDS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Where the installation is: the names of the manifests, unless flags give others."""

    namespace: str = "sluice-system"
    service: str = "sluice"
    account: str = "sluice"

    @property
    def host(self) -> str:
        """The name that kube-apiserver expects in the serving certificate (kube-aggregator `pkg/apiserver/handler_proxy.go`)."""
        return f"{self.service}.{self.namespace}.svc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The user and the API server: a context of kubeconfig files or, without these, the service account of this pod."""

    kubeconfig: str
    context: str
    environ: Mapping[str, str]

    @classmethod
    def of(cls, kubeconfig: str, context: str, environ: Mapping[str, str]) -> Access:
        """Choose as kubectl does: the flag, KUBECONFIG, ~/.kube/config, the pod. Raises ClusterError without any."""
        path = kubeconfig or kubeconfigs.usual(environ)
        if not path and not in_pod(environ):
            raise ClusterError(
                "no kubeconfig: name one with --kubeconfig or KUBECONFIG (`sluice dev` prints that of its server)"
            )
        return cls(kubeconfig=path, context=context, environ=environ)

    def source(self, elsewhere: Elsewhere | None = None) -> Source:
        """Return the credentials, for the API server or for a server elsewhere."""
        if self.kubeconfig:
            return Kubeconfig(self.kubeconfig, self.environ, context=self.context, elsewhere=elsewhere)
        return ServiceAccount(self.environ, elsewhere=elsewhere)


@dataclass(frozen=True, slots=True)
class Address:
    """A place where the server listens. `why`: how it was found."""

    host: str
    port: int
    why: str

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Unreached(ClusterError):
    """There is no way to the server itself from here. The text says why."""


@dataclass(slots=True, kw_only=True)
class Installation:
    """One installation for one examination. Use it in `async with`.

    `registered` are the APIServices of the served kinds, as the manifests have them. `store` has no URL if no flag names the store.
    `emulated` is the release of `--emulated-version`, "" without. `wall` is this machine's clock.
    """

    access: Access
    names: Names
    registered: Sequence[Object]
    store: StoreOptions
    resources: Sequence[str]
    server: str = ""
    emulated: str = ""
    wall: Callable[[], float] = time.time
    client: Client | None = None
    problem: str = ""
    aggregated: bool = True
    _answers: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    _open: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def __aenter__(self) -> Installation:
        try:
            self.client = await Client.of(self.access.source(), throttled=False)
            self._open.push_async_callback(self.client.close)
        except ClusterError as error:
            self.problem = str(error)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._answers.values():
            task.cancel()
        await asyncio.gather(*self._answers.values(), return_exceptions=True)
        await self._open.aclose()

    @property
    def pod(self) -> bool:
        """Whether doctor itself runs in a pod of the cluster that it asks."""
        return not self.access.kubeconfig and in_pod(self.access.environ)

    def described(self) -> str:
        """Say who was asked, for the first line of a page."""
        where = self.client.server if self.client is not None else "no server"
        return f"namespace {self.names.namespace} at {where}" if self.aggregated else f"the server at {where}"

    # ------------------------------------------------------------------------------------------------------------ the cluster

    @property
    def cluster(self) -> Client:
        """The client of kube-apiserver. Raises ClusterError if its credentials cannot be read."""
        if self.client is None:
            raise ClusterError(self.problem)
        return self.client

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Object | None:
        """Return an object or a list; None if it does not exist. Raises ClusterError."""

        async def ask() -> Object | None:
            try:
                return await self.cluster.ask("GET", path, query=query)
            except Refused as error:
                if error.code == 404:
                    return None
                raise

        return await self._once(f"{path}?{query}", ask)

    async def apiservice(self, name: str) -> Object | None:
        return await self.get(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")

    async def service(self) -> Object | None:
        return await self.get(f"/api/v1/namespaces/{self.names.namespace}/services/{self.names.service}")

    async def deployment(self) -> Object | None:
        return await self.get(f"/apis/apps/v1/namespaces/{self.names.namespace}/deployments/{self.names.service}")

    async def slices(self) -> Sequence[Object]:
        """Return the EndpointSlices of the Service."""
        selector = {"labelSelector": f"kubernetes.io/service-name={self.names.service}"}
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.names.namespace}/endpointslices"
        return ((await self.get(path, selector)) or {}).get("items") or []

    async def pods(self) -> Sequence[Object]:
        """Return the pods that the Deployment selects; without one, those that the Service selects."""
        deployment, service = await self.deployment(), await self.service()
        labels = (deployment or {}).get("spec", {}).get("selector", {}).get("matchLabels") or (
            (service or {}).get("spec", {}).get("selector")
        )
        if not labels:
            return []
        selector = {"labelSelector": ",".join(f"{key}={value}" for key, value in labels.items())}
        found = await self.get(f"/api/v1/namespaces/{self.names.namespace}/pods", selector)
        return (found or {}).get("items") or []

    async def outside(self) -> bool:
        """Return whether the Service leads out of the cluster's pods: by a name, or by EndpointSlices that somebody else writes."""
        spec = ((await self.service()) or {}).get("spec", {})
        return bool(spec) and (spec.get("type") == "ExternalName" or not spec.get("selector"))

    # ------------------------------------------------------------------------------------------------------------ the server

    async def bundle(self) -> bytes:
        """Return the first caBundle of our APIServices in PEM form, empty without one."""
        for wanted in self.registered:
            found = (await self.apiservice(wanted["metadata"]["name"])) or {}
            if text := found.get("spec", {}).get("caBundle"):
                with contextlib.suppress(ValueError):
                    return base64.b64decode(text, validate=True)
        return b""

    async def addresses(self) -> Sequence[Address]:
        """Return where the endpoints of the Service listen, ready ones first."""
        service = ((await self.service()) or {}).get("spec", {})
        ports = [await self.port(wanted) for wanted in self.registered[:1]]
        if service.get("type") == "ExternalName":
            return [Address(service["externalName"], port, "the Service's external name") for port in ports]
        found = [
            (bool((endpoint.get("conditions") or {}).get("ready", True)), Address(address, port["port"], "an endpoint"))
            for each in await self.slices()
            for port in each.get("ports") or []
            if isinstance(port.get("port"), int)
            for endpoint in each.get("endpoints") or []
            for address in (endpoint.get("addresses") or [])[:1]
        ]
        return [address for _, address in sorted(found, key=lambda pair: not pair[0])]

    async def port(self, wanted: Object) -> int:
        found = (await self.apiservice(wanted["metadata"]["name"])) or wanted
        return int((found.get("spec", {}).get("service") or {}).get("port") or 443)

    async def address(self) -> Address:
        """Return a place where the server accepts connections from here. Raises Unreached, ClusterError."""
        return await self._once("address", self._address)

    async def _address(self) -> Address:
        if self.server:
            return _parsed(self.server)
        tried = []
        for address in (await self.addresses())[:MOST_ADDRESSES]:
            if await _accepts(address):
                return address
            tried.append(str(address))
        ready = [pod["metadata"]["name"] for pod in await self.pods() if is_ready(pod)]
        if ready and not self.pod and (program := forwarding.kubectl(self.access.environ)):
            words = forwarding.words(
                program,
                kubeconfig=self.access.kubeconfig,
                context=self.access.context,
                namespace=self.names.namespace,
                pod=ready[0],
                port=await self._container_port(),
            )
            port = await self._open.enter_async_context(forwarding.opened(words, self.access.environ))
            if port:
                return Address("127.0.0.1", port, f"kubectl port-forward pod/{ready[0]}")
        where = f": {', '.join(tried)}" if tried else ""
        raise Unreached(f"no connection from here to the server itself{where}")

    async def _container_port(self) -> int:
        for each in await self.slices():
            for port in each.get("ports") or []:
                if isinstance(port.get("port"), int):
                    return int(port["port"])
        return 10250

    async def itself(self) -> Client:
        """Return a client of the server itself, which verifies its certificate as kube-apiserver does. Raises Unreached, ClusterError."""
        return await self._once("itself", self._itself)

    async def _itself(self) -> Client:
        if not self.aggregated:
            return self.cluster
        address, bundle = await self.address(), await self.bundle()
        if not bundle:
            raise Unreached("no caBundle vouches for the server, so no credentials are sent to it")
        elsewhere = Elsewhere(f"https://{address}", bundle, self.names.host)
        client = await Client.of(self.access.source(elsewhere), throttled=False)
        self._open.push_async_callback(client.close)
        return client

    async def detect(self, seconds: float) -> None:
        """Find out whether a kube-apiserver with aggregation answers, or a Sluice that is asked directly, as `sluice dev` is."""
        try:
            answer = await self.cluster.probe(DELEGATED, seconds=seconds)
        except ClusterError:
            return
        self.aggregated = answer.status != 404

    async def version(self) -> Probe:
        """Return kube-apiserver's answer to /version."""
        return await self._once("version", lambda: self.cluster.probe("/version"))

    async def _once(self, key: str, make: Callable[[], Awaitable[_Value]]) -> _Value:
        """Share one answer among checks. A check that gives up does not end the question of the others."""
        task = self._answers.get(key)
        if task is None:

            async def made() -> _Value:
                return await make()

            task = self._answers[key] = asyncio.create_task(made())
        value: _Value = await asyncio.shield(task)
        return value


def is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _parsed(server: str) -> Address:
    host, _, port = server.removeprefix("https://").rstrip("/").rpartition(":")
    return Address(host.strip("[]"), int(port), "--server")


async def _accepts(address: Address) -> bool:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def errors(kubeconfig: str, context: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield why there is nobody to ask: no kubeconfig, or one that cannot be used. Sends nothing."""
    try:
        access = Access.of(kubeconfig, context, environ)
        if access.kubeconfig:
            Kubeconfig(access.kubeconfig, environ, context=context).check()
    except ClusterError as error:
        yield str(error)
