"""Sessions find the primary and leave it, and depose the one that they left."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import hiredis
import pytest
import pytest_asyncio

from apiserver.config.store_address import Node
from apiserver.serving import pki
from apiserver.storage import functions, patience
from apiserver.storage.errors import Unavailable
from apiserver.storage.functions import Commands
from apiserver.storage.operations import administration, rights
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Rejected, pack
from apiserver.storage.primaries.sentinel import Line, Sentinels
from apiserver.storage.store import Store, Write
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.processes import free_port
from tests.fixtures.valkey import PASSWORD, Open, Server, eventually, follow, forget, install, patient, value

NAME = "main"
A, B = Node("127.0.0.1", 1), Node("127.0.0.1", 2)


class Played:
    """A sentinel that the test plays. `names` is the primary that it names; None: it does not know the name."""

    def __init__(self) -> None:
        self.names: Node | None = None
        self.replicas: list[Node] = []
        self.silent = False
        self.password = ""
        self.asked = 0
        self.port = 0
        self.context: ssl.SSLContext | None = None
        self._listener: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.context)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._listener is not None
        self._listener.close()
        for writer in self._writers:
            if not writer.is_closing():
                writer.transport.abort()
        await self._listener.wait_closed()
        for _ in range(3):
            await asyncio.sleep(0)  # the readers see the end

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        requests, allowed = hiredis.Reader(), not self.password
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                requests.feed(data)
                while (words := requests.gets()) is not False:
                    allowed = allowed or words == [b"AUTH", b"watcher", self.password.encode()]
                    if not self.silent:
                        writer.write(self._reply(words) if allowed else b"-NOAUTH Authentication required.\r\n")
        writer.close()

    def _reply(self, words: list[bytes]) -> bytes:
        match [word.upper() for word in words[:2]]:
            case [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME"]:
                self.asked += 1
                return b"*-1\r\n" if self.names is None else pack(self.names.host, self.names.port)
            case [b"SENTINEL", b"REPLICAS"]:
                parts = [pack("name", str(node), "ip", node.host, "port", node.port) for node in self.replicas]
                return b"*%d\r\n%b" % (len(parts), b"".join(parts))
            case [b"CLIENT", b"ID"]:
                return b":1\r\n"
            case [b"INFO", *_]:
                return pack("redis_version:8.0.0\r\nvalkey_version:9.1.2\r\nredis_mode:sentinel\r\n")[4:]
            case [b"FUNCTION", _]:
                return b"-ERR unknown command 'FUNCTION'\r\n"
        return b"+OK\r\n"


@pytest_asyncio.fixture
async def played() -> AsyncIterator[list[Played]]:
    """Three sentinels."""
    made = [Played() for _ in range(3)]
    for each in made:
        await each.start()
    yield made
    for each in made:
        await each.stop()


def url(played: list[Played], *, password: str = PASSWORD) -> str:
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in played)
    return f"redis+sentinel://:{password.replace(' ', '%20')}@{hosts}/{NAME}"


@contextlib.asynccontextmanager
async def asking(played: list[Played], **options: Any) -> AsyncIterator[Sentinels]:
    sentinels = Sentinels(patient(url(played), **options))
    try:
        yield sentinels
    finally:
        await sentinels.close()


def all_name(played: list[Played], node: Node | None) -> None:
    for each in played:
        each.names = node


# ----------------------------------------------------------------------------------------------------------------- the majority


async def test_primary_is_the_server_that_a_majority_names(played: list[Played]) -> None:
    played[0].names, played[1].names, played[2].names = A, B, B
    async with asking(played) as sentinels:
        for _ in range(5):
            assert await sentinels.primary() == B


@pytest.mark.parametrize("fault", ["silent", "dead", "locked"])
async def test_majority_decides_without_a_sentinel_that_fails(played: list[Played], fault: str) -> None:
    all_name(played, A)
    first = played[0]
    first.names = B
    if fault == "silent":
        first.silent = True
    elif fault == "locked":
        first.password = "unknown"
    else:
        await first.stop()
    async with asking(played) as sentinels:
        for _ in range(3):
            assert await sentinels.primary() == A
    if fault == "dead":
        await first.start()


async def test_answers_of_a_minority_decide_nothing(played: list[Played]) -> None:
    played[0].names, played[1].names, played[2].silent = A, B, True
    async with asking(played) as sentinels:
        with pytest.raises(
            Rejected, match=r"no majority of the 3 sentinels .*names 127\.0\.0\.1:1.*names 127\.0\.0\.1:2.*no answer"
        ):
            await sentinels.primary()
        played[2].silent = False
        played[2].names = B
        await eventually_names(sentinels, B)


async def eventually_names(sentinels: Sentinels, node: Node) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(Rejected):
                if await sentinels.primary() == node:
                    return
            await asyncio.sleep(0.01)


async def eventually_says(sentinels: Sentinels, words: str) -> None:
    said = ""
    async with asyncio.timeout(60):
        while words not in said:
            try:
                await sentinels.primary()
            except Rejected as error:
                said = str(error)


async def test_unknown_name_is_an_error_that_says_so(played: list[Played]) -> None:
    async with asking(played) as sentinels:
        with pytest.raises(Rejected, match="the sentinels know no primary named 'main'"):
            await sentinels.primary()


async def test_sentinels_that_demand_a_user_get_the_one_of_their_own_flags(
    played: list[Played], tmp_path: Path
) -> None:
    all_name(played, A)
    for each in played:
        each.password = "secret"
    file = tmp_path / "password"
    file.write_text("secret\n")
    async with asking(played, sentinel_username="watcher", sentinel_password_file=file) as sentinels:
        assert await sentinels.primary() == A
    async with asking(played) as sentinels:
        with pytest.raises(Rejected, match="Authentication required"):
            await sentinels.primary()


async def test_sentinel_that_comes_back_counts_again(played: list[Played]) -> None:
    all_name(played, A)
    for each in played[1:]:
        await each.stop()
    async with asking(played) as sentinels:
        with pytest.raises(Rejected):
            await sentinels.primary()
        for each in played[1:]:
            await each.start()
        await eventually_names(sentinels, A)


async def test_commands_of_the_administrator_name_what_is_wrong(played: list[Played]) -> None:
    for command in (administration.init, administration.check, administration.info):
        with pytest.raises(Rejected, match="the sentinels know no primary"):
            await command(patient(url(played)), [])
    with pytest.raises(Rejected, match="did not answer within 0 s: the sentinels know no primary"):
        await patience.wait(patient(url(played)), seconds=0, tell=print)


async def test_call_gets_a_refusal_when_another_one_was_cancelled_while_the_line_opens() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        line = Line(patient(f"redis://127.0.0.1:{silent.getsockname()[1]}"))
        first = asyncio.create_task(line.call(b"*1\r\n$4\r\nPING\r\n"))
        await eventually(lambda: line._opening is not None)
        second = asyncio.create_task(line.call(b"*1\r\n$4\r\nPING\r\n"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(Rejected):
            await first
        with pytest.raises(asyncio.CancelledError):
            await second
        await line.close()


# ------------------------------------------------------------------------------------------------------------------ two servers


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two servers on ports."""
    made = [
        Server(tmp_path_factory.mktemp("v"), port=str(free_port()), bind="127.0.0.1", masterauth=PASSWORD)
        for _ in range(2)
    ]
    for server in made:
        server.start()
    yield made[0], made[1]
    for server in made:
        server.stop()


