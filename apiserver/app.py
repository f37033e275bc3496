"""Compose the server: the services, the filters in order, the documents, and the handlers. Holds no rule of its own."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import platform
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import cast

from aiohttp import HttpVersion11, web

from apiserver import apigroups, buildinfo, metrics
from apiserver.admission.core.chain import Chain, Plugin
from apiserver.admission.core.expressions import Expressions
from apiserver.admission.core.matching import Matcher
from apiserver.admission.core.namespace_lifecycle import NamespaceLifecycle
from apiserver.admission.core.node_restriction import NodeRestriction
from apiserver.admission.core.owner_references import OwnerReferencesPermissionEnforcement
from apiserver.admission.policies.mutating import MutatingAdmissionPolicy
from apiserver.admission.policies.validating import ValidatingAdmissionPolicy
from apiserver.admission.quota.plugin import ResourceQuota
from apiserver.admission.webhooks.mutating import MutatingAdmissionWebhook
from apiserver.admission.webhooks.validating import ValidatingAdmissionWebhook
from apiserver.apiextensions.following import Definitions
from apiserver.apimachinery.errors import TextError
from apiserver.apimachinery.releases import NEWEST, Release, at
from apiserver.apimachinery.request import RequestInfo
from apiserver.audit.record import Auditor
from apiserver.cluster.namespaces import EveryNamespace
from apiserver.config import features, logs
from apiserver.config.config import Config
from apiserver.conversion import calling
from apiserver.conversion.converter import Conversions
from apiserver.delegation import Delegates
from apiserver.discovery import groups, openapi_docs
from apiserver.discovery.core import Core
from apiserver.fieldmanager.manager import FieldManagers
from apiserver.filters import (
    audit,
    authorize,
    deadline,
    deprecation,
    fairness,
    impersonate,
    inflight,
    observe,
    recover,
    request_info,
    tracing,
)
from apiserver.filters import drain as draining
from apiserver.filters.authenticate import Trust, authenticate
from apiserver.filters.node_authorizer import NodeAuthorizer
from apiserver.filters.state import Filter, Handler, Request
from apiserver.flowcontrol.control import FlowControl
from apiserver.flowcontrol.estimates import Estimator, Stored
from apiserver.flowcontrol.watches import Watches
from apiserver.kinds.served import Kinds
from apiserver.listcache.encoding import EncodingCache, Use
from apiserver.resources import DeviceSelectors
from apiserver.runtime.spans import Tracer
from apiserver.runtime.workers import RENDERING, SELECTORS, Workers
from apiserver.schema.featuregate import Gates
from apiserver.serving import health
from apiserver.serving.debugging import flows, profiles, zpages
from apiserver.serving.health import Check
from apiserver.standalone import answers, control
from apiserver.standalone.control import Control
from apiserver.storage.store import Store, Stores
from apiserver.verbs import create, delete, patch, preparation, read, scale, update, watch
from apiserver.verbs.context import Call, Services
from apiserver.verbs.patch_type import PatchType
from apiserver.wire import negotiation
from apiserver.wire.forms.choice import Forms

logger = logging.getLogger(__name__)

VERBS: Mapping[request_info.Action, Callable[[Services, Call], Awaitable[web.StreamResponse]]] = {
    "create": create.create,
    "update": update.update,
    "patch": patch.patch,
    "delete": delete.delete,
    "deletecollection": delete.delete_collection,
    "get": read.get,
    "list": read.list_,
    "watch": watch.watch,
}

SCALE_VERBS: Mapping[request_info.Action, Callable[[Services, Call], Awaitable[web.StreamResponse]]] = {
    "get": scale.get,
    "update": scale.update,
    "patch": scale.patch,
}

WRITES = frozenset(("create", "update", "patch"))
"""The actions that judge objects."""

PATCH_TYPES: Sequence[PatchType] = (patch.JSON_PATCH, patch.MERGE_PATCH, patch.STRATEGIC)


def patch_types(managers: FieldManagers, release: Release) -> Sequence[PatchType]:
    """Return the patch types, in upstream's order."""
    return (*at(release, PATCH_TYPES), patch.server_side_apply(managers, release))


