"""Paths into an object, and the errors found there, with upstream's texts.

Upstream: kubernetes/apimachinery `pkg/util/validation/field/{path,errors}.go`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from apiserver.apimachinery import excerpt
from kubetext.quoting import JSON_ESCAPES, SHOWN_CHARACTERS, go_json, go_quote


class Path:
    """A place in an object, printed as `spec.devices[0].attributes[key]`. Built in steps, joined only when printed."""

    __slots__ = ("_parent", "_text")

    def __init__(self, text: str, parent: Path | None = None) -> None:
        self._text = text
        self._parent = parent

    def child(self, name: str) -> Path:
        return Path(f".{name}" if self is not ROOT else name, self if self is not ROOT else None)

    def index(self, i: int) -> Path:
        return Path(f"[{i}]", self)

    def key(self, k: str) -> Path:
        return Path(f"[{k}]", self)

    def after_items(self) -> Path:
        """Return the place that sorts errors of a list behind those of all its elements. It is never the path of an error."""
        return Path(AFTER_ITEMS, self)

    def segments(self) -> list[str]:
        """Return the parts of the path: `.name`, `[0]`, `[key]`; the first without its dot."""
        parts: list[str] = []
        here: Path | None = self
        while here is not None:
            parts.append(here._text)
            here = here._parent
        return parts[::-1]

    def __str__(self) -> str:
        return "".join(self.segments())


ROOT = Path("")
AFTER_ITEMS = "[#]"

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
TYPE_INVALID = "FieldValueTypeInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"
NOT_FOUND = "FieldValueNotFound"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
INTERNAL = "InternalError"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One violated rule: `reason` is the cause's reason on the wire, `body` its message, `field` its path.

    `place` is the path that sorts it among other errors; None if it is never sorted.
    """

    reason: str
    field: str
    body: str
    place: Path | None = dataclasses.field(default=None, compare=False, repr=False)

    def at(self, place: Path) -> FieldError:
        """Return the same error, sorted as an error of another path."""
        return dataclasses.replace(self, place=place)

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def cause(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.body, "field": self.field}


ERRORS_LIMIT = 256 << 10
"""Bytes (see `excerpt`) of the errors of one object that are reported."""
MOST_COUNTED = 4_000
"""Errors that are counted; the search then ends. An answer cannot hold more, and each text takes some microseconds."""
_CAUSE_BYTES = 64
"""Bytes of a cause besides its texts."""


class FieldErrors(list[FieldError]):
    """The errors of one object, up to the limit of an answer. Further errors are counted only.

    Time and memory are bounded if errors come from iterators: no error is fetched that would not be counted.
    """

    __slots__ = ("_left", "more")

    def __init__(self, errors: Iterable[FieldError] = ()) -> None:
        super().__init__()
        self.more = 0
        """Errors that were found and are not kept."""
        self._left = ERRORS_LIMIT
        self.extend(errors)

    @property
    def full(self) -> bool:
        """Whether no further error is reported or counted: the search for errors may stop."""
        return len(self) + self.more >= MOST_COUNTED

    def append(self, error: FieldError) -> None:
        if self._left > 0:
            self._left -= excerpt.cost(error.field) + excerpt.cost(error.body) + _CAUSE_BYTES
            if self._left >= 0 or not self:
                super().append(error)
                return
        self.more += 1

    def extend(self, errors: Iterable[FieldError]) -> None:
        if isinstance(errors, FieldErrors):
            self.more += errors.more
        found = iter(errors)
        while not self.full and (error := next(found, None)) is not None:
            self.append(error)

    def __iadd__(self, errors: Iterable[FieldError]) -> Self:  # type: ignore[override, misc]
        self.extend(errors)
        return self


