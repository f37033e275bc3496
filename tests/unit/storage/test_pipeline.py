"""The connection to the server: what leaves when, whose an answer is, and what is known of a command when the connection ends."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import errno
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uvloop

from apiserver.serving import pki
from apiserver.storage import pipeline
from apiserver.storage.errors import Unavailable
from apiserver.storage.pipeline import Connection, Disconnected, Failed, Redirected, Rejected, pack
from tests.fixtures.proxy import Proxy
from tests.fixtures.valkey import Server, eventually, patient


@dataclass
class Authority:
    """The certificate authority of the server that the test plays."""

    url: str
    context: ssl.SSLContext


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("tls")
    kit = pki.kit(folder, hosts=["127.0.0.1"], user="x", groups=[], now=dt.datetime.now(dt.UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "serving.crt", folder / "serving.key")
    pem = folder / "authority.pem"
    pem.write_bytes(kit.ca_pem)
    return Authority(f"ssl_ca_certs={pem}", context)


@pytest_asyncio.fixture
async def connection(shared_server: Server) -> AsyncIterator[Connection]:
    opened = await Connection.open(patient(shared_server.url), "test")
    yield opened
    await opened.close()


# ------------------------------------------------------------------------------------------------------------- a real server


async def test_answers_come_in_the_order_of_commands(connection: Connection) -> None:
    asked = [connection.call(pack("ECHO", f"number {at}")) for at in range(500)]
    assert await asyncio.gather(*asked) == [f"number {at}".encode() for at in range(500)]


async def test_cancelled_caller_cancels_nothing(connection: Connection, shared_server: Server) -> None:
    shared_server("SET", "counter", 0)
    asked = [connection.call(pack("INCR", "counter")) for _ in range(200)]
    await asyncio.sleep(0)
    for future in asked[::2]:
        future.cancel()
    assert await connection.call(pack("GET", "counter")) == b"200"
    assert [future.result() for future in asked[1::2]] == list(range(2, 202, 2))


async def test_an_error_belongs_to_its_command_alone(connection: Connection) -> None:
    asked = [connection.call(pack("ECHO", "a")), connection.call(pack("NOSUCH")), connection.call(pack("ECHO", "b"))]
    first, error, last = await asyncio.gather(*asked, return_exceptions=True)
    assert (first, last) == (b"a", b"b")
    assert isinstance(error, Rejected)


@pytest.mark.parametrize(
    "text",
    [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "READONLY You can't write against a read only replica.",
        "NOREPLICAS Not enough good replicas to write.",
        "MISCONF Errors writing to the AOF file: No space left on device",
        "LOADING Valkey is loading the dataset in memory",
        "BUSY Valkey is busy running a script.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "NOPERM User u has no permissions to run the 'fcall' command",
        "ERR Function not found",
    ],
)
async def test_errors_from_before_the_execution_say_that_nothing_was_executed(text: str) -> None:
    found = pipeline.refusal(text)
    assert isinstance(found, Rejected)
    assert isinstance(found, Unavailable)
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        "MOVED 1234 10.0.0.1:6379",
        "ASK 1234 10.0.0.1:6379",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN The cluster is down",
    ],
)
async def test_redirection_says_that_nothing_was_executed(text: str) -> None:
    found = pipeline.refusal(text)
    assert isinstance(found, Redirected)
    assert isinstance(found, Rejected)
    assert str(found) == text


async def test_any_other_error_says_nothing_about_the_execution() -> None:
    text = "ERR user_function:5: attempt to index a nil value script: sl1_put, on @user_function:5."
    assert isinstance(pipeline.refusal(text), Failed)


async def test_a_broken_connection_leaves_what_was_sent_in_doubt(shared_server: Server) -> None:
    connection = await Connection.open(patient(shared_server.url), "test")
    sent = connection.call(pack("BLPOP", "nothing comes here", 0))
    await eventually(lambda: b"cmd=blpop" in shared_server("CLIENT", "LIST"))
    unsent = connection.call(pack("PING"))
    shared_server("CLIENT", "KILL", "ID", connection.client_id)
    with pytest.raises(Disconnected):
        await sent
    assert isinstance(await asyncio.gather(unsent, return_exceptions=True), list)
    assert "broke" in await connection.broken
    with pytest.raises(Rejected):
        await connection.call(pack("PING"))
    await connection.close()


async def test_connection_whose_peer_disappears_silently_is_broken(shared_server: Server) -> None:
    connection = await Connection.open(patient(shared_server.url), "test")
    sent = connection.call(pack("BLPOP", "nothing comes here", 0))
    await eventually(lambda: b"cmd=blpop" in shared_server("CLIENT", "LIST"))
    # The kernel's error when the peer acknowledges nothing.
    connection.connection_lost(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
    with pytest.raises(Disconnected, match=r"broke: .*Connection timed out"):
        await sent
    await connection.close()


async def test_error_without_a_message_is_shown_by_its_name() -> None:
    assert pipeline.text(ConnectionResetError()) == "ConnectionResetError"


async def test_missing_server_is_rejected_at_once(tmp_path: Any) -> None:
    with pytest.raises(Rejected, match="no connection"):
        await Connection.open(patient(f"unix://{tmp_path}/nobody"), "test")


async def test_a_wrong_password_is_rejected(shared_server: Server) -> None:
    with pytest.raises(Rejected, match="password"):
        await Connection.open(patient(shared_server.url, password="wrong"), "test")


async def test_a_password_beside_the_url_counts_more_than_the_one_in_it(shared_server: Server) -> None:
    url = f"unix://{shared_server.socket}?password=wrong"
    connection = await Connection.open(patient(url, password="for tests"), "test")
    assert await connection.call(pack("PING")) == b"PONG"
    await connection.close()


async def test_a_server_behind_tls_is_believed_when_its_authority_is_known(
    shared_server: Server, authority: Authority
) -> None:
    proxy = Proxy(shared_server.socket, context=authority.context)
    await proxy.start()
    connection = await Connection.open(patient(f"{proxy.url}?{authority.url}"), "test")
    large = b"x" * 300_000
    assert await connection.call(pack("ECHO", large)) == large
    await connection.close()
    with pytest.raises(Rejected, match="CERTIFICATE_VERIFY_FAILED"):
        await Connection.open(patient(proxy.url), "test")
    await proxy.stop()


@pytest.mark.parametrize("url", ["http://x/", "unix:///s?nonsense=1", "redis://h:1/0?db=x"])
async def test_a_url_that_makes_no_sense_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|url"):
        pipeline.open_wire(patient(url), "test")


# ----------------------------------------------------------------------------------------------- a server that the test plays

LARGE = pack("SET", "large", b"x" * (32 << 20))
"""More than all buffers on the way hold."""


@dataclass
class Ends:
    """The ends of one connection: ours, and the bytes that the server receives and sends."""

    ours: Connection
    hears: asyncio.StreamReader
    says: asyncio.StreamWriter


Story = Callable[[Ends], Awaitable[None]]


@contextlib.asynccontextmanager
async def listening(
    way: str, folder: Path, authority: Authority, *, greeting: bytes = b"+OK\r\n"
) -> AsyncIterator[tuple[str, asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]]:
    """The URL of a server that greets and then waits for what the test says, and its first connection."""
    met: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    written: list[asyncio.StreamWriter] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        written.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while (
                await reader.readuntil(b"CLIENT\r\n$") and await reader.readexactly(1) == b"7"
            ):  # redis-py names some twice
                await reader.readuntil(b"SETNAME\r\n$4\r\ntest\r\n")
                writer.write(greeting)
            await reader.readuntil(b"\r\nID\r\n")
            writer.write(b":7\r\n")
            met.set_result((reader, writer))

    if way == "unix":
        listener = await asyncio.start_unix_server(greet, str(folder / "s"))
        url = f"unix://{folder}/s"
    else:
        context = authority.context if way == "tls" else None
        listener = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
        scheme = "rediss" if context else "redis"
        url = f"{scheme}://127.0.0.1:{listener.sockets[0].getsockname()[1]}/0"
        url += f"?{authority.url}" if context else ""
    try:
        yield url, met
    finally:
        listener.close()
        for writer in written:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        await listener.wait_closed()


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Runs a story on one of the event loops."""
    return uvloop.run if request.param == "uvloop" else asyncio.run  # type: ignore[return-value]