@dataclass(slots=True)
class App:
    """The composed server: the outermost filter, and the parts of a stop."""

    handler: Handler
    drain: draining.Drain
    stores: Stores
    admission: Chain = field(default_factory=Chain)
    control: Control | None = None
    """The controllers of a stand-alone server; None behind a cluster."""
    stopping: bool = False

    def filling(self) -> bool:
        """Return whether memory is being filled, which all other work waits for."""
        return self.stores.filling()

    async def end_watches(self, seconds: float) -> None:
        """End every watch with its last chunk, spread over this time, so that their clients do not all reconnect at once."""
        steps = max(1, round(seconds / END_STEP_SECONDS))
        for step in range(steps, 1, -1):
            if not self.stores.end_watches(at_most=math.ceil(self.drain.watches / step)):
                return
            await asyncio.sleep(END_STEP_SECONDS)
        self.stores.end_watches()

    async def finish(self) -> None:
        """Wait until no request is being served. Ends watches that were opening when all others ended."""
        while self.drain.watches:
            self.stores.end_watches()
            await asyncio.sleep(END_STEP_SECONDS)
        await self.drain.idle()


def build(
    config: Config,
    served: Kinds,
    *,
    stores: Stores,
    trust: Callable[[], Trust],
    delegates: Delegates,
    auditor: Auditor | None = None,
    tracer: Tracer | None = None,
    definitions: Definitions | None = None,
    encodings: EncodingCache | None = None,
) -> App:
    """Compose the server. `trust` returns the CAs in force, `delegates` answer what this process cannot. Without an auditor nothing is
    recorded, without a tracer nothing is traced. `definitions` are those that `served` holds the kinds of. Servers that share stores must
    share `encodings`, too, because these belong to stored objects.
    """
    app, uuids = App(_not_composed, draining.Drain(), stores), Uuids()
    workers, managers = RENDERING, FieldManagers(served)
    encodings = EncodingCache(config.limits.encoding_bytes) if encodings is None else encodings
    switched = apigroups.gates(config.serving, served)
    _report(switched)
    _report_release(served.release)
    apigroups.prepare(served)
    if control.serves_namespaces(served):
        app.control = Control(served, stores)
        delegates = replace(delegates, namespaces=app.control.namespaces)
    namespaces, asked = delegates.namespaces or EveryNamespace(), config.admission.asks
    if asked(NodeRestriction.__name__):
        delegates = replace(delegates, authorizer=NodeAuthorizer(delegates.authorizer, served, stores))
    plugins = [
        *([app.control.provision] if app.control is not None else []),
        *admission(delegates, served, stores, gates=switched),
    ]
    app.admission = Chain([plugin for plugin in plugins if asked(type(plugin).__name__)])
    metrics.WATCH_LIST_SECONDS.divide(at(served.release, watch.WATCH_LIST_BUCKETS))
    metrics.ENCODING_BYTES.only.set_function(lambda: encodings.size)
    for use in Use:
        metrics.ENCODINGS.labels(*use.value).set_function(partial(encodings.uses.__getitem__, use))
    ask = calling.nobody if delegates.callers is None else calling.asking(delegates.callers.conversion)
    guarded = switched.enabled(features.ALLOW_UNSAFE_MALFORMED_OBJECT_DELETION)
    conversions = Conversions(calling.Calls(ask), encodings, guarded=guarded)
    services = Services(
        kinds=served,
        stores=stores,
        now=time.time,
        choose=random.choice,
        new_uid=uuids,
        watch_seconds=lambda: random.uniform(1, 2) * config.live.limits.watch_seconds,
        workers=workers,
        encodings=encodings,
        forms=Forms(clock=time.time, cache=encodings),
        admission=app.admission,
        managers=managers,
        patch_types={kind.media: kind for kind in patch_types(managers, served.release)},
        allowed=partial(authorize.require, delegates.authorizer),
        why_not=partial(authorize.why_not, delegates.authorizer),
        decide=delegates.authorizer.authorize,
        namespace_labels=namespaces.labels,
        newest_labels=namespaces.newest_labels,
        conversions=conversions,
        gates=switched,
        cel=DeviceSelectors(switched),
    )
    if app.control is not None:
        app.control.start(services, auditor)
    documents = _documents(app, served, delegates=delegates, definitions=definitions)
    build = groups.version(served.release, python=platform.python_version(), platform=PLATFORM)
    documents |= _pages(config, served, documents, gates=switched, build=build)
    # In a cluster, kube-apiserver serves the core group.
    core = Core(served.groups.get("", {}).get("v1", ())) if config.delegation.standalone else None
    others = _others(served, documents, core=core, build=build)
    unlisted: dict[str, Document] = {}
    if config.serving.profiling:
        unlisted = zpages.debug_flags(logs.set_verbosity) | profiles.documents(longest=config.limits.request_seconds)
    if delegates.flows is not None:
        unlisted |= flows.documents(delegates.flows, workers=workers)
    handler = _dispatch(services, documents=documents | unlisted, others=others, traced=tracer is not None)
    outermost_first = filters(
        config,
        app,
        served,
        trust=trust,
        delegates=delegates,
        auditor=auditor,
        tracer=tracer,
        workers=workers,
        gates=switched,
    )
    if tracer is not None:
        outermost_first = tracing.traced(
            outermost_first, tracer, constrained=switched.enabled(features.CONSTRAINED_IMPERSONATION)
        )
    app.handler = reduce(lambda inner, filter_: filter_(inner), reversed(outermost_first), handler)
    return app


