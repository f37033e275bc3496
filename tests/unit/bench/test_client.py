import asyncio
import ssl

import pytest

from bench.client import Answer, Lines, Reader, Target, WatchProtocol
from bench.deliveries import marks

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"5\r\nhello\r\nc\r\n, everybody!\r\n0\r\n\r\n"
NOWHERE = Target("localhost", 0, "", ssl.create_default_context())
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\nhello, everybody!"


class Written(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def close(self) -> None:
        pass


async def read(answer: bytes, *, size: int) -> Answer:
    """The summary of an answer that comes in pieces of a size."""
    reader = Reader(NOWHERE)
    reader.connection_made(Written())
    asked = asyncio.ensure_future(reader.get("/", "*/*", keep=9))
    await asyncio.sleep(0)
    for at in range(0, len(answer), size):
        assert not asked.done()
        reader.data_received(answer[at : at + size])
    return await asked


@pytest.mark.parametrize("answer", [CHUNKED, WHOLE], ids=["chunked", "with a length"])
async def test_an_answer_is_measured_the_same_in_whatever_pieces_it_comes(answer: bytes) -> None:
    for size in range(1, len(answer) + 1):
        found = await read(answer, size=size)
        assert (found.status, found.size, found.start) == (200, 17, b"hello, ev")
        assert found.head <= found.body <= found.whole


async def test_a_connection_that_ends_within_an_answer_is_an_error() -> None:
    reader = Reader(NOWHERE)
    reader.connection_made(Written())
    asked = asyncio.ensure_future(reader.get("/", "*/*"))
    await asyncio.sleep(0)
    reader.data_received(CHUNKED[:-1])
    reader.connection_lost(None)
    with pytest.raises(ConnectionError):
        await asked


async def test_events_are_seen_once_in_whatever_pieces_they_come() -> None:
    event = b'1d\r\n{"type":"MODIFIED","object":{}}\n\r\n'
    for size in range(1, 2 * len(event) + 1):
        counted: list[int] = []
        protocol = WatchProtocol(b"", lambda tail, data, counted=counted: counted.append(marks(tail, data)))  # type: ignore[misc]
        protocol.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
        stream = 3 * event
        for at in range(0, len(stream), size):
            protocol.data_received(stream[at : at + size])
        assert sum(counted) == 3


async def test_events_of_a_watch_come_whole_in_whatever_pieces_they_come() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    # Two events and the beginning of a third in the first chunk, its end in the second.
    stream = head + b"b\r\nfirst\nseco\n\r\n3\r\nthi\r\n3\r\nrd\n\r\n0\r\n\r\n"
    for size in range(1, len(stream) + 1):
        seen: list[bytes] = []
        watch = Lines(b"", seen.append)
        watch.connection_made(Written())
        for at in range(0, len(stream), size):
            watch.data_received(stream[at : at + size])
        watch.connection_lost(None)
        assert seen == [b"first", b"seco", b"third"]
        assert watch.status.result() == 200
        assert watch.ended.result()


async def test_a_watch_that_breaks_off_has_not_ended_as_it_should() -> None:
    watch = Lines(b"", lambda _: None)
    watch.connection_made(Written())
    watch.data_received(b"HTTP/1.1 200 OK\r\n\r\n6\r\nfirst\n\r\n")
    watch.connection_lost(None)
    assert not watch.ended.result()
