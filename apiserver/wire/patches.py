"""Read PATCH requests: the media type that names the kind of patch, and the bodies.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/{patch,rest}.go`, kubernetes/apimachinery `pkg/util/yaml/decoder.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.apimachinery import errors
from apiserver.codecs.json import json_strings, json_syntax, rawjson
from apiserver.codecs.yaml import as_yaml, yaml_scalars
from apiserver.kinds import type_meta
from apiserver.wire import as_json, complaints

UPSTREAM = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
"""The media types that an error lists first, as upstream's does."""
DEPTH = 500
"""Levels of nesting in a patch: enough for real ones, and small enough for the objects that contain its values."""

_OPERATION = complaints.elements(
    complaints.members(
        {"op": complaints.opaque, "path": complaints.opaque, "from": complaints.opaque, "value": complaints.anything}
    )
)
_MEMBERS = frozenset({"op", "path", "from", "value"})


def media_type(content_type: str, served: Collection[str]) -> str:
    """Return the served media type of a patch. Raises the router's 415, or the handler's if only the router accepts the header."""
    if not any(part.partition(";")[0].strip(" ") in served for part in content_type.split(",")):
        raise errors.unsupported_media_type_route()
    exact = content_type.partition(";")[0]
    if exact not in served:
        raise errors.unsupported_media_type([*UPSTREAM, *(media for media in served if media not in UPSTREAM)])
    return exact


def media_type_of_custom(content_type: str, served: Sequence[str]) -> str:
    """Return the same for a custom resource, which no router looks at. Raises 415."""
    exact = content_type.partition(";")[0]
    if exact not in served:
        raise errors.unsupported_media_type(served)
    return exact


@dataclass(frozen=True, slots=True)
class Document:
    """A patch as its type takes it, and the errors of strict decoding."""

    value: Any
    complaints: Sequence[str] = ()


def check_json(raw: bytes) -> None:
    """Raise 400 for a patch that is not JSON, and 413. Upstream: validateAndTranscodePatch."""
    json_syntax.check_memory(raw)
    if not as_json.is_valid(raw):
        raise errors.bad_request("invalid JSON patch")


def check_yaml(raw: bytes) -> None:
    """Raise 400 for a patch that is not YAML, and 413. Upstream: validateAndTranscodePatch."""
    json_syntax.check_memory(raw)
    if _plain_json(raw) is None:
        try:
            as_yaml.read(raw)
        except as_yaml.YAMLProblem as e:
            raise errors.bad_request(f"error encoding patch: {e}") from e


def read_json_patch(raw: bytes, validation: str) -> Document:
    """Return the JSON of the operations, after a check of their types; null is an empty list. `validation` is Strict, Warn or Ignore.
    Raises 400 and 413."""
    lenient = validation == "Ignore"
    found, wrong = _read(raw)
    wrong = wrong or _not_operations(found.value, lenient=lenient)
    if wrong:
        raise errors.bad_request(wrong if lenient else f"error decoding patch: {wrong}")
    text = _text(raw, found)
    if lenient or not (found.suspicious or any(not _MEMBERS.issuperset(o or ()) for o in found.value or ())):
        return Document(text)
    return Document(text, [f"json patch {said}" for said in complaints.find_in_text(text.decode(), _OPERATION)])


def read_merge_patch(raw: bytes, validation: str) -> Document:
    """Return the JSON of the members. Without strict decoding a list passes too, and replaces the object. Raises 400 and 413."""
    lenient = validation == "Ignore"
    found, wrong = _read(raw)
    if not wrong and found.value is not None and not isinstance(found.value, (dict, list) if lenient else dict):
        wrong = (
            f"json: cannot unmarshal {type_meta.json_kind(found.value)} into Go value of type map[string]interface {{}}"
        )
    if wrong and not lenient:
        raise errors.bad_request(f"error decoding patch: {wrong}")
    if wrong or found.value is None:
        raise errors.bad_request("Invalid JSON Patch")
    judged = found.suspicious and not lenient
    return Document(_text(raw, found), complaints.find_in_text(found.text, complaints.anything) if judged else ())


def read_strategic_patch(raw: bytes, validation: str) -> Document:
    """Return the members, the last of repeated ones; null is empty. Whole numbers of 64 bits are exact, others are floats. Raises 400 and
    413."""
    found, wrong = _read(raw)
    if not wrong and found.value is not None and not isinstance(found.value, dict):
        kind = type_meta.json_kind(found.value)
        wrong = f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
    if wrong:
        raise errors.bad_request(wrong)
    try:
        value = exact_numbers(found.value, raw)
    except json_syntax.TooBig as e:
        raise errors.bad_request(str(e)) from None
    judged = found.suspicious and validation != "Ignore"
    return Document(value or {}, complaints.find_in_text(found.text, complaints.anything) if judged else ())


def exact_numbers(value: Any, raw: bytes) -> Any:
    """Return the value of this JSON text with numbers as Go has them: integers that 64 bits hold, and floats. Raises TooBig."""
    try:
        return _renumbered(value, _json_number) if rawjson.may_exceed_int64(raw) else value
    except OverflowError:
        raise json_syntax.too_big(raw) or json_syntax.TooBig("exceeded max depth") from None