def _report(gates: Gates) -> None:
    """Report the state of the feature gates: in the metric, and in the log gates that will be removed."""
    for stated, _ in metrics.FEATURE_ENABLED.children():
        metrics.FEATURE_ENABLED.remove(*stated)
    for gate, on in gates.all():
        metrics.FEATURE_ENABLED.labels(gate.name, gate.stage.value).set(on)
    for text, gate, on in gates.warnings():
        logger.warning(text, extra={"featureGate": gate.name, "value": on})


def _report_release(release: Release) -> None:
    """Upstream: component-base `metrics/prometheus/compatversion/metrics.go`."""
    for shown, _ in metrics.VERSION_INFO.children():
        metrics.VERSION_INFO.remove(*shown)
    before = Release(release.major, release.minor - 1)
    metrics.VERSION_INFO.labels(str(NEWEST), "kube", str(release), str(before)).set(1)


def admission(delegates: Delegates, served: Kinds, stores: Stores, *, gates: Gates) -> list[Plugin]:
    """Return the admission plugins in the order in which they run. A plugin's class name is its name in flags."""
    decide, namespaces, quotas = delegates.authorizer.authorize, delegates.namespaces, delegates.quotas
    return [
        *([NamespaceLifecycle(namespaces)] if namespaces is not None else []),
        NodeRestriction(),
        OwnerReferencesPermissionEnforcement(decide, served, delegates.mapper),
        *configured(delegates, served),
        *(
            [ResourceQuota(quotas, served, stores, gates=gates, limited=delegates.limited)]
            if quotas is not None
            else []
        ),
    ]


def configured(delegates: Delegates, served: Kinds) -> list[Plugin]:
    """Return the plugins that follow configurations; none if there is no source of configurations."""
    sources, callers = delegates.sources, delegates.callers
    if sources is None or callers is None:
        return []
    matcher = Matcher(served, delegates.namespaces or EveryNamespace())
    expressions = Expressions(delegates.authorizer.authorize, served.release)
    return [
        MutatingAdmissionPolicy(sources, matcher, expressions),
        MutatingAdmissionWebhook(sources, matcher, callers.mutating, expressions),
        ValidatingAdmissionPolicy(sources, matcher, expressions),
        ValidatingAdmissionWebhook(sources, matcher, callers.validating, expressions),
    ]


def filters(
    config: Config,
    app: App,
    served: Kinds,
    *,
    trust: Callable[[], Trust],
    delegates: Delegates,
    auditor: Auditor | None,
    tracer: Tracer | None,
    workers: Workers,
    gates: Gates,
) -> list[Filter]:
    """Return the filters, outermost first: a request passes them from top to bottom."""
    limits, clock, authorizer = config.limits, time.perf_counter, delegates.authorizer
    constrained = gates.enabled(features.CONSTRAINED_IMPERSONATION)
    return [
        partial(recover.recover, new_id=Uuids(), body_limit=config.storage.body_bytes, workers=workers),
        request_info.request_info,
        partial(observe.observe, served=served.paths, clock=clock, log_requests=lambda: logs.verbosity() >= 3),
        partial(draining.drain, state=app.drain),
        *([partial(audit.audit, auditor=auditor)] if auditor is not None else []),
        partial(deadline.deadline, seconds=limits.request_seconds),
        partial(
            authenticate,
            trust=trust,
            tokens=delegates.tokens,
            anonymous=config.authentication.anonymous,
            now=time.time,
            clock=clock,
        ),
        tracing.pass_on if tracer is None else partial(tracing.trace, tracer=tracer),
        *([partial(audit.receive, auditor=auditor)] if auditor is not None else []),
        partial(impersonate.impersonate, authorizer=authorizer, constrained=constrained),
        _limiting(config, app.stores, served, flows=delegates.flows, gates=gates),
        partial(request_info.naming_selectors, workers=SELECTORS),
        partial(authorize.authorize, authorizer=authorizer, clock=clock),
    ]


