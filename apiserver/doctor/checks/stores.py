"""The store, by the code of `sluice store check`. Its address comes from --redis-url or from the Deployment's Secret."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from apiserver.config import store_address
from apiserver.doctor.findings import Answers, Check, Finding, State, found, good
from apiserver.doctor.installation import Installation
from apiserver.storage import patience
from apiserver.storage.operations import administration
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Rejected, pack
from apiserver.storage.primaries.parts import parts
from apiserver.watchcache.errors import StorageError

_URL_VARIABLE = "SLUICE_REDIS_URL"
_ADMIN_KEY = "admin-redis-url"
"""The key of the administrator's URL in the Secret of the serving user's (certs/make.sh)."""
_WARNING = "warning: "
_NOT_ANSWERED = re.compile(r"^the store did not answer within \S+ s: ")
_SET = "valkey-cli CONFIG SET {} && valkey-cli CONFIG REWRITE   # or manifests/base/valkey-configmap.yaml"

# A word of each text of `storage/preflight.py` and its neighbours, with the code and the command. The first that matches counts;
# tests/unit/doctor/test_stores.py makes each text by that code.
TEXTS: tuple[tuple[str, str, str], ...] = (
    ("may not ask: ", "store-unknown", "sluice store check --redis-url=…   # as the user default"),
    ("this is a sentinel", "store-address", "sluice serve --redis-url=redis+sentinel://HOST:PORT,…/NAME"),
    ("node of a cluster", "store-address", "sluice serve --redis-url=redis+cluster://HOST:PORT,…"),
    ("is loading its data", "store-loading", "sluice store check --wait=5m --redis-url=…"),
    (
        ", not a primary",
        "store-replica",
        "sluice serve --redis-url=…   # the primary's; with sentinels redis+sentinel://",
    ),
    ("maxmemory-policy is", "store-eviction", _SET.format("maxmemory-policy noeviction")),
    ("append-only file is off", "store-volatile", _SET.format("appendonly yes")),
    ("is too old", "store-version", "docs/store-services.md"),
    (
        "function library is not loaded",
        "store-library-missing",
        "sluice store init --redis-url=…   # as the user default",
    ),
    ("the function library is", "store-library-differs", "sluice store init --redis-url=…   # as the user default"),
    (
        "is not there",
        "store-resource-missing",
        "sluice store init --redis-url=…   # only if it never was; else docs/backup.md",
    ),
    ("has schema", "store-schema", "docs/storage.md"),
    ("clock is", "store-clock", "timedatectl set-ntp true   # on the machine whose clock is wrong"),
    ("of maxmemory is free", "store-memory", _SET.format("maxmemory 2gb")),
    ("no-appendfsync-on-rewrite is on", "store-fsync", _SET.format("no-appendfsync-on-rewrite no")),
    ("appendfsync is", "store-fsync", _SET.format("appendfsync always")),
    ("replicas in step", "store-replicas", "valkey-cli INFO replication   # docs/store-ha.md"),
    ("cluster-require-full-coverage", "store-coverage", _SET.format("cluster-require-full-coverage no")),
    (
        "may not do all that serving needs",
        "store-rights",
        "valkey-cli ACL SETUSER sluice …   # the line of certs/make.sh",
    ),
    ("changed the log of", "store-log", "valkey-cli ACL LIST   # nobody but Sluice may write to {sl:* keys"),
    ("the log of", "store-log", "sluice store info --redis-url=…"),
    ("sentinel", "store-sentinels", "valkey-cli -p 26379 SENTINEL MASTERS   # docs/store-ha.md"),
    ("invalid username-password", "store-password", "kubectl -n {ns} get secret sluice-store   # certs/README.md"),
    ("Authentication required", "store-password", "sluice doctor --redis-url=redis://USER:PASSWORD@…"),
    ("WRONGPASS", "store-password", "kubectl -n {ns} get secret sluice-store   # certs/README.md"),
    ("without any password", "store-password", "sluice doctor --redis-url=redis://…   # without a password"),
    ("certificate", "store-tls", "sluice doctor --redis-ca-file=FILE"),
    ("SSL", "store-tls", "sluice doctor --redis-url=rediss://… --redis-ca-file=FILE"),
    ("NOPERM", "store-rights", "valkey-cli ACL SETUSER sluice …   # the line of certs/make.sh"),
    ("permissions", "store-rights", "valkey-cli ACL SETUSER sluice …   # the line of certs/make.sh"),
    (
        "no connection to the store",
        "store-unreachable",
        "kubectl -n {ns} get pods -l app.kubernetes.io/component=store",
    ),
    ("DNS", "store-unreachable", "kubectl -n {ns} get pods,pvc -l app.kubernetes.io/component=store"),
)


async def store(installation: Installation) -> Answers:
    options, named = await _options(installation)
    if options is None:
        text = f"no flag and no Secret names the store ({named})" if named else "no flag names the store"
        yield Finding(State.SKIP, "not-asked", text, "sluice doctor --redis-url=redis://USER:PASSWORD@HOST:PORT")
        return
    namespace = installation.names.namespace
    try:
        await patience.wait(options, seconds=0, tell=lambda _: None)
        seconds = await _ping(options)
        lines = await administration.check(options, installation.resources)
    except (StorageError, OSError) as error:
        said = _NOT_ANSWERED.sub("", str(error))
        finding = classified(said, namespace)
        if finding.code == "store-unreachable" and named and not installation.pod:
            text = f"the store of {named} is not reached from here: {said}"
            remedy = f"kubectl -n {namespace} port-forward service/sluice-valkey 6379 &   # then: sluice doctor --redis-url=…"
            yield Finding(State.SKIP, "not-reachable", text, remedy)
            return
        yield finding
        return
    for finding in _each(lines, namespace):
        yield finding
    if not lines:
        yield good(f"the store is fit, PING {seconds * 1000:.1f} ms")


def _each(lines: Iterable[str], namespace: str) -> Iterator[Finding]:
    for line in lines:
        text = line.removeprefix(_WARNING)
        yield classified(text, namespace, warning=text != line)


def classified(text: str, namespace: str, *, warning: bool = False) -> Finding:
    """Return the finding of a line of `store check`, or of an error on the way to the store."""
    for word, code, remedy in TEXTS:
        if word in text:
            finding = found(code, text, remedy.replace("{ns}", namespace))
            return replace(finding, state=State.WARN) if warning and finding.state is State.FAIL else finding
    code = "store-warning" if warning else "store-unfit"
    return found(code, text, "sluice store check --redis-url=…   # docs/store-services.md")


async def _options(installation: Installation) -> tuple[StoreOptions | None, str]:
    """Return the store's options, and the Secret that names it if no flag does."""
    if installation.store.url:
        return installation.store, ""
    if not installation.aggregated or installation.client is None:
        return None, ""
    deployment = await installation.deployment()
    pod = ((deployment or {}).get("spec") or {}).get("template", {}).get("spec", {})
    for container in pod.get("containers") or []:
        for variable in container.get("env") or []:
            if variable.get("name") != _URL_VARIABLE:
                continue
            if variable.get("value"):
                return _at(installation, variable["value"]), "the Deployment"
            reference = (variable.get("valueFrom") or {}).get("secretKeyRef") or {}
            name = reference.get("name", "")
            path = f"/api/v1/namespaces/{installation.names.namespace}/secrets/{name}"
            data = ((await installation.get(path)) or {}).get("data") or {}
            text = data.get(_ADMIN_KEY) or data.get(reference.get("key", ""))
            return (_at(installation, base64.b64decode(text).decode().strip()) if text else None), f"Secret {name}"
    return None, "the Deployment"


def _at(installation: Installation, url: str) -> StoreOptions | None:
    try:
        store_address.parse(url)
    except ValueError:
        return None
    return replace(installation.store, url=url)


async def _ping(options: StoreOptions) -> float:
    """Return the seconds of a PING, the slowest of all primaries."""
    slowest = 0.0
    for part in await parts(options, ()):
        connection = await Connection.open(part.options, "sluice-doctor")
        try:
            started = time.monotonic()
            await connection.call(pack("PING"))
            slowest = max(slowest, time.monotonic() - started)
        finally:
            await connection.close()
    return slowest


def shown(url: str) -> str:
    """Return a store's URL without user and password."""
    parsed = urlsplit(url)
    return parsed._replace(netloc=parsed.netloc.rpartition("@")[2], query="").geturl()


__all__ = ["CHECKS", "Rejected", "classified", "shown", "store"]

CHECKS = (Check("store", "whether the store is reachable, fit and durable", store, cluster=False, aggregated=False),)