_NOT_YAML = json_strings.linear(rb"\\u[dD]|\\/|\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf|\xef\xbf[\xbe\xbf]")
"""Parts of JSON that have another meaning or none in YAML: lone surrogates, escaped slashes, control characters, line ends and the like."""
_APART, _LENGTHY = re.compile(rb'"\s+:'), re.compile(rb'"[^"]{1000}')
"""A colon apart from its key, perhaps on the next line, which YAML does not accept; and the look of a long key, unless it contains
quotes."""
_KEY_CHARACTERS, _ESCAPED = 1022, 6
"""Characters that a key of YAML may have, as it is written: its colon stands at most 1024 characters behind its first quote. And the most
characters that one escaped character takes."""
_NUMBERS = json_strings.linear(rb"[\s\v:,\[]-?(?:[0-9]+(?:\.[0-9]|[eE])|[0-9]{19})")
"""Matches possible numbers that are not integers, or are long."""
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def read_apply_patch(raw: bytes, validation: str, *, noun: str = "patch") -> Document:
    """Return the applied configuration: the first document of the YAML, with the last of repeated members; {} for an empty body.

    Whole numbers of 64 bits are exact, others are floats. One error lists all repeated members. `noun` is what errors call the body.
    Raises 400 and 413.
    """
    json_syntax.check_memory(raw)
    found = _plain_json(raw)
    value, repeats = (found.value, "") if found is not None else _read_yaml(raw, noun)
    if found is None or _NUMBERS.search(raw):
        value = _renumbered(value, _yaml_number)
    if value is not None and not isinstance(value, dict):
        wrong = f"json: cannot unmarshal {type_meta.json_kind(value)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding {noun}: error unmarshaling JSON: while decoding JSON: {wrong}")
    found_errors = [f"error converting YAML to JSON: {repeats}"] if repeats and validation != "Ignore" else []
    return Document(value or {}, found_errors)


def _plain_json(raw: bytes) -> as_json.Reading | None:
    """Return the value of JSON that YAML reads as the same value, None for other documents."""
    found = None if _NOT_YAML.search(raw) or _APART.search(raw) else as_json.plain(raw)
    if found is not None and (_LENGTHY.search(raw) or b'\\"' in raw) and _may_have_long_keys(found.value):
        return None
    return found


def _may_have_long_keys(value: Any) -> bool:
    """Return whether some key might have been written with more characters than YAML certainly accepts."""
    left = [value]
    while left:
        here = left.pop()
        if isinstance(here, dict):
            if any(len(name) * _ESCAPED > _KEY_CHARACTERS for name in here):
                return True
            left.extend(x for x in here.values() if isinstance(x, dict | list))
        elif isinstance(here, list):
            left.extend(x for x in here if isinstance(x, dict | list))
    return False


def _read_yaml(raw: bytes, noun: str) -> tuple[Any, str]:
    """Return the value, and the text about repeated members."""
    try:
        converted = as_yaml.read(raw)
    except as_yaml.YAMLProblem as e:
        raise errors.bad_request(f"error decoding {noun}: error converting YAML to JSON: {e}") from e
    if as_json.deeper_than(converted.value, DEPTH):
        raise errors.bad_request(f"error decoding {noun}: exceeded max depth of {DEPTH}")
    return converted.value, converted.repeats


def _renumbered(value: Any, number: Callable[[int | float], int | float]) -> Any:
    """Return the value with every number replaced by the function's result."""
    whole = [value]
    left: list[Any] = [whole]
    seen: set[int] = set()
    while left:
        here = left.pop()
        for place, x in here.items() if isinstance(here, dict) else enumerate(here):
            if isinstance(x, dict | list):
                if id(x) not in seen:
                    seen.add(id(x))
                    left.append(x)
            elif isinstance(x, int | float) and not isinstance(x, bool):
                here[place] = number(x)
    return whole[0]


def _json_number(found: int | float) -> int | float:
    """Return an integer if 64 bits hold it, otherwise a float."""
    return found if isinstance(found, int) and _LEAST <= found <= _MOST else float(found)


def _yaml_number(found: int | float) -> int | float:
    """Return a number as it comes back from YAML: a whole one is an integer if 64 bits hold it."""
    return _json_number(yaml_scalars.json_number(found) if isinstance(found, float) else found)


def _read(raw: bytes) -> tuple[as_json.Reading, str]:
    """Return the value, or the error text."""
    json_syntax.check_memory(raw)
    try:
        found = as_json.read(raw)
        if found.suspicious and as_json.deeper_than(found.value, DEPTH):
            raise as_json.SyntaxProblem("exceeded max depth")
    except as_json.SyntaxProblem as e:
        return as_json.Reading(None), str(e)
    return found, ""


def _text(raw: bytes, found: as_json.Reading) -> bytes:
    """Return the patch with U+FFFD in place of bytes that are not UTF-8."""
    return found.text.encode() if found.suspicious else raw


def _not_operations(value: Any, *, lenient: bool) -> str:
    """Return Go's error for a value that is not a list of operations; "" if it is one."""
    whole, single = (
        ("jsonpatch.Patch", "jsonpatch.Operation") if lenient else ("[]handlers.jsonPatchOp", "handlers.jsonPatchOp")
    )
    if value is not None and not isinstance(value, list):
        return f"json: cannot unmarshal {type_meta.json_kind(value)} into Go value of type {whole}"
    for operation in value or ():
        if operation is not None and not isinstance(operation, dict):
            return f"json: cannot unmarshal {type_meta.json_kind(operation)} into Go value of type {single}"
        for name, x in () if lenient else (operation or {}).items():
            if name in ("op", "path", "from") and x is not None and not isinstance(x, str):
                return f"json: cannot unmarshal {type_meta.json_kind(x)} into Go struct field jsonPatchOp.{name} of type string"
    return ""
