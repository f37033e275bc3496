"""The administrator's three commands: `sluice store init`, `check` and `info`."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping

from apiserver.storage import durability, functions, sentinel
from apiserver.storage.bootstrap import Broken, follow_chain
from apiserver.storage.errors import Unavailable
from apiserver.storage.functions import Commands, Head, Lost
from apiserver.storage.operations import rights
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Failed, Rejected, pack
from apiserver.storage.preflight import (
    DURABILITY,
    INFO,
    LIBRARY_LIST,
    LOADING,
    Server,
    clock_refusals,
    durability_warnings,
    library_refusals,
    survey,
)
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Revision


class InitRefused(Unavailable):
    """A resource has some of its keys and lacks others. An administrator must decide: restore, or delete by hand."""


async def init(options: StoreOptions, resources: Iterable[str]) -> list[str]:
    """Load the function library and create missing resources; keep existing ones. Return one line per step.

    The user needs the right to FUNCTION LOAD. Raises InitRefused, Rejected.
    """
    done, halves = [], []
    options = await sentinel.located(options)
    connection = await Connection.open(options, "sluice-init")
    try:
        server = Server.parse(await connection.call(INFO))
        if server.loading:
            raise Rejected(LOADING)
        if server.role != "master":
            raise Rejected(f"the store is a {server.role}, not a primary")
        if library_refusals(await connection.call(LIBRARY_LIST)):
            await connection.call(pack("FUNCTION", "LOAD", "REPLACE", functions.CODE))
            done.append(f"function library {functions.LIBRARY} {functions.code_hash(functions.CODE)}: loaded")
        commands = {resource: Commands(resource) for resource in resources}
        present = await survey(connection, options, commands)
        schema = functions.schema_beside(present.heads.values())
        for resource, command in commands.items():
            reply = await connection.call(command.init(server.run_id, secrets.token_hex(8), schema))
            if reply[0] == b"HALF":
                halves.append(f"{resource} is half there: of its keys only {', '.join(k.decode() for k in reply[1:])}")
            else:
                done.append(f"{resource}: {'created' if reply[0] == b'OK' else 'already there'}")
        warnings = server.refusals(options) + server.warnings() + await _durability(connection, options)
        done += [f"warning: {text}" for text in warnings]
    finally:
        await connection.close()
    if halves:
        raise InitRefused("; ".join(halves))
    return done


async def check(options: StoreOptions, resources: Iterable[str]) -> list[str]:
    """Return every reason why `sluice serve` would refuse this store, and every warning. Raises Rejected.

    Reads all logs from their floors to their ends.
    """
    commands = {resource: Commands(resource) for resource in resources}
    dissent = await sentinel.warnings(options)
    options = await sentinel.located(options)
    connection = await Connection.open(options, "sluice-check")
    try:
        found = await survey(connection, options, commands)
        warnings = dissent + found.server.warnings() + await _durability(connection, options)
        warnings += [await _rights(connection), _replicas(found.server, options)]
        warnings.append(_rounded(found.heads))
        if not found.refusals:
            warnings += [
                await _broken(connection, resource, commands[resource], head) for resource, head in found.heads.items()
            ]
    finally:
        await connection.close()
    return [
        *found.refusals,
        *clock_refusals(found.offset),
        *found.missing.values(),
        *(f"warning: {text}" for text in warnings if text),
    ]


async def _durability(connection: Connection, options: StoreOptions) -> list[str]:
    """Return warnings about durability; an empty list if this user may not read the configuration."""
    if options.allow_volatile:
        return []
    try:
        return durability_warnings(await connection.call(DURABILITY))
    except (Rejected, Failed):
        return []


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


async def _rights(connection: Connection) -> str:
    """Name the commands that the serving user lacks. Empty if that user does not exist or this user may not ask."""
    user, lacking = rights.SERVING_USER, []
    try:
        if await connection.call(pack("ACL", "GETUSER", user)) is None:
            return ""
        for name, arguments in rights.SERVING_EXAMPLES.items():
            if await connection.call(pack("ACL", "DRYRUN", user, *name.split("|"), *arguments.split())) != b"OK":
                lacking.append(name)
    except (Rejected, Failed):
        return ""
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
    """Describe each resource in one line. Raises Rejected."""
    commands = {resource: Commands(resource) for resource in resources}
    options = await sentinel.located(options)
    connection = await Connection.open(options, "sluice-info")
    try:
        found = await survey(connection, options, commands)
    finally:
        await connection.close()
    if found.server.loading:
        raise Rejected(LOADING)
    lines = [f"{found.server.name} {'.'.join(map(str, found.server.version))}, {found.server.role}"]
    need = durability.needed(options)()
    lines[0] += f", durability {durability.of(options)}, {found.server.in_step} replicas in step ({need} needed)"
    for resource in commands:
        head = found.heads.get(resource)
        lines.append(_described(resource, head) if head else f"{resource}: not there")
    return lines


def _described(resource: str, head: Head) -> str:
    return (
        f"{resource}: schema {head.schema}, epoch {head.epoch}, last {_id(head.last)}, floor {_id(head.floor)}, "
        f"{head.objects} objects, {head.size} bytes"
    )


def _id(revision: Revision) -> str:
    return f"{keys.stream_id(revision)} (resourceVersion {revision})"