@pytest.fixture(params=["unix", "tcp", "tls"])
def play(
    request: pytest.FixtureRequest,
    run: Callable[[Awaitable[None]], None],
    tmp_path_factory: pytest.TempPathFactory,
    authority: Authority,
) -> Callable[[Story], None]:
    """Plays a story on a fresh connection of each sort, on both event loops."""

    async def on_a_connection(story: Story) -> None:
        async with listening(request.param, tmp_path_factory.mktemp("p"), authority) as (url, met):
            ours = await Connection.open(patient(url), "test")
            try:
                async with asyncio.timeout(60):
                    await story(Ends(ours, *await met))
            finally:
                await ours.close()

    return lambda story: run(on_a_connection(story))


Play = Callable[[Story], None]


def echo(text: str) -> bytes:
    return pack("ECHO", text)


def test_commands_arrive_in_order_and_several_answers_in_one_piece(play: Play) -> None:
    async def story(ends: Ends) -> None:
        commands = [echo(f"number {at}") for at in range(100)]
        asked = [ends.ours.call(command) for command in commands]
        sent = b"".join(commands)
        assert await ends.hears.readexactly(len(sent)) == sent
        ends.says.write(b"".join(b"$%d\r\n%d\r\n" % (len(str(at)), at) for at in range(100)))
        assert await asyncio.gather(*asked) == [str(at).encode() for at in range(100)]
        assert ends.ours.owes_since() is None

    play(story)


