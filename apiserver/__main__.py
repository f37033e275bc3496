"""The command line: parse it, configure, run the command. Exit codes: 0 stopped, 1 failed, 2 misconfigured."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from apiserver import __version__, apigroups, delegation, dev, manifests, server
from apiserver.apiextensions import kinds as custom_kinds
from apiserver.apiextensions import loading as loading_definitions
from apiserver.apiextensions.following import Definitions
from apiserver.audit import opening
from apiserver.cluster import credentials
from apiserver.cluster.client import Client
from apiserver.cluster.errors import ClusterError
from apiserver.codecs.yaml import as_yaml
from apiserver.config import config, logs
from apiserver.config.config import Config, ConfigError
from apiserver.config.printed import printing, remedies
from apiserver.doctor import examination, report
from apiserver.doctor import installation as asked_installation
from apiserver.kinds import roles
from apiserver.kinds.served import Kinds
from apiserver.migration import sources
from apiserver.migration.exporting import Export
from apiserver.migration.importing import Import
from apiserver.migration.objects import MigrationError, Reader
from apiserver.runtime import allocator, garbage, workers
from apiserver.runtime.progress import Shown
from apiserver.schema.resource import Resource
from apiserver.serving import dynamiccertificates, listener
from apiserver.serving.steps import new_event_loop
from apiserver.serving.x509 import chains
from apiserver.storage import access, patience
from apiserver.storage.backup import files, snapshot
from apiserver.storage.backup.file_format import BadBackup, verify
from apiserver.storage.backup.restoring import Restore
from apiserver.storage.operations import administration, loading
from apiserver.storage.operations.embedded import EmbeddedError
from apiserver.storage.store import StoreOptions, Stores
from apiserver.top import scraping
from apiserver.tracing import opening as tracing
from apiserver.watchcache.errors import StorageError

FAILURES = (EmbeddedError, StorageError, ClusterError, MigrationError, BadBackup, chains.BadCertificates, OSError)
"""Errors that an operator can cure: printed in one line, without a trace."""


def main() -> int:
    """Run the console script."""
    return run(sys.argv[1:], os.environ)


def plugin() -> int:
    """Run the console script `kubectl-sluice`, which kubectl runs as `kubectl sluice`: the commands that ask a cluster."""
    asked = sys.argv[1:] or ["--help"]
    if asked[0] not in (config.DOCTOR, config.TOP, "--help", "-h", "--version"):
        print(
            f"kubectl sluice: {asked[0]!r} is not a command of the plugin: use doctor or top. `sluice` has all commands",
            file=sys.stderr,
        )
        return 2
    return run(asked, os.environ)


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command, and return its exit code."""
    if printing.answers(argv):
        return printing.run(argv, environ)
    try:
        settings, kinds, definitions = _understood(argv, environ)
    except ConfigError as e:
        return printing.misconfigured(e, argv)
    logs.configure(settings.logging)
    sys.unraisablehook = logs.unraisable
    workers.share_fairly()
    garbage.collect_elsewhere(allocator.trim, busy=workers.large_requests)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_command(settings, kinds, definitions, environ))
    except ConfigError as e:
        return printing.misconfigured(e, argv)
    except FAILURES as e:
        print(f"sluice: {remedies.of_failure(e)}", file=sys.stderr)
        return 1


