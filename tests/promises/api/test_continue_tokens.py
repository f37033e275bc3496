"""Continue tokens that nobody issued: read as Go's decoder reads them, and refused in its words."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import pytest

from tests.promises.api.client import Client, claim, names, opened, token

REFUSED = "invalid continue token: continue key is not valid: "
V = '"v":"meta.k8s.io/v1"'


@pytest.fixture(autouse=True)
def three(api: Client, mine: str) -> None:
    for name in "abc":
        api.create(api.claims(mine), claim(name))


def encoded(text: str | bytes) -> str:
    raw = text.encode() if isinstance(text, str) else text
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "unexpected end of JSON input"),
        ('{"v', "unexpected end of JSON input"),
        (f"{{{V},}}", "invalid character '}' looking for beginning of object key string"),
        ("{'v':1}", "invalid character '\\'' looking for beginning of object key string"),
        ('{"v":"a\nb"}', "invalid character '\\n' in string literal"),
        ('{"v":"\\xff"}', "invalid character 'x' in string escape code"),
        ('{"v":NaN}', "invalid character 'N' looking for beginning of value"),
        ('{"rv":-Infinity}', "invalid character 'I' in numeric literal"),
        ('{"rv":01}', "invalid character '1' after object key:value pair"),
        ("null", "server does not recognize this encoded version "),
        ("[1,[[]]]", "json: cannot unmarshal array into Go value of type storage.continueToken"),
        ("1e400", "json: cannot unmarshal number into Go value of type storage.continueToken"),
        ('{"rv":1e2}', "json: cannot unmarshal number 1e2 into Go struct field continueToken.rv of type int64"),
        ('{"rv":1.0}', "json: cannot unmarshal number 1.0 into Go struct field continueToken.rv of type int64"),
        ('{"rv":[{}]}', "json: cannot unmarshal array into Go struct field continueToken.rv of type int64"),
        ('{"v":{"a":[]}}', "json: cannot unmarshal object into Go struct field continueToken.v of type string"),
        ('{"v":5.5}', "json: cannot unmarshal number into Go struct field continueToken.v of type string"),
        (
            '{"start":false,"rv":"y","v":1}',
            "json: cannot unmarshal bool into Go struct field continueToken.start of type string",
        ),
        (f'{{{V},"rv":-0,"start":"/a"}}', "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        (f'{{{V},"rv":-1,"start":null}}', "encoded start key empty (version meta.k8s.io/v1)"),
    ],
)
def test_malformed_token_gets_gos_message(api: Client, mine: str, text: str, words: str) -> None:
    refusal = api.refusal("GET", api.claims(mine), continue_=encoded(text), limit=1)

    assert (refusal.code, refusal.reason, refusal.message) == (400, "BadRequest", REFUSED + words)


@pytest.mark.parametrize(
    "text",
    [
        f'{{{V},"rv":-1,"start":"/b"}}',
        f' {{ {V} , "rv" : -1 , "start" : "b" }} ',
        '{"V":"meta.k8s.io/v1","Rv":-1,"START":"/b"}',
        f'{{{V},"rv":-1,"\u017ftart":"/b"}}',
        f'{{{V},"rv":-1,"start":"/c","start":"/b"}}',
        f'{{{V},"rv":-1,"start":"/b","start":null,"more":[[{{}}],1e400]}}',
    ],
)
def test_a_token_may_be_written_in_other_ways(api: Client, mine: str, text: str) -> None:
    assert names(api.get(api.claims(mine), continue_=encoded(text))) == ["b", "c"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ends_of_lines_in_a_token_are_nothing(api: Client, mine: str, end: str) -> None:
    text = token(-1, "/b")
    for broken in (text + end, end.join((text[:7], text[7:20], text[20:]))):
        assert names(api.get(f"{api.claims(mine)}?continue={quote(broken)}")) == ["b", "c"]
    refusal = api.refusal("GET", f"{api.claims(mine)}?continue={quote(end)}")
    assert refusal.message == f"{REFUSED}unexpected end of JSON input"
    for broken, at in ((f"{end}a{end}=", len(end) * 2 + 1), (f"abc{end}d{end}e", 4 + len(end) * 2)):
        refusal = api.refusal("GET", f"{api.claims(mine)}?continue={quote(broken)}")
        assert refusal.message == f"{REFUSED}illegal base64 data at input byte {at}"


@pytest.mark.parametrize("start", ["/b\0", "b\0"])
def test_the_token_that_goes_on_without_its_snapshot_starts_where_it_did(api: Client, mine: str, start: str) -> None:
    refusal = api.refusal("GET", api.claims(mine), continue_=token(1, start))
    onward: dict[str, Any] = opened(refusal.metadata["continue"])

    assert (refusal.code, onward) == (410, {"v": "meta.k8s.io/v1", "rv": -1, "start": "b\0"})
