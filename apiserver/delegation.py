"""Delegate what this process cannot answer itself to the cluster's kube-apiserver, if there is one.

Opens the clients, keeps copies up to date, and closes everything. Knows neither requests nor sockets. Upstream: kubernetes/apiserver
`pkg/server/options/{authentication,authorization,coreapi}.go`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from apiserver.admission.core.sources import Nothing, Source, Sources, param_kinds
from apiserver.admission.quota import limited
from apiserver.admission.quota.limited import Limited
from apiserver.admission.quota.plugin import ResourceQuota
from apiserver.admission.webhooks import credentials
from apiserver.admission.webhooks.calls import Caller, Callers
from apiserver.cluster import configurations
from apiserver.cluster import credentials as cluster_credentials
from apiserver.cluster.access import Access
from apiserver.cluster.client import Client
from apiserver.cluster.configurations import COLLECTIONS, LEVELS, SCHEMAS
from apiserver.cluster.errors import ClusterError
from apiserver.cluster.front import Front
from apiserver.cluster.mapper import Mapper
from apiserver.cluster.namespaces import EveryNamespace, Namespaces
from apiserver.cluster.params import Params
from apiserver.cluster.quotas import Quotas
from apiserver.cluster.requestheader import ClusterTrust, TrustSource
from apiserver.cluster.tokens import Tokens
from apiserver.config.config import Config, ConfigError, Delegation
from apiserver.filters.authenticate import TokenReviewer
from apiserver.filters.authorize import Authorizer, Delegated, Local
from apiserver.flowcontrol.control import FlowControl
from apiserver.flowcontrol.following import Following
from apiserver.runtime import tasks
from kubetext.quoting import go_quote

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 15.0
"""How long the first read is tried before the log reports it, again and again."""
Work = Callable[[], Awaitable[None]]
DOUBT_SECONDS = 5.0
"""How long a refusal is retried: a starting kube-apiserver does not know the rights of users yet."""


async def _at_once() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegates:
    """The delegates of a server.

    * `bundles`: returns the cluster's present CAs; None if they are not looked up.
    * `missing`: returns what was not read yet; `ready` waits until nothing is missing.
    * `namespaces`: None if every namespace exists.
    * `sources`: None without admission configurations.
    * `callers`: None if no webhook is called.
    * `quotas`: None without quotas.
    * `mapper`: None if there are no kinds but Sluice's.
    * `limited`: resources that may only be used if a quota covers them.
    * `front`: None if the release does not follow a kube-apiserver.
    * `flows`: None without priority and fairness.
    """

    authorizer: Authorizer
    tokens: TokenReviewer | None = None
    namespaces: Namespaces | EveryNamespace | None = None
    sources: Sources | None = None
    callers: Callers | None = None
    quotas: Quotas | None = None
    limited: Sequence[Limited] = ()
    mapper: Mapper | None = None
    bundles: Callable[[], ClusterTrust] | None = None
    front: Front | None = None
    flows: FlowControl | None = None
    missing: Callable[[], str | None] = lambda: None
    ready: Callable[[], Awaitable[None]] = _at_once


def alone(config: Config, sources: Sources | None = None, callers: Callers | None = None) -> Delegates:
    """Make the delegates of a server without a cluster: only webhooks are called, and every namespace exists."""
    authorizer = Delegated(Local(), always_allowed=config.delegation.always_allowed)
    return Delegates(authorizer=authorizer, sources=sources, callers=callers, flows=_flows(config))


def _flows(config: Config) -> FlowControl | None:
    """Make the flow control of the process, with the default configuration."""
    if not config.limits.fair:
        return None
    return FlowControl(lambda: config.live.limits.in_flight + config.live.limits.mutating_in_flight)


def callers(config: Config, cluster: Client | None = None) -> Callers:
    """Make the callers of webhooks, with the credentials of `--admission-control-config-file`. Raises ConfigError."""
    found = _control(config)
    mutating, validating = (Caller(found.credentials(name), cluster) for name in credentials.WEBHOOK_PLUGINS)
    # Upstream reads no credentials of conversion webhooks.
    return Callers(mutating, validating, Caller(cluster=cluster))


def errors(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the errors in kubeconfigs and in `--admission-control-config-file`."""
    asked = config.delegation
    yield from cluster_credentials.errors((asked.authentication_kubeconfig, asked.authorization_kubeconfig), environ)
    yield from control_errors(config)