def _understood(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[Config, Kinds, Definitions]:
    """Parse the command line. Raises ConfigError with all errors in flags, environment, and the files that they name."""
    reading = config.read(argv, environ, gates=apigroups.described_gates())
    settings = reading.config
    definitions = apigroups.definitions(settings)
    # `kinds check` looks at each definition by itself.
    refused = [] if settings.command == config.PACKAGES else definitions.load()
    judge = apigroups.judged_everywhere if settings.follows else apigroups.judged
    kinds, errors = judge(settings.serving, reading.wrong, alone=settings.alone, custom=definitions.kinds)
    errors = [*reading.errors, *errors, *(f"--{config.CRDS}: {text}" for text in refused), *_named(settings, environ)]
    if kinds is None or errors:
        raise ConfigError(errors)
    return settings, kinds, definitions


def _named(settings: Config, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield errors in existing files, folders and descriptors. Invalid flags are not in the settings."""
    match settings.command:
        case config.DEV:
            yield from listener.errors(environ, pid=os.getpid())
            yield from dev.errors(settings)
            yield from opening.errors(settings.audit, environ)
            yield from tracing.errors(settings.serving.tracing_file)
        case config.SERVE:
            yield from listener.errors(environ, pid=os.getpid())
            yield from dynamiccertificates.errors(settings.serving, settings.authentication)
            yield from delegation.errors(settings, environ)
            yield from opening.errors(settings.audit, environ)
            yield from tracing.errors(settings.serving.tracing_file)
            yield from access.errors(store_options(settings.storage))
        case config.STORE:
            moved = settings.migration
            yield from access.errors(store_options(settings.storage))
            yield from credentials.errors((moved.from_kubeconfig, moved.to_kubeconfig), environ)
        case config.TOP:
            yield from asked_installation.errors(_kubeconfig(settings), settings.diagnosis.context, environ)
            if importlib.util.find_spec("rich") is None:
                yield "top draws its page with the library rich: pip install 'sluice-apiserver[top]'"
        case config.DOCTOR:
            if settings.storage.redis_url:
                yield from access.errors(store_options(settings.storage))
            yield from asked_installation.errors(_kubeconfig(settings), settings.diagnosis.context, environ)


async def _command(settings: Config, kinds: Kinds, definitions: Definitions, environ: Mapping[str, str]) -> int:
    match settings.command, settings.action:
        case config.DEV, _:
            await dev.run(settings, kinds, definitions, environ)
        case config.SERVE, _:
            await _serve(settings, kinds, definitions, environ)
        case config.ROLES, _:
            print(_roles(kinds), end="")
        case config.MANIFESTS, _:
            print(await asyncio.to_thread(_manifests, settings, kinds, definitions), end="")
        case config.TOP, _:
            await _top(settings, kinds, definitions, environ)
        case config.DOCTOR, _:
            return await _doctor(settings, kinds, definitions, environ)
        case config.PACKAGES, _:
            for kind in apigroups.packaged(kinds):
                print(_described(kind))
            return await asyncio.to_thread(_check_definitions, settings)
        case _, "import" | "export" as action:
            return await _move(settings, kinds, environ, action)
        case _, "backup":
            await _back_up(settings)
        case _, "verify" | "restore" as action:
            await _read_backup(settings, action)
        case _, action:
            return await _store(settings, definitions, action)
    return 0


def store_options(storage: config.Storage) -> StoreOptions:
    return StoreOptions(
        url=storage.redis_url,
        durability=storage.durability,
        allow_volatile=storage.allow_volatile,
        password_file=_path(storage.password_file),
        sentinel_username=storage.sentinel_username or None,
        sentinel_password_file=_path(storage.sentinel_password_file),
        ca_file=_path(storage.ca_file),
        cert_file=_path(storage.cert_file),
        key_file=_path(storage.key_file),
        object_limit=storage.object_bytes,
    )


def _path(name: str) -> Path | None:
    return Path(name) if name else None


async def _serve(settings: Config, kinds: Kinds, definitions: Definitions, environ: Mapping[str, str]) -> None:
    stop = server.Stop()
    stop.install()

    async def ready(_port: int, _stores: Stores) -> None:
        return None

    async with delegation.opened(settings, environ) as delegates:
        certificates = dynamiccertificates.Certificates(
            dynamiccertificates.Files.of(settings.serving, settings.authentication), delegates.bundles
        )
        await server.serve(
            settings,
            kinds,
            store_options(settings.storage),
            certificates,
            definitions=definitions,
            delegates=delegates,
            stop=stop,
            ready=ready,
            environ=environ,
        )


def _installation(
    settings: Config, kinds: Kinds, definitions: Definitions, environ: Mapping[str, str]
) -> asked_installation.Installation:
    """Return the installation that doctor and top ask."""
    asked, serving = settings.diagnosis, settings.serving
    return asked_installation.Installation(
        access=asked_installation.Access.of(_kubeconfig(settings), asked.context, environ),
        names=asked_installation.Names(namespace=asked.namespace, service=asked.service, account=asked.account),
        registered=list(manifests.apiservices(kinds, serving)),
        store=store_options(settings.storage),
        resources=apigroups.storage_names(serving, custom=definitions.kinds),
        server=asked.server,
        emulated=str(serving.emulated or ""),
    )


async def _top(settings: Config, kinds: Kinds, definitions: Definitions, environ: Mapping[str, str]) -> None:
    """Show the page about a server until Ctrl-C."""
    from apiserver.top import page  # noqa: PLC0415 - it needs rich, which is optional

    asked, stop = settings.diagnosis, asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with _installation(settings, kinds, definitions, environ) as installation:
        await installation.detect(asked.seconds)
        client = await installation.itself()
        read = functools.partial(scraping.scrape, client)
        await page.followed(read, client.server, interval=asked.interval, once=asked.once, stop=stop)


async def _doctor(settings: Config, kinds: Kinds, definitions: Definitions, environ: Mapping[str, str]) -> int:
    """Examine an installation, and print the findings. Return the exit code."""
    asked = settings.diagnosis
    async with _installation(settings, kinds, definitions, environ) as installation:
        results = await examination.examine(installation, seconds=asked.seconds)
        about = installation.described()
    if settings.printed.output == "json":
        print(report.document(results, about).decode(), end="")
    else:
        print(report.page(results, about, shutil.get_terminal_size((120, 40)).columns), end="")
    return report.exit_code(results)


def _kubeconfig(settings: Config) -> str:
    """Return the kubeconfig that the flag names, empty without one."""
    return settings.live.exact["kubeconfig"]


def _described(kind: Resource) -> str:
    """Describe a served kind in one line."""
    parts = [kind.kind, "namespaced" if kind.namespaced else "cluster-scoped"]
    parts += [f"short names {', '.join(kind.short_names)}"] if kind.short_names else []
    parts += [f"subresources {', '.join(sub.name for sub in kind.subresources)}"] if kind.subresources else []
    parts += ["stored"] if kind.stored is kind else [f"stored as {kind.stored.version}"]
    return f"{kind.api_version} {kind.plural}: {', '.join(parts)}"


def _check_definitions(settings: Config) -> int:
    """Print what the named definitions would serve, with every error and every warning. Return the exit code."""
    paths, refused = settings.serving.crds, False
    kinds: list[Resource] = []
    found = loading_definitions.inspect(paths, apigroups.release_of(settings.serving))
    for each in found:
        made = custom_kinds.resources(each.definition) if each.definition is not None else ()
        kinds += made
        for kind in made:
            print(
                _described(kind)
                if kind.custom is not None and kind.custom.served
                else f"{kind.api_version} {kind.plural}: not served"
            )
        for text in each.warnings:
            print(f"warning: {each.about}: {text}", file=sys.stderr)
        for text in each.errors:
            print(f"sluice: {each.about}: {text}", file=sys.stderr)
            refused = True
    texts = apigroups.clashes(settings, kinds)
    if paths and not kinds and not refused:
        texts.append(f"no {loading_definitions.KIND} is in {', '.join(map(str, paths))}")
    for text in texts:
        print(f"sluice: {text}", file=sys.stderr)
    return 2 if refused or texts else 0


def _roles(kinds: Kinds) -> str:
    """Return the documents for `kubectl apply`."""
    return "# Written by `sluice roles`, from the declarations of the kinds.\n" + _joined(roles.cluster_roles(kinds))


def _manifests(settings: Config, kinds: Kinds, definitions: Definitions) -> str:
    """Return the documents for `kubectl apply --server-side`. Raises ConfigError."""
    asked = settings.manifests
    ca = Path(asked.ca_file).read_bytes() if asked.ca_file else b""
    found = definitions.definitions
    try:
        return _joined(manifests.written(kinds, found, settings.serving, ca=ca, deployment=asked.deployment))
    except manifests.Unfit as e:
        raise ConfigError([str(e)]) from None


def _joined(objects: Iterable[dict[str, Any]]) -> str:
    return "---\n".join(as_yaml.dumps(item).decode() for item in objects)


async def _store(settings: Config, definitions: Definitions, action: str) -> int:
    """Run a store command. `check` fails if anything would keep a server from starting, in any release that it may be."""
    command = {"init": administration.init, "check": administration.check, "info": administration.info}[action]
    options = store_options(settings.storage)
    if settings.storage.wait_seconds:
        await patience.wait(options, seconds=settings.storage.wait_seconds, tell=_say)
    lines = await command(
        options, apigroups.storage_names(settings.serving, alone=settings.alone, custom=definitions.kinds)
    )
    for line in lines:
        print(line)
    if action == "check":
        faults = [line for line in lines if not line.startswith("warning: ")]
        if not lines:
            print("nothing is wrong")
        return 1 if faults else 0
    return 0


async def _move(settings: Config, kinds: Kinds, environ: Mapping[str, str], action: str) -> int:
    """Import or export. Fails if any object was refused."""
    wanted, moved = settings.migration, _moved(settings, kinds)
    reader = Reader(kinds, apigroups.gates(settings.serving, kinds))
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            loading.opened(store_options(settings.storage), [kind.storage_name for kind in moved])
        )
        progress = await stack.enter_async_context(Shown(sys.stderr))

        async def server_of(kubeconfig: str) -> sources.Server:
            client = await Client.of_kubeconfig(kubeconfig, environ=environ)
            stack.push_async_callback(client.close)
            return await sources.Server.of(client, kinds, moved)

        if action == "export":
            target = await server_of(wanted.to_kubeconfig)
            export = Export(target, store, reader, moved, prune=wanted.prune, dry_run=wanted.dry_run, progress=progress)
            lines, complete = await export.run()
        else:
            files = wanted.from_file
            progress.begin("reading files" if files else "asking which versions are served")
            source = (
                await asyncio.to_thread(sources.Files, files, kinds, moved)
                if files
                else await server_of(wanted.from_kubeconfig)
            )
            lines, complete = await Import(source, store, reader, moved, progress).run(dry_run=wanted.dry_run)
    for line in lines:
        print(line)
    return 0 if complete else 1


async def _back_up(settings: Config) -> None:
    """Write a backup. Describe it on standard error if the backup itself goes to standard output."""
    wanted = settings.migration
    with files.destination(settings.file) as out:
        async with Shown(sys.stderr) as progress:
            options = store_options(settings.storage)
            lines = await snapshot.backup(options, out, sluice=__version__, only=wanted.only, progress=progress)
    for line in lines:
        print(line, file=sys.stderr if settings.file == files.PIPE else sys.stdout)


async def _read_backup(settings: Config, action: str) -> None:
    wanted = settings.migration
    with files.source(settings.file) as file:
        async with Shown(sys.stderr) as progress:
            if action == config.VERIFY:
                summary = await asyncio.to_thread(verify, file, progress)
                lines = [*summary.lines(), "the backup is whole"]
            else:
                restore = Restore(store_options(settings.storage), file, wanted.only, progress)
                lines = await restore.run(dry_run=wanted.dry_run)
    for line in lines:
        print(line)


def _moved(settings: Config, kinds: Kinds) -> list[Resource]:
    """Return the kinds that a command moves: with --crds those of the definitions, otherwise those of the group."""
    if settings.serving.crds:
        return [kind for kind in kinds.stored if kind.custom is not None]
    return [kind for kind in kinds.stored if kind.group == settings.serving.group]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
