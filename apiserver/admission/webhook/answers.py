"""A webhook's answer as Go decodes an AdmissionReview: which values fit their members, and the words for those that do not.

Upstream: kubernetes-sigs/json `internal/golang/encoding/json/decode.go`, kubernetes/apimachinery
`pkg/runtime/serializer/json/{meta,json}.go`, `pkg/runtime/{error,scheme}.go`, kubernetes/api `admission/v1/types.go`.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from apiserver.apimachinery import strconv
from apiserver.apimachinery.fieldpath import go_quote
from apiserver.schema import json_syntax

SCHEME = "k8s.io/apiserver/pkg/util/webhook/client.go:81"
"""The name of upstream's scheme for reviews, which is where it is made."""
_GO_STRUCT = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
_MIN, _MAX = -(1 << 31), (1 << 31) - 1

_decode = msgspec.json.Decoder(float_hook=strconv.parse_float).decode


class Unlike(ValueError):
    """The bytes are no AdmissionReview; the text is upstream's."""


class _Is(NamedTuple):
    """What a member must hold: the JSON type, Go's name for its type, and what is inside: members by name, or `of` every element."""

    json: str
    go: str
    struct: str = ""
    members: Mapping[str, _Is] = {}
    of: _Is | None = None


_STRING = _Is("string", "string")
_INT32 = _Is("number", "int32")
_CAUSE = _Is(
    "object",
    "v1.StatusCause",
    "StatusCause",
    {"reason": _Is("string", "v1.CauseType"), "message": _STRING, "field": _STRING},
)
_DETAILS = _Is(
    "object",
    "v1.StatusDetails",
    "StatusDetails",
    {
        "name": _STRING,
        "group": _STRING,
        "kind": _STRING,
        "uid": _Is("string", "types.UID"),
        "causes": _Is("array", "[]v1.StatusCause", of=_CAUSE),
        "retryAfterSeconds": _INT32,
    },
)
_LIST_META = _Is(
    "object",
    "v1.ListMeta",
    "ListMeta",
    {
        "selfLink": _STRING,
        "resourceVersion": _STRING,
        "continue": _STRING,
        "remainingItemCount": _Is("number", "int64"),
    },
)
_STATUS = _Is(
    "object",
    "v1.Status",
    "Status",
    {
        "kind": _STRING,
        "apiVersion": _STRING,
        "metadata": _LIST_META,
        "status": _STRING,
        "message": _STRING,
        "reason": _Is("string", "v1.StatusReason"),
        "details": _DETAILS,
        "code": _INT32,
    },
)


def _review(package: str) -> _Is:
    response = _Is(
        "object",
        f"{package}.AdmissionResponse",
        "AdmissionResponse",
        {
            "uid": _Is("string", "types.UID"),
            "allowed": _Is("bool", "bool"),
            "status": _STATUS,
            "patch": _Is("string", "[]uint8"),
            "patchType": _Is("string", f"{package}.PatchType"),
            "auditAnnotations": _Is("object", "map[string]string", of=_STRING),
            "warnings": _Is("array", "[]string", of=_STRING),
        },
    )
    members = {"kind": _STRING, "apiVersion": _STRING, "response": response}
    return _Is("object", f"{package}.AdmissionReview", "AdmissionReview", members)


_REVIEWS = {version: _review(version) for version in ("v1", "v1beta1")}


def decoded(data: bytes, version: str) -> dict[str, Any]:
    """The review, every member of its response null or of its type. Raises Unlike."""
    try:
        value = loads(data)
    except json_syntax.SyntaxProblem as problem:
        raise Unlike(f"couldn't get version/kind; json parse error: {problem}") from None
    _check_kind(value, version)
    for mismatch in _mismatches(_REVIEWS[version], value, ()):
        raise Unlike(mismatch)
    found: dict[str, Any] = value
    return found


def loads(data: bytes) -> Any:
    """Raises SyntaxProblem with Go's text."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        json_syntax.check(data)
    try:
        return _decode(json_syntax.mended(data))
    except (msgspec.DecodeError, ValueError) as error:
        raise json_syntax.too_big(data) or json_syntax.SyntaxProblem(str(error)) from None
    except RecursionError:
        raise json_syntax.SyntaxProblem("exceeded max depth") from None


def _check_kind(value: Any, version: str) -> None:
    """An answer may leave out its kind and apiVersion, but not state others."""
    if not isinstance(value, dict):
        what = _json_type(value)
        text = f"json: cannot unmarshal {what} into Go value of type {_GO_STRUCT}"
        raise Unlike(f"couldn't get version/kind; json parse error: {text}")
    kind, api_version = value.get("kind") or "AdmissionReview", value.get("apiVersion") or f"admission.k8s.io/{version}"
    if kind == "AdmissionReview" and api_version == f"admission.k8s.io/{version}":
        return
    if kind == "AdmissionReview" and api_version in ("admission.k8s.io/v1", "admission.k8s.io/v1beta1"):
        stated = api_version.partition("/")[2]
        raise Unlike(f"converting ({stated}.{kind}) to ({version}.{kind}): unknown conversion")
    raise Unlike(
        f"no kind {go_quote(str(kind))} is registered for version {go_quote(str(api_version))} in scheme {go_quote(SCHEME)}"
    )


def _mismatches(wanted: _Is, value: Any, path: tuple[str, ...], struct: str = "") -> Iterator[str]:
    """What Go would refuse, in the order in which it comes."""
    if value is None:
        return
    found = _json_type(value)
    if found == "number" == wanted.json and not (isinstance(value, int) and _MIN <= value <= _MAX):
        found = f"number {value}"
    if found != wanted.json:
        where = f"struct field {struct}.{'.'.join(path)}" if path else "value"
        yield f"json: cannot unmarshal {found} into Go {where} of type {wanted.go}"
        return
    if wanted.go == "[]uint8":
        yield from _not_base64(value)
    elif wanted.of is not None:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _mismatches(wanted.of, item, path, struct)
    elif wanted.members:
        for name, member in value.items():
            if name in wanted.members:
                yield from _mismatches(wanted.members[name], member, (*path, name), wanted.struct)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


# ------------------------------------------------------------------------------------------------------------------------- patches

_LETTERS = re.compile(r"[A-Za-z0-9+/\r\n]*")


def patch_of(response: Mapping[str, Any]) -> bytes:
    """The text of a response's patch."""
    return b64decode((response.get("patch") or "").replace("\r", "").replace("\n", ""))


def _not_base64(text: str) -> Iterator[str]:
    """Go's words for what is wrong with base64 (golang/go `src/encoding/base64/base64.go`)."""
    try:
        b64decode(text.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        match = _LETTERS.match(text)
        yield f"illegal base64 data at input byte {match.end() if match else 0}"


def why_no_patch(text: bytes) -> str:
    """Why a text is no JSON patch."""
    try:
        value = loads(text)
    except json_syntax.SyntaxProblem as problem:
        return str(problem)
    if not isinstance(value, list):
        return f"json: cannot unmarshal {_json_type(value)} into Go value of type jsonpatch.Patch"
    wrong = next((x for x in value if x is not None and not isinstance(x, dict)), None)
    return f"json: cannot unmarshal {_json_type(wrong)} into Go value of type jsonpatch.Operation"