def node_of(server: Server) -> Node:
    return Node("127.0.0.1", int(server.settings["port"]))


def name(played: list[Played], primary: Server, *replicas: Server) -> None:
    for each in played:
        each.names = node_of(primary)
        each.replicas = [node_of(replica) for replica in replicas]


async def create(store: Store, key: str) -> Revision:
    write = Write(Key(key), value(key), Revision(0), "uid")
    return (await store.commit(write, dry_run=False)).revision


async def created_at_last(store: Store, key: str) -> Revision:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(Unavailable):
                return await create(store, key)
            await asyncio.sleep(0.01)


def holds(server: Server, resource: str, key: str) -> bool:
    return bool(server("HEXISTS", Commands(resource).keys.objects, key))


async def start(played: list[Played], old: Server, new: Server, resource: str) -> None:
    """Make `old` the primary of a new store, and `new` its replica."""
    name(played, old, new)
    await administration.init(patient(url(played)), [resource])
    follow(new, old)


async def test_server_follows_when_the_sentinels_name_another(
    played: list[Played], pair: tuple[Server, Server], resource: str, opening: Open
) -> None:
    """The old primary lives, stays a primary and keeps its connections, as behind a Service."""
    old, new = pair
    await start(played, old, new, resource)
    store = (await opening(url(played), resource, durability="primary"))[resource]
    first = await create(store, "a")
    await eventually(lambda: holds(new, resource, "a"))
    new("REPLICAOF", "NO", "ONE")
    name(played, new, old)
    assert await created_on(store, new, resource) > first
    length = old("XLEN", Commands(resource).keys.log)
    await created_at_last(store, "b")
    assert old("XLEN", Commands(resource).keys.log) == length


