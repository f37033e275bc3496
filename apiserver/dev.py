"""`sluice dev`: serve one machine from one folder, with an embedded store, throw-away certificates, a kubeconfig and samples.

<data-dir>/store/        the embedded Valkey: log, password, locks
<data-dir>/certs/        CA, serving pair, client pair
<data-dir>/kubeconfig
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime as dt
import http.client
import json
import logging
import os
import socket
import ssl
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from apiserver import apigroups, delegation, server
from apiserver.admission.core.files import Files
from apiserver.apiextensions.following import Definitions
from apiserver.apimachinery import meta
from apiserver.apimachinery.request import MASTERS
from apiserver.config.config import Config, ConfigError
from apiserver.kinds.served import Kinds
from apiserver.runtime import folders, tasks, workers
from apiserver.schema.resource import Resource
from apiserver.serving import dynamiccertificates, listener, pki
from apiserver.storage.operations import administration
from apiserver.storage.operations.embedded import Embedded, EmbeddedError, InUse, keep_private
from apiserver.storage.store import StoreOptions, Stores

logger = logging.getLogger(__name__)

USER = "kubernetes-admin"
NAME = "sluice-dev"
SAMPLE_SECONDS = 10.0
DISK_SECONDS = 20.0
"""How long the store's disk may stall before a request fails. No other store could answer, and a store that dies is noticed at once."""
_FOLDERS = ("store", "certs")
_OURS = (*_FOLDERS, "kubeconfig")
"""The parts of the data folder that `dev` trusts when it reads them."""
_SAMPLES = workers.Workers("samples", threads=1, waiting=0)


async def run(config: Config, kinds: Kinds, definitions: Definitions, environ: Mapping[str, str]) -> None:
    """Serve until a stop signal; the store stops last. Raises EmbeddedError, BadCertificates, ConfigError.

    The data folder and the port are taken before anything is created or started.
    """
    stop = server.Stop()
    stop.install()
    admission = _admission(config)
    folder = config.dev.data_dir
    _keep_private(folder)
    store = Embedded(folder / "store")
    _claim(store, config)
    try:
        with _listen(config, environ) as sock:
            store.claim(f"process {os.getpid()}, https://{_host(config)}:{sock.getsockname()[1]}")
            await _serve(config, kinds, definitions, environ, store=store, sock=sock, admission=admission, stop=stop)
    except OSError as error:
        raise OSError(_explained(error, config)) from None
    finally:
        await store.stop()


async def _serve(
    config: Config,
    kinds: Kinds,
    definitions: Definitions,
    environ: Mapping[str, str],
    *,
    store: Embedded,
    sock: socket.socket,
    admission: Files,
    stop: server.Stop,
) -> None:
    now = dt.datetime.now(dt.UTC)
    kit = pki.kit(config.dev.data_dir / "certs", hosts=_hosts(config), user=USER, groups=[MASTERS], now=now)
    options = dataclasses.replace(
        _patient(await store.start()), fault=store.fault, object_limit=config.storage.object_bytes
    )

    async def ready(port: int, stores: Stores) -> None:
        _write_kubeconfig(config, kit, port)
        if config.dev.samples and config.serving.builtin and _is_empty(kinds, stores):
            await _SAMPLES.run(_create_samples, config, kinds, kit, port)
        _announce(config)

    callers = delegation.callers(config)
    following = asyncio.create_task(tasks.supervised(admission.run, name="admission-files"))
    try:
        await server.serve(
            config,
            kinds,
            options,
            dynamiccertificates.Certificates(kit.files),
            definitions=definitions,
            prepare=partial(_initialise, store),
            delegates=delegation.alone(config, admission.sources, callers),
            stop=stop,
            ready=ready,
            environ=environ,
            sock=sock,
        )
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await callers.close()


def _claim(store: Embedded, config: Config) -> None:
    """Take the data folder for this process. Raises InUse, which names the holder and the next step."""
    try:
        store.claim(f"process {os.getpid()}")
    except InUse as error:
        kubeconfig = config.dev.kubeconfig
        raise EmbeddedError(
            f"Sluice is running already on {config.dev.data_dir.resolve()} ({error.holder or 'process unknown'}): "
            f"use it with `export KUBECONFIG={folders.quoted(kubeconfig.resolve())}`, "
            "or start another one with --data-dir DIR --secure-port 0"
        ) from None


