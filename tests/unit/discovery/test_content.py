"""Constant content is served as Go's file server serves it."""

import gzip

import pytest

from apiserver.discovery.content import Content, Reply
from tests.fixtures.cpu import Spent

BODY = b"0123456789" * 10
CONTENT = Content(BODY, modified=1_700_000_000.7)
MODIFIED = "Tue, 14 Nov 2023 22:13:20 GMT"
TYPE = [("Content-Type", "application/json")]


def ask(**headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return CONTENT.reply(named, extra=TYPE, compressible=True)


def test_a_plain_request_gets_everything() -> None:
    reply = ask()
    assert (reply.status, reply.body) == (200, BODY)
    assert dict(reply.headers) == {
        "Etag": CONTENT.etag,
        "Last-Modified": MODIFIED,
        "Content-Type": "application/json",
        "Accept-Ranges": "bytes",
    }


def test_the_tag_is_the_sha_512_of_the_bytes_in_upper_case() -> None:
    assert Content(b"", modified=0).digest == (
        "CF83E1357EEFB8BDF1542850D66D8007D620E4050B5715DC83F4A921D36CE9CE47D0D13C5D85F2B0FF8318D2877EEC2F63B931BD47417A81A538327AF927DA3E"
    )
    assert CONTENT.etag == f'"{CONTENT.digest}"'


@pytest.mark.parametrize("tags", [CONTENT.etag, f'"x", {CONTENT.etag}', f"W/{CONTENT.etag}", "*"])
def test_client_with_the_current_copy_gets_304(tags: str) -> None:
    reply = ask(If_None_Match=tags)
    assert (reply.status, reply.body) == (304, b"")
    assert "Content-Type" not in dict(reply.headers)
    assert dict(reply.headers)["Etag"] == CONTENT.etag


@pytest.mark.parametrize("tags", ['"x"', CONTENT.digest, "x, *", ""])
def test_any_other_tag_gets_everything(tags: str) -> None:
    assert ask(If_None_Match=tags).status == 200


def test_a_time_counts_when_there_is_no_tag() -> None:
    assert ask(If_Modified_Since=MODIFIED).status == 304
    assert ask(If_Modified_Since="Tue, 14 Nov 2023 22:13:19 GMT").status == 200
    assert ask(If_Modified_Since="yesterday").status == 200
    assert ask(If_Modified_Since=MODIFIED, If_None_Match='"x"').status == 200


def test_a_precondition_that_fails_is_a_412() -> None:
    assert ask(If_Match='"x"').status == 412
    assert ask(If_Match=CONTENT.etag).status == 200
    assert ask(If_Match="*").status == 200
    assert ask(If_Unmodified_Since="Tue, 14 Nov 2023 22:13:19 GMT").status == 412
    assert ask(If_Unmodified_Since=MODIFIED).status == 200


@pytest.mark.parametrize(
    ("text", "place", "part"),
    [
        ("bytes=0-9", "bytes 0-9/100", BODY[:10]),
        ("bytes=95-", "bytes 95-99/100", BODY[95:]),
        ("bytes=-5", "bytes 95-99/100", BODY[95:]),
        ("bytes=90-1000", "bytes 90-99/100", BODY[90:]),
        ("bytes=-1000", "bytes 0-99/100", BODY),
    ],
)
def test_a_range_of_bytes_is_a_206(text: str, place: str, part: bytes) -> None:
    reply = ask(Range=text, Accept_Encoding="gzip")
    assert (reply.status, reply.body) == (206, part)
    assert dict(reply.headers)["Content-Range"] == place


@pytest.mark.parametrize("text", ["bytes=100-", f"bytes={1 << 62}-", "bytes=100-5", "bytes=100-x"])
def test_range_behind_the_end_is_a_416_with_the_size(text: str) -> None:
    reply = ask(Range=text)
    assert (reply.status, reply.body) == (416, b"invalid range: failed to overlap\n")
    assert dict(reply.headers)["Content-Range"] == "bytes */100"


@pytest.mark.parametrize(
    "text",
    [
        "bytes=9-5",
        "bytes=-",
        "lines=1-2",
        "bytes=a-b",
        "bytes=5",
        "bytes=--5",
        f"bytes={1 << 63}-",
        "bytes=0-1,x",
        f"bytes={'9' * 5000}-",
        f"bytes=0-{'9' * 5000}",
        f"bytes=-{'9' * 900_000}",
        f"bytes=1{' ' * 4000}x",
    ],
    ids=lambda text: text[:20],
)
def test_malformed_range_is_a_416(text: str) -> None:
    assert (ask(Range=text).status, ask(Range=text).body) == (416, b"invalid range\n")


@pytest.mark.parametrize("text", ["bytes=", "bytes=,", "bytes=" + " " * 900], ids=lambda text: text[:8])
def test_no_range_at_all_is_answered_with_everything(text: str) -> None:
    assert ask(Range=text).status == 200


@pytest.mark.parametrize(
    "header", ["If_None_Match", "If_Match", "If_Range", "If_Modified_Since", "Accept_Encoding", "Range"]
)
@pytest.mark.parametrize("piece", ['"x",', 'W/"', " ", ",", "(", "bytes=", "1-2,", "9"])
def test_a_header_of_any_length_costs_little(header: str, piece: str) -> None:
    with Spent() as spent:
        ask(**{header: piece * (1_000_000 // len(piece))})
    assert spent.below(0.1)


def test_several_ranges_are_answered_with_everything() -> None:
    assert ask(Range="bytes=0-1,5-6").status == 200


def test_a_range_of_something_else_is_answered_with_everything() -> None:
    assert ask(Range="bytes=0-1", If_Range='"x"').status == 200
    assert ask(Range="bytes=0-1", If_Range=CONTENT.etag).status == 206
    assert ask(Range="bytes=0-1", If_Range=MODIFIED).status == 206


@pytest.mark.parametrize("accept", ["gzip", "deflate, gzip;q=0.5", "*", "gzip; q=1.0"])
def test_client_that_accepts_gzip_gets_it(accept: str) -> None:
    reply = ask(Accept_Encoding=accept)
    assert dict(reply.headers)["Content-Encoding"] == "gzip"
    assert gzip.decompress(reply.body) == BODY


@pytest.mark.parametrize("accept", ["", "deflate", "gzip;q=0", "gzip;q=0.0", "identity"])
def test_client_that_does_not_accept_gzip_gets_plain_bytes(accept: str) -> None:
    assert ask(Accept_Encoding=accept).body == BODY


def test_compression_is_the_same_on_every_replica() -> None:
    compressed = {
        Content(BODY, modified=t).reply({"Accept-Encoding": "gzip"}, extra=[], compressible=True).body for t in (1, 2)
    }
    assert len(compressed) == 1


def test_answers_that_must_not_be_compressed_are_not() -> None:
    assert CONTENT.reply({"Accept-Encoding": "gzip"}, extra=TYPE).body == BODY


def test_immutable_content_says_until_when() -> None:
    assert CONTENT.immutable(1_700_000_000) == [("Cache-Control", "public, immutable"), ("Expires", MODIFIED)]