async def test_primary_that_was_left_refuses_every_server(
    played: list[Played], pair: tuple[Server, Server], resource: str, opening: Open
) -> None:
    """A second server reaches only the old primary: it must neither write there nor read what is out of date."""
    old, new = pair
    await start(played, old, new, resource)
    ours = (await opening(url(played), resource, durability="primary"))[resource]
    theirs = (await opening(old, resource))[resource]
    await create(ours, "a")
    new("REPLICAOF", "NO", "ONE")
    name(played, new, old)
    await created_at_last(ours, "b")
    await eventually(lambda: "another primary has taken over" in (theirs.store_state() or ""))
    with pytest.raises(Unavailable):
        await create(theirs, "c")
    with pytest.raises(Unavailable):
        await theirs.barrier()
    assert not holds(old, resource, "c")


async def test_deposed_primary_serves_again_when_the_sentinels_name_it(
    played: list[Played], pair: tuple[Server, Server], resource: str, opening: Open
) -> None:
    old, new = pair
    await start(played, old, new, resource)
    stores = await opening(url(played), resource, durability="primary")
    store = stores[resource]
    await create(store, "a")
    new("REPLICAOF", "NO", "ONE")
    name(played, new, old)
    lost = await created_on(store, new, resource, "lost")
    await eventually(lambda: deposed(old, resource))
    name(played, old, new)
    assert await created_on(store, old, resource, "kept") > lost
    held = {key.decode() for key in old("HKEYS", Commands(resource).keys.objects)}
    await eventually(lambda: not store.filling and {entry.key for entry in store.view().scan()} == held)


def deposed(server: Server, resource: str) -> bool:
    reply: list[bytes] = server("FCALL_RO", "sl1_head", 5, *Commands(resource).keys.all)
    return reply[4] == b"0"


async def test_session_leaves_for_a_primary_with_a_later_epoch(
    played: list[Played], pair: tuple[Server, Server], resource: str, opening: Open
) -> None:
    """The sentinels do not answer, and somebody who reached them has taken the other server over."""
    old, new = pair
    await start(played, old, new, resource)
    stores = await opening(url(played), resource, durability="primary")
    store = stores[resource]
    await create(store, "a")
    await eventually(lambda: holds(new, resource, "a"))
    for each in played:
        each.silent = True
    new("REPLICAOF", "NO", "ONE")
    connection = await Connection.open(patient(new.url), "test")
    fence = functions.fence(await connection.call(Commands(resource).fence("run", 0, confirmed=True)))
    await connection.close()
    revision = await created_on(store, new, resource)
    assert revision > fence.last


async def created_on(store: Store, server: Server, resource: str, prefix: str = "on") -> Revision:
    """Write until a write is on this server."""
    for number in range(100_000):
        revision = await created_at_last(store, f"{prefix}-{number}")
        if holds(server, resource, f"{prefix}-{number}"):
            return revision
        await asyncio.sleep(0.01)
    raise AssertionError("no write arrived there")


async def test_sentinels_that_all_die_do_not_stop_a_healthy_store(
    played: list[Played], pair: tuple[Server, Server], resource: str, opening: Open
) -> None:
    only, _ = pair
    name(played, only)
    await administration.init(patient(url(played)), [resource])
    store = (await opening(url(played), resource, durability="primary"))[resource]
    for each in played:
        await each.stop()
    async with asking(played) as sentinels:
        with pytest.raises(Rejected):
            await sentinels.primary()
    await create(store, "a")
    only("CLIENT", "KILL", "TYPE", "normal")  # nobody can be asked, and the server is found again
    await created_at_last(store, "b")
    assert holds(only, resource, "b")
    for each in played:
        await each.start()