def _listen(config: Config, environ: Mapping[str, str]) -> socket.socket:
    try:
        return server.listen(config, environ)
    except listener.PortInUse as error:
        raise OSError(f'{error}. `make run ARGS="--secure-port 0"` takes any free port') from None


def _explained(error: OSError, config: Config) -> str:
    """Name the folder whose disk is full: the error of a write does not."""
    if error.errno not in folders.FULL:
        return str(error)
    places = (config.dev.data_dir, config.dev.kubeconfig.parent)
    return next(filter(None, map(folders.why_full, places)), str(error))


def _admission(config: Config) -> Files:
    """Load the files that configure admission. Raises ConfigError with all their errors."""
    release = apigroups.release_of(config.serving)
    files = Files(config.dev.admission, now=lambda: meta.rfc3339(time.time()), release=release)
    if wrong := files.load():
        raise ConfigError([f"--admission: {error}" for error in wrong])
    return files


def errors(config: Config) -> Iterator[str]:
    """Yield the errors of the files that configure admission, and of the folders that must be writable."""
    try:
        _admission(config)
    except ConfigError as error:
        yield from error.errors
    yield from delegation.control_errors(config)
    folder, kubeconfig = config.dev.data_dir, config.dev.kubeconfig
    if why := folders.distrust(folder, _OURS):
        yield f"--data-dir: {why}"
    elif why := _why_not_written(folder):
        yield f"--data-dir: {folder} cannot be used: {why}"
    if kubeconfig.is_dir():
        yield f"--kubeconfig: {kubeconfig} is a folder: name a file"
    elif kubeconfig.parent != folder and (why := _why_not_written(kubeconfig.parent)):
        yield f"--kubeconfig: {kubeconfig} cannot be written: {why}"


def _why_not_written(folder: Path) -> str:
    """Return why no file can be created in a folder, "" if one can. A missing folder is tried out and removed again."""
    missing = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return folders.why_full(folder)
    except FileExistsError:
        return "it is a file: name a folder"
    except OSError as error:
        return f"{error.strerror or error}: name another folder, or let this user write there"
    finally:
        with contextlib.suppress(OSError):
            for made in missing:
                made.rmdir()


async def _initialise(store: Embedded, kinds: Kinds) -> None:
    """Load this version's functions, and create each kind that this folder never had. A kind that existed and is missing has lost its
    objects, so it is not created again.
    """
    missing = [kind.storage_name for kind in kinds.stored if kind.storage_name not in store.initialised]
    for line in await administration.init(_patient(store.admin_url), missing):
        logger.debug("store", extra={"init": line})
    store.mark_initialised(missing)


def _patient(url: str) -> StoreOptions:
    return StoreOptions(
        url=url,
        connect_seconds=DISK_SECONDS,
        barrier_seconds=DISK_SECONDS,
        deadline_seconds=DISK_SECONDS,
        reply_seconds=DISK_SECONDS,
        outcome_seconds=1.5 * DISK_SECONDS,
    )