async def test_an_answer_in_many_small_pieces_is_one_answer(connection: Connection) -> None:
    await connection.call(pack("PING"))
    answered: list[Any] = []
    whole = [b"one\r\n:2\r\n", [None, 3, b""], b"OK"]
    connection._owed.append((0.0, answered.append))
    for byte in b"*3\r\n$9\r\none\r\n:2\r\n\r\n*3\r\n$-1\r\n:3\r\n$0\r\n\r\n+OK\r\n":
        assert not answered
        connection.data_received(bytes([byte]))
        await asyncio.sleep(0)
    assert answered == [whole]


def test_error_contains_the_servers_whole_message(play: Play) -> None:
    async def story(ends: Ends) -> None:
        loading, other, last = (ends.ours.call(echo(text)) for text in "abc")
        ends.says.write(b"-LOADING Valkey is loading the dataset\r\n-WRONGTYPE Operation against a key\r\n+c\r\n")
        with pytest.raises(Rejected, match=r"^LOADING Valkey is loading the dataset$"):
            await loading
        with pytest.raises(Failed, match=r"^WRONGTYPE Operation against a key$"):
            await other
        assert await last == b"c"

    play(story)


def test_bytes_for_a_server_that_does_not_read_arrive_in_order_later(play: Play) -> None:
    async def story(ends: Ends) -> None:
        commands = [LARGE, echo("a"), LARGE, echo("b")]
        asked = [ends.ours.call(command) for command in commands]
        for command in commands:
            assert await ends.hears.readexactly(len(command)) == command
        ends.says.write(b"+1\r\n+2\r\n+3\r\n+4\r\n")
        assert await asyncio.gather(*asked) == [b"1", b"2", b"3", b"4"]
        last = ends.ours.call(echo("c"))
        await ends.hears.readexactly(len(echo("c")))
        ends.says.write(b"+5\r\n")
        assert await last == b"5"

    play(story)


