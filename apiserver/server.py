"""The server process: start, signals, and a graceful stop.

Knows no resources. A stop goes in this order:

1. The server is unready at once, and everything is served for a while. Connections that are open end with their next answer.
2. Every watch ends with its last chunk, while new ones get 429.
3. Requests finish, and only then the port is closed.

If a successor has the listening socket too, it gets all new connections before the first watch ends here. A watch that comes back on a
connection that is still open here is left to the successor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from apiserver import apigroups, metrics
from apiserver import app as composition
from apiserver.apiextensions.following import Definitions
from apiserver.apimachinery.releases import Release
from apiserver.app import App
from apiserver.audit import opening
from apiserver.audit.record import Auditor
from apiserver.cluster.front import Front
from apiserver.codecs.json import json_syntax
from apiserver.config import config, logs
from apiserver.config.following import Following
from apiserver.delegation import Delegates
from apiserver.generations import Generation, Generations
from apiserver.kinds.served import Kinds
from apiserver.listcache.encoding import EncodingCache
from apiserver.runtime import allocator, tasks
from apiserver.runtime.fairqueue import FairQueue
from apiserver.schema.resource import Resource
from apiserver.serving.connections import Connections, check_parser, remember_no_targets
from apiserver.serving.dynamiccertificates import Certificates
from apiserver.serving.listener import Listener, is_handed_over, listening_socket
from apiserver.serving.steps import METER
from apiserver.serving.x509 import chains
from apiserver.serving.x509.chains import BadCertificates
from apiserver.storage.store import StoreOptions, Stores
from apiserver.tracing.opening import close_tracer, open_tracer

logger = logging.getLogger(__name__)

CERTIFICATE_POLL_SECONDS = 10.0
HAND_OVER_SECONDS = 10.0
"""How long clients of a shared socket wait before this process accepts them although it is not ready: nobody else accepts them."""
LAST_HANDSHAKES_SECONDS = 2.0
"""How long a stop waits for handshakes that have begun."""
AUDIT_SECONDS = 10.0
"""How long a stop waits until audit events are delivered."""
TRACES_SECONDS = 2.0
"""How long a stop waits until spans are exported, and then loses them."""
FRONT_SECONDS = 3.0
"""How long the port stays closed while kube-apiserver does not say its release. Then the newest one is composed, and replaced later."""
SILENCE_SECONDS = 5.0
"""How long a stop waits for all connections to become unused."""


class Stop:
    """The stop signals: the first begins the stop, the second hurries it."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.hurry = asyncio.Event()

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.signal)

    def signal(self) -> None:
        (self.hurry if self.wanted.is_set() else self.wanted).set()

    async def or_done(self, work: Awaitable[None]) -> None:
        """Do the work until it is done or the first signal comes. Raises its errors."""
        task, wanted = asyncio.ensure_future(work), asyncio.ensure_future(self.wanted.wait())
        try:
            await asyncio.wait((task, wanted), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
        finally:
            for pending in (task, wanted):
                pending.cancel()
            await asyncio.gather(task, wanted, return_exceptions=True)

    async def patiently(self, waiting: Awaitable[object], *, seconds: float) -> None:
        """Wait at most `seconds`, and not past the second signal."""
        task, hurry = asyncio.ensure_future(waiting), asyncio.ensure_future(self.hurry.wait())
        try:
            await asyncio.wait((task, hurry), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pending in (task, hurry):
                pending.cancel()
            outcome, _ = await asyncio.gather(task, hurry, return_exceptions=True)
            if isinstance(outcome, Exception):
                logger.error("a step of the stop failed", exc_info=outcome)


class Server:
    """One listening process: opened, then stopped once. `shared`: other processes have the listening socket too."""

    def __init__(
        self, generations: Generations, certificates: Certificates, sock: socket.socket, *, shared: bool
    ) -> None:
        self._generations = generations
        self._certificates = certificates
        self._shared = shared
        self._connections = Connections(generations.handle, read_peer=chains.peer)
        self._listener = Listener(
            sock,
            protocol=self._connections,
            context=lambda: certificates.context,
            fair_queue=FairQueue(urgent=generations.filling),
        )
        self._watching_files = asyncio.get_running_loop().create_task(
            tasks.supervised(self._renew, name="certificates")
        )

    @property
    def address(self) -> tuple[str, int]:
        """The listening address."""
        return self._listener.address

    async def left_alone(self, seconds: float) -> None:
        """Wait until connections to the port have been waiting for so long."""
        await self._listener.unaccepted(seconds)

    def open(self) -> None:
        METER.serving = True
        loop = asyncio.get_running_loop()
        metrics.LOOP_TASKS.only.set_function(lambda: len(asyncio.all_tasks(loop)))
        self._listener.open()

    async def _renew(self) -> None:
        """Read changed certificates again. Open connections keep their handshake, not their rights."""
        while True:
            await asyncio.sleep(CERTIFICATE_POLL_SECONDS)
            try:
                if self._certificates.refresh():
                    logger.info("certificates read again")
            except BadCertificates as e:
                logger.error("changed certificates are not used", extra={"error": str(e)})

    async def stop(self, stop: Stop, shutdown: config.Shutdown, *, request_seconds: float) -> None:
        """Do everything between the first signal and the last connection."""
        served = self._generations
        logger.info("stopping", extra={"delay_seconds": shutdown.delay_seconds})
        served.stopping()
        self._connections.leave()
        await stop.patiently(asyncio.Event().wait(), seconds=shutdown.delay_seconds)
        if self._shared:
            self._listener.close()
        served.drain(handed_over=self._shared)
        await stop.patiently(served.end_watches(shutdown.watch_seconds), seconds=shutdown.watch_seconds + 1)
        await stop.patiently(served.finish(), seconds=request_seconds)
        self._listener.close()
        requests, watches = served.unfinished
        logger.info("the port is closed", extra={"requests": requests, "watches": watches})
        await stop.patiently(self._listener.handshakes_done(), seconds=LAST_HANDSHAKES_SECONDS)
        await self._listener.abort()
        await stop.patiently(self._connections.silence(), seconds=SILENCE_SECONDS)
        await stop.patiently(served.finish(), seconds=request_seconds)
        await self._connections.shutdown(0.1)
        self._watching_files.cancel()


Ready = Callable[[int, Stores], Awaitable[None]]
Prepare = Callable[[Kinds], Awaitable[None]]


async def serve(
    settings: config.Config,
    kinds: Kinds,
    options: StoreOptions,
    certificates: Certificates,
    *,
    definitions: Definitions,
    delegates: Delegates,
    stop: Stop,
    ready: Ready,
    environ: Mapping[str, str],
    prepare: Prepare | None = None,
    sock: socket.socket | None = None,
) -> None:
    """Serve until a stop signal. `ready` is called with the port once everything is served.

    `prepare` is called before stores are opened, and creates those that are missing. Without it, the stores of definitions are created in
    a store that holds other kinds.

    The port opens before memory is full, so that health checks can name what is missing, and watches wait instead of being refused.
    Only a port that a predecessor may still be serving is left to it for a while. `sock` is the result of an earlier `listen`, if any.
    """
    check_parser()
    remember_no_targets()
    allocator.give_back()
    json_syntax.expect_bodies(settings.storage.body_bytes)
    raise_descriptor_limit()
    shared = is_handed_over(environ, pid=os.getpid())
    sock = sock or listen(settings, environ)
    auditor = opening.open_auditor(settings.audit, environ)
    tracer = await asyncio.to_thread(open_tracer, settings.serving.tracing_file)
    front, start = delegates.front, Start()
    informed = replace(delegates, missing=lambda: delegates.missing() or start.missing(front))

    encodings = EncodingCache(settings.limits.encoding_bytes)

    def compose(fit: config.Config, kinds: Kinds, stores: Stores) -> App:
        return composition.build(
            fit,
            kinds,
            stores=stores,
            trust=lambda: certificates.trust,
            delegates=informed,
            auditor=auditor,
            tracer=tracer,
            definitions=definitions if settings.serving.crds else None,
            encodings=encodings,
        )

    openings = Openings(settings, options, compose, prepare)
    followed = Followed(front, definitions)
    if front is not None:
        await stop.patiently(front.ready.wait(), seconds=FRONT_SECONDS)
    first = await openings.opened(followed.aim(kinds.release))
    if auditor is not None:
        auditor.start()
    limits = settings.limits
    try:
        generations = start.generations = Generations(
            first, watch_seconds=settings.shutdown.watch_seconds, request_seconds=limits.request_seconds
        )
        server = Server(generations, certificates, sock, shared=shared)
        complete = asyncio.ensure_future(_complete(start, generations, delegates))
        followers: dict[str, Callable[[], Awaitable[None]]] = {
            "definitions": definitions.run,
            "generations": partial(_follow, followed, generations, openings),
            **_followed_file(settings, auditor),
        }
        beside = [
            complete,
            *(asyncio.ensure_future(tasks.supervised(run, name=name)) for name, run in followers.items()),
        ]
        try:
            await stop.or_done(_announce(server, complete, shared=shared))
            if not stop.wanted.is_set():
                await stop.or_done(ready(server.address[1], generations.present.stores))
            await stop.wanted.wait()
        except BaseException:
            stop.hurry.set()  # a server that never worked must not delay its end
            raise
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await generations.end_tasks()
            await server.stop(stop, settings.live.shutdown, request_seconds=limits.request_seconds)
            await generations.close()
    finally:
        await first.close()
        if auditor is not None:
            await stop.patiently(auditor.stop(), seconds=AUDIT_SECONDS)
        if tracer is not None:
            await stop.patiently(close_tracer(tracer), seconds=TRACES_SECONDS)


class Start:
    """Whether the release of the kube-apiserver in front has been served yet: the server is unready before."""

    def __init__(self) -> None:
        self.generations: Generations | None = None
        self.complete = False

    def missing(self, front: Front | None) -> str | None:
        if self.complete or self.generations is None or front is None:
            return None
        served, wanted = self.generations.present.kinds.release, front.release
        return None if wanted in (None, served) else f"kube-apiserver is {wanted}, and {served} is served still"


class Aim(NamedTuple):
    """The server that is wanted: a release of Kubernetes, with the kinds of the operator's definitions."""

    release: Release
    custom: Sequence[Resource]


class Followed:
    """Decides what the server should be: `front` the release, `definitions` the kinds of definitions. Without `front` the release stays."""

    def __init__(self, front: Front | None, definitions: Definitions) -> None:
        self._front = front
        self._definitions = definitions

    def aim(self, release: Release) -> Aim:
        """Return what the server should be now. `release` is the one if none is known."""
        known = self._front.release if self._front is not None else None
        return Aim(known or release, self._definitions.kinds)

    async def other_than(self, aim: Aim) -> Aim:
        """Wait until the server should be something else. Return what."""
        changes: list[asyncio.Future[object]] = [asyncio.ensure_future(self._definitions.other_than(aim.custom))]
        if self._front is not None:
            changes.append(asyncio.ensure_future(self._front.other_than(aim.release)))
        try:
            await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for change in changes:
                change.cancel()
            await asyncio.gather(*changes, return_exceptions=True)
        return self.aim(aim.release)


@dataclass(frozen=True, slots=True)
class Openings:
    """Opens generations. `compose` composes the server of a configuration, with its kinds and stores; `prepare` is that of `serve`."""

    settings: config.Config
    options: StoreOptions
    compose: Callable[[config.Config, Kinds, Stores], App]
    prepare: Prepare | None

    async def opened(self, aim: Aim) -> Generation:
        """Open a generation with stores of its own."""
        fit, kinds = await self._chosen(aim)
        creatable = aim.custom if self.prepare is None else ()
        stores = await apigroups.open_stores(self.options, kinds, fit.serving, alone=fit.alone, creatable=creatable)
        return Generation(kinds, stores, partial(self.compose, fit), custom=aim.custom)

    async def replace(self, generations: Generations, aim: Aim) -> None:
        """Open a generation, and let it take over. Within a release it shares the stores of the present one."""
        present = generations.present
        if aim.release != present.kinds.release:
            await generations.replace(await self.opened(aim))
            return
        fit, kinds = await self._chosen(aim)
        new = Generation(kinds, present.stores, partial(self.compose, fit), custom=aim.custom)
        join = partial(apigroups.add_stores, present.stores, kinds, creates=self.prepare is None)
        await generations.replace(new, join=join)

    async def _chosen(self, aim: Aim) -> tuple[config.Config, Kinds]:
        fit, kinds = await asyncio.to_thread(apigroups.released, self.settings, aim.release, aim.custom)
        if self.prepare is not None:
            await self.prepare(kinds)
        return fit, kinds


def _followed_file(settings: config.Config, auditor: Auditor | None) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return what follows the configuration file, by the name of its task; nothing without a file."""
    if not settings.source.file:
        return {}

    def audit(old: config.Live, new: config.Live) -> Callable[[], None]:
        return opening.changed(auditor, old.audit, new.audit)

    def log(old: config.Live, new: config.Live) -> Callable[[], None]:
        return partial(logs.change, old.logging, new.logging)

    return {"configuration": Following(Path(settings.source.file), settings.live, prepared=(audit, log)).run}


async def _follow(followed: Followed, generations: Generations, openings: Openings) -> None:
    """Be what the server should be, whenever that changes."""
    while True:
        present = generations.present
        aim = await followed.other_than(Aim(present.kinds.release, present.custom))
        logger.info("another generation is wanted", extra={"release": str(aim.release)})
        replacing = asyncio.ensure_future(openings.replace(generations, aim))
        changing = asyncio.ensure_future(followed.other_than(aim))
        try:
            await asyncio.wait((replacing, changing), return_when=asyncio.FIRST_COMPLETED)
            if replacing.done():
                await replacing
        finally:
            for task in (replacing, changing):
                task.cancel()
            await asyncio.gather(replacing, changing, return_exceptions=True)


def listen(settings: config.Config, environ: Mapping[str, str]) -> socket.socket:
    """Open the socket to serve on. Raises OSError with a remedy if the port is in use."""
    address, port = settings.serving.bind_address, settings.serving.secure_port
    return listening_socket(address, port, environ=environ, pid=os.getpid())


async def _complete(start: Start, generations: Generations, delegates: Delegates) -> None:
    """Wait until everything that serving needs is known."""
    await delegates.ready()
    while start.missing(delegates.front) is not None:
        await generations.replaced()
    await generations.present.complete()
    start.complete = True


async def _announce(server: Server, complete: asyncio.Future[None], *, shared: bool) -> None:
    """Open the port: a shared one when all is complete, or when nobody else accepts its connections. Return when all is complete."""
    if shared:
        alone = asyncio.ensure_future(server.left_alone(HAND_OVER_SECONDS))
        try:
            await asyncio.wait((complete, alone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            alone.cancel()
    if complete.done():
        await complete
    server.open()
    address, port = server.address
    logger.info("listening", extra={"address": address, "port": port})
    await complete
    logger.info("ready")


def raise_descriptor_limit() -> None:
    """Raise the limit of descriptors: each watch has a connection of its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