def _keep_private(folder: Path) -> None:
    """Make the folder and Sluice's parts of it private to its user. A folder that all users share (/tmp) stays as it is."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not folder.stat().st_mode & stat.S_ISVTX:
            folder.chmod(0o700)
        for name in _FOLDERS:
            (folder / name).mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError([f"--data-dir: {folder} cannot be used: {error.strerror}"]) from None
    # In a folder that all users share, another user may have been quicker than `mkdir`.
    if why := folders.distrust(folder, _OURS):
        raise ConfigError([f"--data-dir: {why}"])
    for name in _FOLDERS:
        keep_private(folder / name)


def _hosts(config: Config) -> list[str]:
    """Return every name under which this machine may call the server."""
    address = config.serving.bind_address
    bound = [] if address in ("0.0.0.0", "::") else [address]
    return ["localhost", "127.0.0.1", "::1", *bound, socket.gethostname()]


# ---------------------------------------------------------------------------------------------------------------- kubeconfig


def _write_kubeconfig(config: Config, kit: pki.Kit, port: int) -> None:
    path = config.dev.kubeconfig
    path.parent.mkdir(parents=True, exist_ok=True)
    document = kubeconfig(f"https://{_host(config)}:{port}", kit)
    pki.write_private(path, yaml.safe_dump(document, sort_keys=False).encode())


def _host(config: Config) -> str:
    address = config.serving.bind_address
    if address in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{address}]" if ":" in address else address


def kubeconfig(url: str, kit: pki.Kit) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": url, "certificate-authority-data": _base64(kit.ca_pem)}}],
        "users": [
            {
                "name": USER,
                "user": {
                    "client-certificate-data": _base64(kit.client.cert_pem),
                    "client-key-data": _base64(kit.client.key_pem),
                },
            }
        ],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": USER}}],
        "current-context": NAME,
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# ---------------------------------------------------------------------------------------------------------------- samples


def _is_empty(kinds: Kinds, stores: Stores) -> bool:
    """Return whether the store holds only namespaces, which exist from the start."""
    return not any(stores[kind.storage_name].view().count("") for kind in kinds.stored if kind.group)


def samples(group: str) -> Iterator[dict[str, Any]]:
    """Return the objects of samples.yaml, in the served group."""
    text = resources.files("apiserver").joinpath("samples.yaml").read_text()
    return iter(yaml.safe_load_all(text.replace("GROUP", group)))


def _create_samples(config: Config, kinds: Kinds, kit: pki.Kit, port: int) -> None:
    """Create the samples over HTTP like any client. Runs in a thread."""
    context = ssl.create_default_context(cadata=kit.ca_pem.decode())
    certs = config.dev.data_dir / "certs"
    context.load_cert_chain(certs / "client.crt", certs / "client.key")
    connection = http.client.HTTPSConnection(_host(config).strip("[]"), port, context=context, timeout=SAMPLE_SECONDS)
    try:
        for sample in samples(config.serving.group):
            path = collection(_kind_of(sample, kinds), sample["metadata"].get("namespace", ""))
            connection.request("POST", path, json.dumps(sample), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 201:
                logger.error(
                    "a sample was refused", extra={"path": path, "answer": body[:512].decode("utf-8", "replace")}
                )
    except OSError as e:
        logger.error("samples could not be created", extra={"error": str(e)})
    finally:
        connection.close()


def _kind_of(sample: Mapping[str, Any], kinds: Kinds) -> Resource:
    group, _, version = sample["apiVersion"].partition("/")
    found = kinds.named(group, version, sample["kind"])
    assert found is not None, sample["kind"]
    return found


def collection(resource: Resource, namespace: str) -> str:
    """Return the path of a kind's collection."""
    inside = f"/namespaces/{namespace}" if resource.namespaced else ""
    return f"/apis/{resource.api_version}{inside}/{resource.plural}"


# ---------------------------------------------------------------------------------------------------------------- the line


COMMANDS: Sequence[str] = (
    "kubectl get resourceslices -o wide",
    "kubectl get deviceclasses,resourceclaims",
    "kubectl explain resourceslice.spec.devices",
)


GROUP_OF_DRIVERS = "resource.k8s.io"
"""The group of the manifests that drivers ship."""


def _announce(config: Config) -> None:
    """Print the next steps to standard output, which gets nothing else; logs go to standard error."""
    print(f"ready: export KUBECONFIG={folders.quoted(config.dev.kubeconfig.resolve())}", flush=True)
    if not config.serving.builtin:
        print("try:   kubectl api-resources", flush=True)
        return
    print("try:   " + "\n       ".join(COMMANDS), flush=True)
    group = config.serving.group
    if group != GROUP_OF_DRIVERS:
        print(
            f"The group is {group}. Manifests of {GROUP_OF_DRIVERS}, as drivers ship them, apply unchanged after "
            f'`make run ARGS="--group {GROUP_OF_DRIVERS}"` (or `sluice dev --group {GROUP_OF_DRIVERS}`).',
            flush=True,
        )