def _limiting(config: Config, stores: Stores, served: Kinds, *, flows: FlowControl | None, gates: Gates) -> Filter:
    """Return the filter that limits the requests in progress: by priority and fairly, or by two numbers."""
    limits = config.limits
    if flows is None:
        return partial(
            inflight.inflight,
            reading=lambda: config.live.limits.in_flight,
            writing=lambda: config.live.limits.mutating_in_flight,
            watching=lambda: limits.watches,
        )

    def stored(info: RequestInfo) -> Stored | None:
        resource = served.at(info.group, info.version, info.resource)
        store = None if resource is None else stores.get(resource.storage_name)
        return None if store is None else Stored(*store.volume)

    watches = Watches({(kind.group, kind.plural): tuple(kind.indexed) for kind in served.stored})
    by_size = gates.enabled(features.SIZE_BASED_LIST_COST_ESTIMATE)
    return partial(
        fairness.priority_and_fairness,
        control=flows,
        estimate=Estimator(stored, watches, by_size=by_size),
        watches=watches,
        seconds=limits.request_seconds,
        watching=lambda: limits.watches,
    )


Document = Callable[[Request], Awaitable[web.StreamResponse]]
OPENAPI = "/openapi/v3/"
PLATFORM = f"{platform.system().lower()}/{platform.machine()}"
STARTED = time.time()
"""About when this process began."""
END_STEP_SECONDS = 0.1
FILL_SECONDS = 10.0
"""How long a request waits for memory that is being filled. A refused client would retry at once, and thousands of retries would take
the CPU from filling.
"""


def published(served: Kinds) -> openapi_docs.OpenAPI:
    """Return the OpenAPI documents of what is served.

    Their Last-Modified time is the build time of a release, so that all replicas agree. The documents of a checkout change with its files,
    which it reads when it starts.
    """
    return openapi_docs.OpenAPI(
        served,
        patch_types=[kind.media for kind in patch_types(FieldManagers(served), served.release)],
        version=str(served.release),
        built=buildinfo.built() or STARTED,
        media_types=negotiation.ACCEPTED,
        streams=negotiation.STREAMS,
    )


def _documents(
    app: App, served: Kinds, *, delegates: Delegates, definitions: Definitions | None
) -> dict[str, Document]:
    """Return the documents by path."""
    ping = Check("ping", lambda: None)
    caches = Check("caches", app.stores.why_not_ready)
    synced = Check("informer-sync", delegates.missing, public=True)
    store = Check("store", app.stores.store_state, counted=False)
    shutdown = Check("shutdown", lambda: "process is shutting down" if app.stopping else None)
    openapi = published(served)
    followed = [] if definitions is None else [_followed(definitions)]
    return {
        **health.documents("livez", [ping]),
        **health.documents("readyz", [ping, caches, synced, store, *followed, shutdown]),
        **health.documents("healthz", [ping, caches]),
        "/metrics": health.scrape,
        "/metrics/slis": health.health_metrics,
        "/openapi/v2": lambda request: openapi_docs.serve_v2(openapi, request),
        "/openapi/v3": lambda _: openapi_docs.serve_v3_root(openapi),
        OPENAPI: lambda request: openapi_docs.serve_v3_group(
            openapi, request, path=request.info.path, query=request.exchange.query, now=time.time()
        ),
    }


def _followed(definitions: Definitions) -> Check:
    """Return the check of the operator's definitions, and show them in the metrics. It fails no endpoint: the former state is served."""
    metrics.CRDS.labels("served").set_function(lambda: definitions.served)
    metrics.CRDS.labels("refused").set_function(lambda: definitions.refused)
    return Check("crds", definitions.problem, counted=False, public=True)


