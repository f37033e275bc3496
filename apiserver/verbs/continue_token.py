"""The continue token of chunked lists: which snapshot, and where in it the next chunk starts.

A token is bound to nothing: its start key is only ever appended to the scope that this request was authorized for.
Upstream: kubernetes/apiserver `pkg/storage/continue.go`.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError

VERSION = "meta.k8s.io/v1"
READ = 1 << 16
"""Characters of a token that are read: no key makes a longer one."""
INCONSISTENT = -1
"""The revision of a token that goes on in the newest state, because its own snapshot is gone."""


@dataclass(frozen=True, slots=True)
class Token:
    """`start` is the first key that may be returned, relative to the list's scope, with or without a slash before it."""

    revision: int
    start: str

    @property
    def key(self) -> str:
        return self.start.removeprefix("/")

    def encode(self) -> str:
        body = {"v": VERSION, "rv": self.revision, "start": self.start}
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
        return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def after(name: str, *, revision: int) -> Token:
    """The token of a chunk whose last object is `name` (relative to the scope)."""
    return Token(revision, f"/{name}\0")


def decode(text: str) -> Token:
    """The token of a request; StatusError 400 with upstream's words when it is none."""
    if len(text) > READ:
        raise _bad(f"it has more than {READ} characters")
    fields = _fields(text)
    version, revision, start = _text(fields, "v"), _version(fields), _text(fields, "start")
    if version != VERSION:
        raise _bad(f"server does not recognize this encoded version {version}")
    if revision == 0:
        raise _bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not start:
        raise _bad("encoded start key empty (version meta.k8s.io/v1)")
    key = start if start.startswith("/") else f"/{start}"
    if key != _clean(key):
        raise _bad(start)
    return Token(revision, start)


def _clean(key: str) -> str:
    cleaned = posixpath.normpath(key)
    return cleaned[1:] if cleaned.startswith("//") else cleaned


def _fields(text: str) -> dict[str, object]:
    illegal = _first_illegal(text)
    if illegal is not None:
        raise _bad(f"illegal base64 data at input byte {illegal}")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        fields = json.loads(raw.decode("utf-8", "replace"), parse_int=_integer)
    except (ValueError, RecursionError) as e:
        raise _bad(_json_error(raw)) from e
    if not isinstance(fields, dict):
        kind = _go_kind(fields)
        raise _bad(f"json: cannot unmarshal {kind} into Go value of type storage.continueToken")
    return {k.lower(): v for k, v in fields.items() if v is not None}


def _integer(digits: str) -> int:
    """Python converts no endless numbers, and none of those is a revision."""
    return int(digits) if len(digits) < 100 else 1 << 63


_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def _first_illegal(text: str) -> int | None:
    """Where Go's decoder stops: at the first foreign character, or at one that is left alone at the end."""
    found = next((i for i, c in enumerate(text) if c not in _ALPHABET), None)
    return len(text) - 1 if found is None and len(text) % 4 == 1 else found


def _json_error(raw: bytes) -> str:
    """What Go says of a text that Python could not read either. Go's scanner looks at bytes, and shows one as a character."""
    text = raw.decode("latin-1")
    try:
        json.loads(text, parse_int=_integer)
    except RecursionError:
        return "invalid character '[' exceeded max depth"
    except json.JSONDecodeError as e:
        if e.pos < len(text.rstrip()):
            where = "looking for beginning of value" if e.msg.startswith("Expecting value") else "after top-level value"
            return f"invalid character {_rune(text[e.pos])} {where}"
    return "unexpected end of JSON input"


def _rune(c: str) -> str:
    if c in "'\\":
        return f"'\\{c}'"
    if c.isprintable():
        return f"'{c}'"
    return f"'\\x{ord(c):02x}'" if ord(c) < 0x80 else f"'\\u{ord(c):04x}'"


def _go_kind(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise _mistyped(value, name, go="string")
    return _LONE_SURROGATE.sub("\ufffd", value)


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character, which only an escape can bring into JSON. Go reads it as U+FFFD."""


def _version(fields: Mapping[str, object]) -> int:
    value = fields.get("rv", 0)
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise _mistyped(value, "rv", go="int64")
    return value


def _mistyped(value: object, name: str, *, go: str) -> StatusError:
    kind = _go_kind(value) + (f" {value}" if _go_kind(value) == "number" and go == "int64" else "")
    return _bad(f"json: cannot unmarshal {kind} into Go struct field continueToken.{name} of type {go}")


def _bad(why: str) -> StatusError:
    return errors.bad_request(f"invalid continue token: continue key is not valid: {why}")