def control_errors(config: Config) -> Iterator[str]:
    """Yield the errors in the file of `--admission-control-config-file`."""
    try:
        _control(config)
        if not config.delegation.standalone:
            _limited(config)
    except ConfigError as error:
        yield from error.errors


def _control(config: Config) -> credentials.Configuration:
    """Load `--admission-control-config-file`. Raises ConfigError."""
    try:
        return credentials.load(config.admission.control)
    except ValueError as error:
        raise ConfigError([f"--admission-control-config-file: {error}"]) from None


def _limited(config: Config) -> Sequence[Limited]:
    """Return the resources that may only be used if a quota covers them. Raises ConfigError."""
    plugin = ResourceQuota.__name__
    if not config.admission.asks(plugin):
        return ()
    try:
        return limited.read(_control(config).of(plugin))
    except ValueError as error:
        text = f"couldn't init admission plugin {go_quote(plugin)}: {error}"
        raise ConfigError([f"--admission-control-config-file: {text}"]) from None


@contextlib.asynccontextmanager
async def opened(config: Config, environ: Mapping[str, str]) -> AsyncIterator[Delegates]:
    """Open the delegates of `sluice serve` for as long as it runs. Raises ClusterError, ConfigError."""
    delegation = config.delegation
    if delegation.standalone:
        yield alone(config)
        return
    async with contextlib.AsyncExitStack() as stack:
        authentication, authorization = await _clients(delegation, environ, stack)
        source = TrustSource(authentication) if _looks_up(config) else None
        namespaces = Namespaces(authorization)
        followed = configurations.reflectors(authorization, config.admission.asks)
        params, sources = _sources(authorization, followed)
        front = Front(authorization) if config.follows else None
        start = Start(
            source,
            {"*v1.Namespace": namespaces}
            | {COLLECTIONS[name].go_type: made for name, made in followed.items()}
            | ({"*version.Info": front} if front is not None else {}),
            tolerant=delegation.tolerate_lookup_failure,
            clock=time.monotonic,
            sleep=asyncio.sleep,
        )
        following: dict[str, Work] = {"namespaces": namespaces.run, "params": params.run}
        following |= {name: made.run for name, made in followed.items()}
        following |= {"trust": source.run} if source is not None else {}
        flows = _flows(config)
        following |= _following_flows(flows, authorization) if flows is not None else {}
        await stack.enter_async_context(_running(following, after=start.answered))
        if front is not None:
            await stack.enter_async_context(_running({"front": front.run}))
        access = Access(
            authorization,
            allow_seconds=delegation.allow_seconds,
            deny_seconds=delegation.deny_seconds,
            clock=time.monotonic,
        )
        calling = callers(config, authorization)
        stack.push_async_callback(calling.close)
        yield Delegates(
            authorizer=Delegated(access, always_allowed=delegation.always_allowed),
            tokens=Tokens(authentication, ttl=delegation.token_seconds, clock=time.monotonic),
            namespaces=namespaces,
            sources=sources,
            callers=calling,
            quotas=Quotas(authorization, followed["quotas"]) if "quotas" in followed else None,
            limited=_limited(config),
            mapper=Mapper(authorization),
            bundles=(lambda: source.current) if source is not None else None,
            front=front,
            flows=flows,
            missing=start.missing,
            ready=start.ready,
        )


def _following_flows(flows: FlowControl, client: Client) -> dict[str, Work]:
    """Return what follows the cluster's configuration of flow control. Readiness does not wait for it: there are defaults."""
    changed = asyncio.Event()
    copies = {name: configurations.of_flow_control(client, name, on_change=changed.set) for name in (SCHEMAS, LEVELS)}
    following = Following(flows, schemas=copies[SCHEMAS], levels=copies[LEVELS], changed=changed)
    return {"flow control": following.run, **{name: copy.run for name, copy in copies.items()}}


