"""Encode and decode the continue token of chunked lists: the snapshot, and the key where its next chunk starts.

A token grants no access: its start key is only appended to the scope that this request was authorized for.
Upstream: kubernetes/apiserver `pkg/storage/continue.go`.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.json import json_syntax
from kubetext import strconv

VERSION = "meta.k8s.io/v1"
READ = 1 << 16
"""Longest token, in characters, that is read: no key makes a longer one."""
INCONSISTENT = -1
"""The revision of a token that goes on in the newest state, because its own snapshot no longer exists."""


@dataclass(frozen=True, slots=True)
class Token:
    """`start` is the first key that may be returned, relative to the list's scope, with or without a leading slash."""

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
    """Return the token of a chunk whose last object is `name` (relative to the scope)."""
    return Token(revision, f"/{name}\0")


def decode(text: str) -> Token:
    """Return the token of a request. Raises StatusError 400 with upstream's text for an invalid one."""
    if len(text) > READ:
        raise _bad(f"it has more than {READ} characters")
    fields = _fields(text)
    version, revision, start = fields.get("v", ""), fields.get("rv", 0), fields.get("start", "")
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


def _fields(text: str) -> dict[str, Any]:
    """Return the known members, as Go's decoder reads them into its struct: names in any case, the last of equal names, null as absent."""
    illegal = _first_illegal(text)
    if illegal is not None:
        raise _bad(f"illegal base64 data at input byte {illegal}")
    digits = _LINE_ENDS.sub("", text)
    raw = base64.urlsafe_b64decode(digits + "=" * (-len(digits) % 4))
    try:
        found = _loads(raw)
    except (ValueError, RecursionError):
        if raw.count(b"[") > json_syntax.MAX_DEPTH:
            raise _bad("invalid character '[' exceeded max depth") from None
        found = _loads(json_syntax.cut(_checked(raw[:LOOKED_AT]), LEVELS))
    if not isinstance(found, _Members | None):
        raise _bad(f"json: cannot unmarshal {_go_kind(found)} into Go value of type storage.continueToken")
    fields: dict[str, Any] = {}
    for name, value in found or ():
        field = name.replace(LONG_S, "s").lower()
        if field in _READERS and value is not None:
            fields[field] = _READERS[field](value, field)
    return fields


def _loads(raw: bytes) -> Any:
    text = json_syntax.mended(raw)
    return json.loads(
        text, parse_int=_Number, parse_float=_Number, parse_constant=_no_number, object_pairs_hook=_Members
    )


def _checked(raw: bytes) -> bytes:
    """Return bytes that Python could not read. Raises 400 for invalid JSON; the others nest too deep for Python alone."""
    try:
        json_syntax.check(raw)
    except json_syntax.SyntaxProblem as e:
        raise _bad(str(e)) from e
    return raw


def _no_number(text: str) -> None:
    """Refuse NaN and Infinity, which JSON does not have."""
    raise ValueError(text)


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """The members of an object, in their order."""

    __slots__ = ()


LOOKED_AT = 3 << 10
"""Bytes that are examined in a text that Python could not read: finding the error takes some 2 µs per byte."""
LEVELS = 2
"""Levels of nesting that are examined: the token and the types of its members."""
LONG_S = "\u017f"
"""Go accepts this character as an `s` in the name of a member."""
_LINE_ENDS = re.compile("[\r\n]+")
"""Go's decoder ignores them between the digits of base64."""
_FOREIGN = re.compile("[^A-Za-z0-9_\\-\r\n]")


def _first_illegal(text: str) -> int | None:
    """Return where Go's decoder stops: at the first foreign character, or at a single one that is left at the end."""
    found = _FOREIGN.search(text)
    if found is not None:
        return found.start()
    return len(text) - 1 if len(_LINE_ENDS.sub("", text)) % 4 == 1 else None


def _go_kind(value: object) -> str:
    if isinstance(value, _Number):
        return "number"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    return "array" if type(value) is list else "object"


def _text(value: object, field: str) -> str:
    if _go_kind(value) != "string":
        raise _mistyped(_go_kind(value), field, go="string")
    return str(value)


def _revision(value: object, field: str) -> int:
    if not isinstance(value, _Number):
        raise _mistyped(_go_kind(value), field, go="int64")
    try:
        return strconv.parse_int(value)
    except ValueError as e:
        raise _mistyped(f"number {value}", field, go="int64") from e


_READERS: Mapping[str, Callable[[object, str], Any]] = {"v": _text, "rv": _revision, "start": _text}


def _mistyped(kind: str, field: str, *, go: str) -> StatusError:
    return _bad(f"json: cannot unmarshal {kind} into Go struct field continueToken.{field} of type {go}")


def _bad(why: str) -> StatusError:
    return errors.bad_request(f"invalid continue token: continue key is not valid: {why}")
