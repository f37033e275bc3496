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


@pytest.mark.parametrize("text", ["bytes=0-9", "bytes=-5", "bytes=100-", "bytes=0-1,5-6", "x", f"bytes={'9' * 5000}-"])
def test_range_is_answered_with_everything(text: str) -> None:
    reply = ask(Range=text)
    assert (reply.status, reply.body) == (200, BODY)
    assert "Content-Range" not in dict(reply.headers)


@pytest.mark.parametrize("header", ["If_None_Match", "If_Match", "If_Modified_Since", "Accept_Encoding"])
@pytest.mark.parametrize("piece", ['"x",', 'W/"', " ", ",", "(", "bytes=", "1-2,", "9"])
def test_a_header_of_any_length_costs_little(header: str, piece: str) -> None:
    with Spent() as spent:
        ask(**{header: piece * (1_000_000 // len(piece))})
    assert spent.below(0.1)


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