def _sources(client: Client, followed: Mapping[str, Source]) -> tuple[Params, Sources]:
    """Return the sources of admission and the copies of policies' parameters. A source that no plugin reads is empty."""
    known: dict[str, Source] = {name: followed.get(name, Nothing()) for name in COLLECTIONS}
    validating = known["validating_policies"], known["validating_bindings"]
    mutating = known["mutating_policies"], known["mutating_bindings"]
    params = Params(client, param_kinds(validating, mutating))
    return params, Sources(**known, params=params)


def _looks_up(config: Config) -> bool:
    """Return whether a bundle must be read from the cluster, because no flag names it."""
    named = config.authentication.client_ca_file and config.authentication.request_header.ca_file
    return not named and not config.delegation.skip_lookup


async def _clients(
    delegation: Delegation, environ: Mapping[str, str], stack: contextlib.AsyncExitStack
) -> tuple[Client, Client]:
    """Open the clients for authentication and for authorization; one client if both have the same identity."""
    made: dict[str, Client] = {}
    paths = (delegation.authentication_kubeconfig, delegation.authorization_kubeconfig)
    for path in paths:
        if path not in made:
            made[path] = await (
                Client.of_kubeconfig(path, environ=environ) if path else Client.in_cluster(environ=environ)
            )
            stack.push_async_callback(made[path].close)
    return made[paths[0]], made[paths[1]]


@contextlib.asynccontextmanager
async def _running(works: Mapping[str, Work], *, after: asyncio.Event | None = None) -> AsyncIterator[None]:
    """Run each work as a task that begins at once, or when `after` is set."""

    async def run(name: str, work: Work) -> None:
        if after is not None:
            await after.wait()
        await tasks.supervised(work, name=name)

    running = [asyncio.create_task(run(name, work), name=name) for name, work in works.items()]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class First(Protocol):
    async def first(self, seconds: float) -> None: ...


class Synced(Protocol):
    @property
    def ready(self) -> asyncio.Event: ...
    @property
    def problem(self) -> str:
        """Why it is not followed at the moment, empty while it is."""


class Start:
    """The data that must be read before this replica is ready: the cluster's CAs, if they are looked up, and all that admission follows."""

    def __init__(
        self,
        source: First | None,
        followed: Mapping[str, Synced],
        *,
        tolerant: bool,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`followed` is by the Go type of its objects. `tolerant`: unreadable CAs count as missing until they can be read."""
        self._source = source
        self._followed = followed
        self._tolerant = tolerant
        self._clock, self._sleep = clock, sleep
        self._trusting = source is None
        self.answered = asyncio.Event()
        """Set once kube-apiserver has answered, or need not: before that, followers would only wait longer and longer."""
        if source is None:
            self.answered.set()

    def missing(self) -> str | None:
        """Return upstream's health check text (kubernetes/apiserver `pkg/server/healthz/healthz.go`) with the reasons, or None."""
        waiting = {name: found.problem for name, found in self._followed.items() if not found.ready.is_set()}
        names = [*([] if self._trusting else ["*v1.ConfigMap"]), *waiting]
        if not names:
            return None
        why = "".join(f"; {name}: {problem}" for name, problem in waiting.items() if problem)
        return f"{len(names)} informers not started yet: [{' '.join(names)}]{why}"

    async def ready(self) -> None:
        """Wait until everything was read, also for a kube-apiserver that is still starting. Raises ClusterError when it refuses."""
        if self._source is not None:
            await self._read(self._source)
            self._trusting = True
            self.answered.set()
        for followed in self._followed.values():
            await followed.ready.wait()

    async def _read(self, source: First) -> None:
        refused: float | None = None
        while True:
            try:
                return await source.first(PATIENCE_SECONDS)
            except ClusterError as e:
                error = e
            if self._tolerant:
                logger.warning("continuing without authentication configuration", extra={"error": str(error)})
                return None
            logger.warning("still waiting for kube-apiserver", extra={"error": str(error)})
            if error.transient:
                refused = None
                continue
            refused = self._clock() if refused is None else refused
            if self._clock() - refused >= DOUBT_SECONDS:
                raise error
            await self._sleep(DOUBT_SECONDS / 10)