@dataclass(frozen=True, slots=True)
class Typed:
    """Text of a named Go type (a policy, a UID, a time). Messages print it as JSON, while plain strings are Go-quoted."""

    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A bad value, or a part of one, as finished text: for a value of several errors, or with a text of its own."""

    text: str


def show(value: Any) -> str:
    """Return a bad value as messages print it: strings Go-quoted, numbers and booleans bare, the rest as compact JSON. A named tuple prints
    as a struct. Long values are cut."""
    if isinstance(value, str):
        return _shortened(go_quote(value[: SHOWN_CHARACTERS + 1]), len(value))
    if isinstance(value, Shown):
        return value.text
    if isinstance(value, Typed):
        return _shortened(go_json(value.text[: SHOWN_CHARACTERS + 1]), len(value.text))
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return _long_json(value._asdict() if hasattr(value, "_asdict") else value)


def _shortened(shown: str, length: int) -> str:
    """Return the text for a value of `length` characters. `shown` has the first ones, in quotes."""
    return (
        shown
        if length <= SHOWN_CHARACTERS
        else f"{shown[:SHOWN_CHARACTERS]}… {length - SHOWN_CHARACTERS} more characters"
    )


def shown_json(text: str) -> Shown:
    """Return JSON text as messages print it: cut if it is long."""
    return Shown(_shortened(text, len(text)))


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def _pieces(value: Any, before: str = "") -> Iterator[str]:
    """Yield the JSON of a value behind `before`. Python's `iterencode` leaves a reference cycle of functions at each call, and one request
    may show ten thousand values."""
    if isinstance(value, Shown):
        yield before + value.text
    elif not isinstance(value, dict | list | tuple) or not value:
        yield before + _ENCODER.encode(value)
    elif isinstance(value, dict):
        before += "{"
        for name, member in value.items():
            yield before + _ENCODER.encode(name) + ":"
            yield from _pieces(member)
            before = ","
        yield "}"
    else:
        before += "["
        for item in value:
            yield from _pieces(item, before)
            before = ","
        yield "]"


def _long_json(value: Any) -> str:
    """Return compact JSON, written only as far as it is shown."""
    parts: list[str] = []
    size = 0
    for part in _pieces(value):
        if size > SHOWN_CHARACTERS:
            parts.append("… more")
            break
        parts.append(part[:SHOWN_CHARACTERS])
        size += len(part)
    return "".join(parts).translate(JSON_ESCAPES)


def _with(prefix: str, detail: str) -> str:
    return f"{prefix}: {detail}" if detail else prefix


def _error(reason: str, path: Path | str, body: str) -> FieldError:
    return FieldError(reason, str(path), body, path if isinstance(path, Path) else None)


def required(path: Path | str, detail: str = "") -> FieldError:
    return _error(REQUIRED, path, _with("Required value", detail))


def invalid(path: Path | str, value: Any, detail: str = "") -> FieldError:
    return _error(INVALID, path, _with(f"Invalid value: {show(value)}", detail))


def type_invalid(path: Path | str, value: Any, detail: str) -> FieldError:
    """Return the error of a value of a wrong type. It reads like `invalid`, and has a reason of its own."""
    return dataclasses.replace(invalid(path, value, detail), reason=TYPE_INVALID)


def not_supported(path: Path | str, value: Any, supported: Iterable[str]) -> FieldError:
    values = ", ".join(go_quote(s) for s in supported)
    detail = f"supported values: {values}" if values else ""
    return _error(NOT_SUPPORTED, path, _with(f"Unsupported value: {show(value)}", detail))


def duplicate(path: Path | str, value: Any) -> FieldError:
    return _error(DUPLICATE, path, f"Duplicate value: {show(value)}")


def not_found(path: Path | str, value: Any) -> FieldError:
    return _error(NOT_FOUND, path, f"Not found: {show(value)}")


def forbidden(path: Path | str, detail: str) -> FieldError:
    return _error(FORBIDDEN, path, _with("Forbidden", detail))


def too_long(path: Path | str, limit: int, *, unit: str = "byte") -> FieldError:
    units = unit if limit == 1 else f"{unit}s"
    return _error(TOO_LONG, path, f"Too long: may not be more than {limit} {units}")


def too_many(path: Path | str, actual: int, limit: int) -> FieldError:
    items = "item" if limit == 1 else "items"
    return _error(TOO_MANY, path, f"Too many: {actual}: must have at most {limit} {items}")


def internal(path: Path | str, detail: str) -> FieldError:
    return _error(INTERNAL, path, f"Internal error: {detail}")
