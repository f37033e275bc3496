"""The administrator's three commands: `sluice store init`, `check` and `info`."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping

from apiserver.storage import durability, functions
from apiserver.storage.bootstrap import Broken, follow_chain
from apiserver.storage.errors import Unavailable
from apiserver.storage.functions import Commands, Head, Lost
from apiserver.storage.operations import rights
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Failed, Rejected, pack
from apiserver.storage.preflight import (
    COVERAGE,
    DURABILITY,
    INFO,
    LIBRARY_LIST,
    LOADING,
    Server,
    clock_refusals,
    coverage_warnings,
    durability_warnings,
    library_refusals,
    survey,
    unknown,
)
from apiserver.storage.primaries import sentinel
from apiserver.storage.primaries.parts import Part, parts
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Revision


class InitRefused(Unavailable):
    """A resource has some of its keys and lacks others. An administrator must decide: restore, or delete by hand."""


async def init(options: StoreOptions, resources: Iterable[str]) -> list[str]:
    """Load the function library and create missing resources; keep existing ones. Return one line per step.

    In a cluster, each primary gets the library, and each resource is created on the one that holds its slot. Nothing is created unless all
    primaries have the library. The user needs the right to FUNCTION LOAD. Raises InitRefused, Rejected.
    """
    done, halves = [], []
    async with contextlib.AsyncExitStack() as stack:
        opened, present = list[tuple[Part, Connection, Server]](), dict[str, Head]()
        for part in await parts(options, resources):
            with part.named():
                connection = await Connection.open(part.options, "sluice-init")
                stack.push_async_callback(connection.close)
                opened.append((part, connection, await _usable(connection, part.options)))
        for part, connection, _ in opened:
            with part.named():
                if library_refusals(await connection.call(LIBRARY_LIST)):
                    await connection.call(pack("FUNCTION", "LOAD", "REPLACE", functions.CODE))
                    loaded = f"function library {functions.LIBRARY} {functions.code_hash(functions.CODE)}: loaded"
                    done += part.told([loaded])
                present |= (await survey(connection, part.options, part.commands)).heads
        schema = functions.schema_beside(present.values())
        for part, connection, server in opened:
            with part.named():
                for resource, command in part.commands.items():
                    reply = await connection.call(command.init(server.run_id, secrets.token_hex(8), schema))
                    if reply[0] == b"HALF":
                        there = ", ".join(key.decode() for key in reply[1:])
                        halves.append(f"{resource} is half there: of its keys only {there}")
                    else:
                        done += part.told([f"{resource}: {'created' if reply[0] == b'OK' else 'already there'}"])
        for part, connection, server in opened:
            warnings = server.refusals(part.options) + server.warnings() + await _durability(connection, part.options)
            done += [f"warning: {text}" for text in part.told(warnings)]
    if halves:
        raise InitRefused("; ".join(halves))
    return done


async def _usable(connection: Connection, options: StoreOptions) -> Server:
    """Return the server that is to be initialised. Raises Rejected if it cannot be."""
    server = Server.parse(await connection.call(INFO))
    if misnamed := server.misnamed(options):
        raise Rejected(misnamed)
    if server.loading:
        raise Rejected(LOADING)
    if server.role != "master":
        raise Rejected(f"the store is a {server.role}, not a primary")
    return server


@contextlib.asynccontextmanager
async def _connected(part: Part, name: str) -> AsyncIterator[Connection]:
    with part.named():
        connection = await Connection.open(part.options, name)
        try:
            yield connection
        finally:
            await connection.close()


async def check(options: StoreOptions, resources: Iterable[str]) -> list[str]:
    """Return every reason why `sluice serve` would refuse this store, and every warning. Raises Rejected; for a node of a cluster that is
    one of the reasons.

    Reads all logs from their floors to their ends.
    """
    faults, warnings = [], await sentinel.warnings(options)
    for part in await parts(options, resources):
        try:
            wrong, told = await _checked(part)
        except Rejected as rejected:
            if not part.where:
                raise
            faults.append(str(rejected))
        else:
            faults += part.told(wrong)
            warnings += part.told(filter(None, told))
    return [*faults, *(f"warning: {text}" for text in warnings)]


async def _checked(part: Part) -> tuple[list[str], list[str]]:
    """Return the reasons to refuse a primary, and the warnings; some of these are empty."""
    async with _connected(part, "sluice-check") as connection:
        found = await survey(connection, part.options, part.commands)
        told = found.server.warnings() + await _durability(connection, part.options)
        told += [await _rights(connection, part.options), _replicas(found.server, part.options), _rounded(found.heads)]
        if not found.refusals:
            told += [
                await _broken(connection, resource, part.commands[resource], head)
                for resource, head in found.heads.items()
            ]
    return [*found.refusals, *clock_refusals(found.offset), *found.missing.values()], told


async def _durability(connection: Connection, options: StoreOptions) -> list[str]:
    """Return warnings about durability."""
    if options.allow_volatile:
        return []
    try:
        found = durability_warnings(await connection.call(DURABILITY))
        return found + (coverage_warnings(await connection.call(COVERAGE)) if options.cluster else [])
    except (Rejected, Failed):
        return durability_warnings([])


def _replicas(server: Server, options: StoreOptions) -> str:
    need = durability.needed(options)()
    if server.in_step >= need:
        return ""
    return f"replicas in step {server.in_step} of {need} (--store-durability={durability.of(options)}): writes and consistent reads get 503"


def _rounded(heads: Mapping[str, Head]) -> str:
    if all(head.last < keys.EXACT_DOUBLES for head in heads.values()):
        return ""
    return (
        "this store counts versions above 2^53, which clients in JavaScript round: they may drop updates. Export its objects and import "
        "them into a new store to change that"
    )


async def _rights(connection: Connection, options: StoreOptions) -> str:
    """Name the commands that the serving user lacks. Empty if that user does not exist."""
    user, lacking = rights.SERVING_USER, []
    try:
        if await connection.call(pack("ACL", "GETUSER", user)) is None:
            return ""
        for name, arguments in rights.examples(cluster=options.cluster).items():
            if await connection.call(pack("ACL", "DRYRUN", user, *name.split("|"), *arguments.split())) != b"OK":
                lacking.append(name)
    except (Rejected, Failed):
        return unknown([f"the rights of the user {user}"])
    return (
        f"the user {user} of the store may not do all that serving needs: it lacks {', '.join(lacking)}"
        if lacking
        else ""
    )


async def _broken(connection: Connection, resource: str, commands: Commands, head: Head) -> str:
    """Describe where the log of a resource is broken. Empty for an unbroken log."""
    try:
        await follow_chain(connection, commands, head)
    except Broken as broken:
        return (
            f"somebody else changed the log of {resource}: {broken}. The next server that fills its memory gives its history up; "
            "the objects stay"
        )
    except (Lost, Failed) as error:
        return f"the log of {resource} cannot be read: {error}"
    return ""


async def info(options: StoreOptions, resources: Iterable[str]) -> list[str]:
    """Describe each resource in one line, below the server that holds it. Raises Rejected."""
    lines: list[str] = []
    for part in await parts(options, resources):
        async with _connected(part, "sluice-info") as connection:
            found = await survey(connection, part.options, part.commands)
        if found.server.loading:
            raise Rejected(LOADING)
        version = ".".join(map(str, found.server.version))
        confirmed = f"durability {durability.of(part.options)}, {found.server.in_step} replicas in step"
        need = durability.needed(part.options)()
        lines += part.told([f"{found.server.name} {version}, {found.server.role}, {confirmed} ({need} needed)"])
        for resource in part.commands:
            head = found.heads.get(resource)
            lines += part.told([_described(resource, head) if head else f"{resource}: not there"])
    return lines


def _described(resource: str, head: Head) -> str:
    return (
        f"{resource}: schema {head.schema}, epoch {head.epoch}, last {_id(head.last)}, floor {_id(head.floor)}, "
        f"{head.objects} objects, {head.size} bytes"
    )


def _id(revision: Revision) -> str:
    return f"{keys.stream_id(revision)} (resourceVersion {revision})"