async def test_takeover_lies_above_what_other_servers_have(
    played: list[Played], pair: tuple[Server, Server], resource: str, opening: Open
) -> None:
    """A lost takeover is not repeated, as long as its server can be asked."""
    old, new = pair
    await start(played, old, new, resource)
    ahead = int(old("HGET", Commands(resource).keys.meta, "epoch")) + (1 << 30)
    await eventually(lambda: new("EXISTS", Commands(resource).keys.meta))
    new("REPLICAOF", "NO", "ONE")
    forget(new)
    connection = await Connection.open(patient(new.url), "test")
    lost = functions.fence(await connection.call(Commands(resource).fence("run", ahead)))
    await connection.close()
    store = (await opening(url(played), resource, durability="primary"))[resource]
    assert await create(store, "a") > lost.last


async def test_check_names_sentinels_that_do_not_agree(
    played: list[Played], pair: tuple[Server, Server], resource: str
) -> None:
    name(played, pair[0])
    options = patient(url(played), durability="primary")
    await administration.init(options, [resource])
    assert await administration.check(options, [resource]) == []
    played[2].names = node_of(pair[1])
    [warning] = await administration.check(options, [resource])
    assert f"127.0.0.1:{played[2].port} does not name {node_of(pair[0])}" in warning


async def test_serving_user_may_do_all_that_a_failover_needs(
    played: list[Played], pair: tuple[Server, Server], resource: str, opening: Open
) -> None:
    old, new = pair
    await start(played, old, new, resource)
    for server in pair:
        server("ACL", "SETUSER", rights.SERVING_USER, "reset", "on", ">pw", *rights.SERVING.split())
    serving = url(played, password="pw").replace("//:", f"//{rights.SERVING_USER}:")
    store = (await opening(serving, resource, durability="primary"))[resource]
    await create(store, "a")
    new("REPLICAOF", "NO", "ONE")
    name(played, new, old)
    await created_on(store, new, resource)
    await eventually(lambda: deposed(old, resource))


async def test_sentinels_behind_tls_are_believed_when_their_authority_is_known(
    played: list[Played], tmp_path: Path
) -> None:
    kit = pki.kit(tmp_path, hosts=["127.0.0.1"], user="x", groups=[], now=dt.datetime.now(dt.UTC))
    ca = tmp_path / "ca.pem"
    ca.write_bytes(kit.ca_pem)
    for each in played:
        each.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        each.context.load_cert_chain(tmp_path / "serving.crt", tmp_path / "serving.key")
        await each.stop()
        await each.start()
    all_name(played, A)
    for options, expected in (
        (patient(f"rediss{url(played)[5:]}", ca_file=ca), A),
        (patient(f"rediss{url(played)[5:]}"), None),
    ):
        sentinels = Sentinels(options)
        if expected is None:
            await eventually_says(sentinels, "CERTIFICATE_VERIFY_FAILED")
        else:
            await eventually_names(sentinels, expected)
        await sentinels.close()


async def test_sentinel_given_as_a_server_is_named(played: list[Played]) -> None:
    with pytest.raises(Rejected, match=r"a sentinel.*redis\+sentinel://"):
        await administration.check(StoreOptions(url=f"redis://127.0.0.1:{played[0].port}"), [])


async def test_server_that_was_never_taken_over_refuses_no_one(shared_server: Server, resource: str) -> None:
    """The notice of another store, and one that is older than the log, change nothing."""
    await install(shared_server, resource)
    commands = Commands(resource)
    connection = await Connection.open(patient(shared_server.url), "test")
    head = functions.own_head(await connection.call(commands.head))
    assert await connection.call(commands.depose("another marker", head.epoch + 10)) == [b"OK", b"0"]
    assert await connection.call(commands.depose(head.marker, head.epoch)) == [b"OK", b"0"]
    assert functions.own_head(await connection.call(commands.head)).own
    assert await connection.call(commands.depose(head.marker, head.epoch + 10)) == [b"OK", b"1"]
    with pytest.raises(Rejected, match="another primary"):
        functions.fence(await connection.call(commands.fence("run", head.epoch + 20)))
    fence = functions.fence(await connection.call(commands.fence("run", 0, confirmed=True)))
    assert fence.epoch > head.epoch + 10
    assert functions.own_head(await connection.call(commands.head)).own
    await connection.close()