def _pages(
    config: Config, served: Kinds, documents: Iterable[str], *, gates: Gates, build: Mapping[str, str]
) -> dict[str, Document]:
    """Return the pages about this process by path. `build` is the document of /version."""
    pages = {zpages.FLAGZ: zpages.flagz(lambda: config.live.shown)} if gates.enabled(features.COMPONENT_FLAGZ) else {}
    if gates.enabled(features.COMPONENT_STATUSZ):
        paths = (*documents, *pages, zpages.STATUSZ, "/version")
        release = str(served.release)
        pages[zpages.STATUSZ] = zpages.statusz(
            started=STARTED, now=time.time, build=build, emulated=release, paths=paths
        )
    return pages


def _others(
    served: Kinds, documents: Mapping[str, Document], *, core: Core | None, build: Mapping[str, str]
) -> Document:
    """Return the handler of discovery, version, index, and unknown paths."""
    discovery = groups.Discovery(served, version=build, paths=documents, core=core)
    return lambda request: groups.respond(discovery, request.exchange, request.info)


def _dispatch(services: Services, *, documents: Mapping[str, Document], others: Document, traced: bool) -> Handler:
    """Route requests. The RequestInfo that authorization judged decides which handler is called."""
    router = request_info.Router(services.kinds, patches=list(services.patch_types))

    def route(request: Request) -> request_info.Endpoint | None:
        info, exchange = request.info, request.exchange
        content_type = exchange.content_type if info.method == "PATCH" else ""
        return router.route(info, accept=exchange.accept, content_type=content_type) if info.is_resource else None

    def selects(request: Request) -> bool:
        endpoint, exchange = route(request), request.exchange
        if endpoint is None or endpoint.action not in ("list", "watch", "deletecollection"):
            return False
        negotiation.negotiate(exchange.accept, exchange.query, exchange.user_agent)
        return True

    async def dispatching(request: Request) -> web.StreamResponse:
        info, exchange = request.info, request.exchange
        endpoint = route(request)
        if endpoint is None:
            return await _document(info.path, documents, others)(request)
        await _invite_body(request)
        resource = endpoint.resource
        if resource.deprecation is not None:
            deprecation.note(exchange, info, resource)
        if resource.virtual:
            nothing = cast("Store", None)  # reviews are not stored
            call = Call(info=info, user=request.user, resource=resource, store=nothing, exchange=exchange)
            answered: web.StreamResponse = await answers.create(services, call)
            return answered
        if endpoint.action in WRITES:
            await preparation.finish(services, resource)
        store = services.stores[resource.storage_name]
        if store.filling:
            await store.wait_until_filled(seconds=FILL_SECONDS)
        call = Call(
            info=info,
            user=request.user,
            resource=resource,
            store=store,
            exchange=exchange,
            converter=services.conversions.of(resource),
        )
        shows = endpoint.subresource is not None and endpoint.subresource.shows is not None
        verb = (SCALE_VERBS if shows else VERBS)[endpoint.action]
        if not traced:
            return await verb(services, call)
        with tracing.handling(request, endpoint.action):
            return await verb(services, call)

    return request_info.large_selectors(dispatching, workers=SELECTORS, selects=selects)


def _document(path: str, documents: Mapping[str, Document], others: Document) -> Document:
    return documents.get(path) or (documents[OPENAPI] if path.startswith(OPENAPI) else others)


async def _invite_body(request: Request) -> None:
    """Tell a client that waits for it to send its body, now that the request is known to be allowed."""
    expected = request.headers.get("Expect")
    if expected is None or request.version < HttpVersion11:
        return
    if expected.lower() != "100-continue":
        raise TextError(417, "", headers={"Connection": "close"}, nosniff=False)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the response has not begun


async def _not_composed(request: Request) -> web.StreamResponse:
    raise AssertionError("the handler is composed before it is used")


class Uuids:
    """Random UUIDs (version 4), from randomness fetched in larger pieces: a third of uuid.uuid4's time."""

    BATCH = 256

    def __init__(self) -> None:
        self._pool = b""
        self._at = 0

    def __call__(self) -> str:
        if self._at >= len(self._pool):
            self._pool, self._at = os.urandom(16 * self.BATCH), 0
        h = self._pool[self._at : self._at + 16].hex()
        self._at += 16
        return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{'89ab'[int(h[16], 16) & 3]}{h[17:20]}-{h[20:]}"