def test_bytes_queued_for_a_server_that_does_not_read_were_never_sent(play: Play) -> None:
    async def story(ends: Ends) -> None:
        sent = [
            ends.ours.call(LARGE),
            ends.ours.call(LARGE),
        ]  # under TLS the first one alone does not show that nobody reads
        unsent = ends.ours.call(echo("a"))
        ends.says.transport.abort()
        with pytest.raises(Disconnected, match="broke"):
            await sent[0]
        pipeline.abandon(sent[1])
        with pytest.raises(Rejected, match="broke"):
            await unsent
        with pytest.raises(Rejected, match="broke"):
            await ends.ours.call(echo("b"))

    play(story)


def test_answers_received_before_the_end_are_delivered_before_it(play: Play) -> None:
    async def story(ends: Ends) -> None:
        told: list[Any] = []
        for text in "abc":
            ends.ours.submit(echo(text), told.append)
        await ends.hears.readexactly(len(echo("a") * 3))
        ends.says.write(b"+a\r\n+b\r\n$1\r\n")
        ends.says.close()
        assert await ends.ours.broken == "the connection to the store broke: Connection closed by server."
        assert told[:2] == [b"a", b"b"]
        assert [type(reply) for reply in told[2:]] == [Disconnected]

    play(story)


@pytest.mark.parametrize(
    ("said", "why"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "broke: Protocol error"), (b"+a\r\n+b\r\n", "broke: an answer to nothing")],
    ids=["no RESP", "one too many"],
)
def test_nonsense_from_the_server_breaks_the_connection(play: Play, said: bytes, why: str) -> None:
    async def story(ends: Ends) -> None:
        asked = ends.ours.call(echo("a"))
        ends.says.write(said)
        assert why in await ends.ours.broken
        ends.says.write(said)
        with pytest.raises(Rejected, match=why):
            await ends.ours.call(echo("b"))
        pipeline.abandon(asked)

    play(story)


def test_unusable_answer_breaks_the_connection_and_is_reported_once(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(ends: Ends) -> None:
        told: list[Any] = []

        def fails(reply: Any) -> None:
            told.append(reply)
            raise LookupError("a bug")

        ends.ours.submit(echo("a"), told.append)
        ends.ours.submit(echo("b"), fails)
        ends.ours.submit(echo("c"), told.append)
        ends.says.write(b"+a\r\n+b\r\n+c\r\n")
        assert await ends.ours.broken == "internal error"
        assert told[:2] == [b"a", b"b"]
        assert [type(reply) for reply in told[2:]] == [Disconnected]
        assert "could not be used" in caplog.text

    play(story)


def test_the_server_sees_a_connection_end_that_is_closed(play: Play) -> None:
    async def story(ends: Ends) -> None:
        asked = ends.ours.call(echo("a"))
        await ends.ours.drain(seconds=0)
        await ends.ours.close("enough")
        await ends.ours.close("again")
        with pytest.raises(Disconnected, match="enough"):
            await asked
        sent = echo("a") + pack("PING")
        assert await ends.hears.read() in (sent, b"")
        assert ends.hears.at_eof()

    play(story)


def test_a_connection_that_is_closed_does_not_go_on_sending(play: Play) -> None:
    async def story(ends: Ends) -> None:
        asked = ends.ours.call(LARGE)
        await ends.ours.close("enough")
        with pytest.raises(Disconnected, match="enough"):
            await asked
        heard = b""
        with contextlib.suppress(OSError):
            while piece := await ends.hears.read(1 << 20):
                heard += piece
        assert len(heard) < len(LARGE)

    play(story)


def test_a_server_that_says_more_than_it_was_asked_is_rejected(
    run: Callable[[Awaitable[None]], None], tmp_path: Path, authority: Authority
) -> None:
    async def story() -> None:
        async with listening("unix", tmp_path, authority, greeting=b"+OK\r\n+more\r\n") as (url, _):
            with pytest.raises(Rejected, match=r"no connection to the store: .* more than it was asked"):
                await Connection.open(patient(url), "test")

    run(story())
