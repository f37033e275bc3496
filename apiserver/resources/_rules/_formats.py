"""Formats and rules that several kinds share: names, versions, addresses, opaque JSON, node selectors, conditions.

Each is a `Check`: it yields the errors of one value, on the given path. Knows no kind.
Upstream: kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`, `pkg/apis/core/validation/validation.go`,
kubernetes/apimachinery `pkg/apis/meta/v1/validation/validation.go`, `pkg/util/validation/ip.go`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import times
from apiserver.schema.types import Check, Field, ListOf, ListType, String
from kubetext import names, quoting

MODEL = "io.k8s.api.resource.v1"
"""The OpenAPI package of the kinds' own types."""

CORE_NAMES = frozenset({"v1.ResourceName"})
"""Go types of kubernetes/api `core/v1` among the members' types; that package has the same name."""

HOME = "resource.k8s.io"
"""Upstream's group of these kinds, which serves their deprecated versions by default."""

EFFECTS = ("NoExecute", "NoSchedule", "None")
"""The effects of taints, in the order in which errors name them."""

BINDING_CONDITIONS = 4
BINDING = "#binding"
"""The place of errors about both lists of conditions, see `Struct.judged`."""
DRIVER_BYTES, POOL_BYTES, IDENTIFIER_BYTES, VERSION_BYTES, OPAQUE_BYTES = 63, 253, 32, 64, 10240
CONDITION_REASON_BYTES, CONDITION_MESSAGE_BYTES = 1024, 32768

_is_reason = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters "
    "or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or "
    f"'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_is_reason.pattern}')"
)
_PRERELEASE = r"(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9a-zA-Z-]+"
_is_semver = re.compile(
    rf"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){{2}}(-{_PRERELEASE}(\.{_PRERELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?"
).fullmatch
_is_hex = re.compile(r"[0-9a-fA-F]+").fullmatch
_is_ipv4 = re.compile(r"[0-9]+(\.[0-9]+){3}").fullmatch


def by_name(item: Mapping[str, Any]) -> Any:
    """Return the identity of list elements that have a name."""
    return item.get("name", "")


def itself(item: Any) -> Any:
    """Return the identity of scalar list elements."""
    return item


def _worded(rule: Callable[[str], list[str]]) -> Check:
    """Make a check from a function that lists the errors of a text."""

    def check(value: str, path: Path) -> list[FieldError]:
        return [fieldpath.invalid(path, value, text) for text in rule(value)]

    return check


label = _worded(names.dns_label)
subdomain = _worded(names.dns_subdomain)
node_name = subdomain
label_key = _worded(names.label_key)
label_value = _worded(names.label_value)


def given(check: Check) -> Check:
    """Make `check` accept the empty text, for a member in which it means unset."""
    return lambda value, path: check(value, path) if value else ()


def positive(value: int, path: Path) -> Iterator[FieldError]:
    if value <= 0:
        yield fieldpath.invalid(path, value, "must be greater than zero")


def not_negative(value: int, path: Path) -> Iterator[FieldError]:
    if value < 0:
        yield fieldpath.invalid(path, value, "must be greater than or equal to zero")


def true_or_unset(value: bool, path: Path) -> Iterator[FieldError]:  # noqa: FBT001 - the signature of a check
    if not value:
        yield fieldpath.invalid(path, value, "must be either unset or set to true")


def _driver(value: str, path: Path) -> list[FieldError]:
    """Check a driver name. Upper case is legal (the slice's warning asks for lower case)."""
    return [fieldpath.invalid(path, value, text) for text in names.dns_subdomain(names.lower(value))]


def driver_name(value: str, path: Path) -> Iterator[FieldError]:
    """Check a driver's name, or the domain part of a qualified name."""
    if names.byte_length(value) > DRIVER_BYTES:
        yield fieldpath.too_long(path, DRIVER_BYTES)
    yield from _driver(value, path)


def pool_name(value: str, path: Path) -> Iterator[FieldError]:
    for part in value.split("/"):
        yield from subdomain(part, path)


DRIVER = String(max_bytes=DRIVER_BYTES, check=_driver)
POOL = String(max_bytes=POOL_BYTES, check=pool_name)
LABEL = String(check=label)


def _identifier(value: str, path: Path) -> Iterator[FieldError]:
    if names.byte_length(value) > IDENTIFIER_BYTES:
        yield fieldpath.too_long(path, IDENTIFIER_BYTES)
    for text in names.c_identifier(value):
        yield fieldpath.invalid(path, value, text)


def qualified_name(value: str, path: Path) -> Iterator[FieldError]:
    """Check `identifier` or `domain/identifier`. Names with two slashes or more are not checked, as in 1.36."""
    parts = value.split("/")
    if len(parts) == 1:
        yield from _identifier(value, path)
    elif len(parts) == 2:
        domain, name = parts
        yield from (
            driver_name(domain, path) if domain else [fieldpath.invalid(path, "", "the domain must not be empty")]
        )
        yield from _identifier(name, path) if name else [fieldpath.invalid(path, "", "the name must not be empty")]


def fully_qualified_name(value: str, path: Path) -> Iterator[FieldError]:
    yield from qualified_name(value, path)
    if "/" not in value:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        yield fieldpath.invalid(path, fieldpath.Typed(value), text)


def semantic_version(value: str, path: Path) -> Iterator[FieldError]:
    if not _is_semver(value):
        yield fieldpath.invalid(path, value, "must be a string compatible with semver.org spec 2.0.0")
    if names.byte_length(value) > VERSION_BYTES:
        yield fieldpath.too_long(path, VERSION_BYTES)


def _uuid_problem(text: str) -> str:
    """Return the error of github.com/google/uuid `Validate`; empty for a valid text."""
    length = names.byte_length(text)
    if length == 45:
        prefix = text.encode(errors="surrogateescape")[:9]
        if prefix.lower() != b"urn:uuid:":
            return f"invalid urn prefix: {quoting.go_quote(prefix.decode(errors='surrogateescape'))}"
        text = text[9:]
    elif length == 38:
        if text[0] != "{" or text[-1] != "}":
            return "invalid bracketed UUID format"
        text = text[1:-1]
    elif length not in (36, 32):
        return f"invalid UUID length: {length}"
    groups = text.split("-")
    whole = length == 32 or [len(g) for g in groups] == [8, 4, 4, 4, 12]
    return "" if whole and _is_hex("".join(groups)) and (length != 32 or len(groups) == 1) else "invalid UUID format"


def uid(value: str, path: Path) -> Iterator[FieldError]:
    problem = _uuid_problem(value)
    if problem:
        yield fieldpath.invalid(path, value, f"error validating uid: {problem}")
    elif len(value) != 36 or value != value.lower():
        yield fieldpath.invalid(
            path,
            value,
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` "
            "with lowercase hexadecimal characters",
        )


_MANY = 1 << 24


def _decimal(digits: str) -> int:
    """Return the number, or `_MANY` if it has more digits than any limit. It may have thousands of leading zeros."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) < 8 else _MANY


def _ipv4(text: str) -> ipaddress.IPv4Address | None:
    """Parse an IPv4 address. Leading zeros are decimal, as in Go's parser before 1.17, which upstream keeps for stored objects."""
    if not _is_ipv4(text):
        return None
    octets = [_decimal(part) for part in text.split(".")]
    return ipaddress.IPv4Address(bytes(octets)) if max(octets) <= 255 else None


def _ipv6(text: str) -> ipaddress.IPv6Address | None:
    head, _, tail = text.rpartition(":")
    if "." in tail:
        embedded = _ipv4(tail)
        if embedded is None:
            return None
        number = int(embedded)
        text = f"{head}:{number >> 16:x}:{number & 0xFFFF:x}"
    if "%" in text:
        return None
    try:
        return ipaddress.IPv6Address(":".join(group.lstrip("0") or group[:1] for group in text.split(":")))
    except ValueError:
        return None


def _canonical_address(text: str) -> str | None:
    """Return `address/prefix` as Go prints it, host bits kept; None for any other text."""
    address, slash, prefix = text.partition("/")
    if not slash or not prefix.isascii() or not prefix.isdigit():
        return None
    bits = _decimal(prefix)
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address | None = _ipv4(address) or _ipv6(address)
    if ip is None or bits > ip.max_prefixlen:
        return None
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip, bits = ip.ipv4_mapped, bits - 96 if bits > 32 else bits
    return f"{ip}/{bits}"


def interface_address(value: str, path: Path) -> Iterator[FieldError]:
    """Check an address with its prefix length, in the canonical spelling."""
    canonical = _canonical_address(value)
    if canonical is None:
        text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        yield fieldpath.invalid(path, value, text)
    elif canonical != value:
        yield fieldpath.invalid(path, value, f"must be in canonical form ({quoting.go_quote(canonical)})")


def opaque(value: Any, path: Path, *, stored: bool = False) -> Iterator[FieldError]:
    """Check a JSON object of a driver's own format. A stored one may have any length."""
    if value is None:
        yield fieldpath.required(path)
    elif not stored and len(rawjson.text(value)) > OPAQUE_BYTES:
        yield fieldpath.too_long(path, OPAQUE_BYTES)
    else:
        yield from _object(value, path)


def _object(value: Any, path: Path) -> Iterator[FieldError]:
    try:
        found = rawjson.parsed(value)
    except ValueError as e:
        yield fieldpath.invalid(path, "<value omitted>", f"error parsing data as JSON: {e}")
        return
    if not isinstance(found, dict):
        yield fieldpath.invalid(path, "<value omitted>", "must be a valid JSON object")


def node_selector(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Check a required core/v1 NodeSelector: at least one term."""
    terms = path.child("nodeSelectorTerms")
    given_terms = value.get("nodeSelectorTerms") or ()
    if not given_terms:
        yield fieldpath.required(terms, "must have at least one node selector term")
    for i, term in enumerate(given_terms):
        for j, wanted in enumerate(term.get("matchExpressions") or ()):
            at = terms.index(i).child("matchExpressions").index(j)
            yield from (error.at(at) for error in _label_requirement(wanted, at))
        for j, wanted in enumerate(term.get("matchFields") or ()):
            at = terms.index(i).child("matchFields").index(j)
            yield from (error.at(at) for error in _field_requirement(wanted, at))


def _label_requirement(wanted: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    operator, values = wanted.get("operator", ""), wanted.get("values") or ()
    at = path.child("values")
    if operator in ("In", "NotIn"):
        if not values:
            yield fieldpath.required(at, "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield fieldpath.forbidden(at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield fieldpath.required(at, "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield fieldpath.invalid(path.child("operator"), fieldpath.Typed(operator), "not a valid selector operator")
    yield from label_key(wanted.get("key", ""), path.child("key"))
    for i, value in enumerate(values):
        yield from label_value(value, at.index(i))


def _field_requirement(wanted: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    operator, values, key = wanted.get("operator", ""), wanted.get("values") or (), wanted.get("key", "")
    at = path.child("values")
    if operator not in ("In", "NotIn"):
        yield fieldpath.invalid(path.child("operator"), fieldpath.Typed(operator), "not a valid selector operator")
    elif len(values) != 1:
        yield fieldpath.required(
            at, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        )
    if key != "metadata.name":
        yield fieldpath.invalid(path.child("key"), key, "not a valid field selector key")
        return
    for i, value in enumerate(values):
        yield from node_name(value, at.index(i))


def conditions(value: Sequence[Mapping[str, Any]], path: Path) -> Iterator[FieldError]:
    """Check a list of meta/v1 Conditions, one of each type, as releases before 1.37 do."""
    return _conditions(value, path, named=False)


def named_conditions(value: Sequence[Mapping[str, Any]], path: Path) -> Iterator[FieldError]:
    """Check a list of meta/v1 Conditions as 1.37 does: an empty type or status is reported as missing, and a repeated type on its
    condition."""
    return _conditions(value, path, named=True)


def _conditions(value: Sequence[Mapping[str, Any]], path: Path, *, named: bool) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, condition in enumerate(value):
        at, kind = path.index(i), condition.get("type", "")
        if kind in seen:
            yield fieldpath.duplicate(at if named else at.child("type"), kind).at(at)
        seen.add(kind)
        yield from (error.at(at) for error in _condition(condition, at, named=named))


def _condition(condition: Mapping[str, Any], path: Path, *, named: bool) -> Iterator[FieldError]:
    kind, status = condition.get("type", ""), condition.get("status", "")
    if named and not kind:
        yield fieldpath.required(path.child("type"), "is required")
    else:
        yield from label_key(kind, path.child("type"))
    if named and not status:
        yield fieldpath.required(path.child("status"))
    elif status not in ("False", "True", "Unknown"):
        yield fieldpath.not_supported(path.child("status"), fieldpath.Typed(status), ("False", "True", "Unknown"))
    yield from not_negative(condition.get("observedGeneration", 0), path.child("observedGeneration"))
    if condition.get("lastTransitionTime") in (None, times.ZERO):
        yield fieldpath.required(path.child("lastTransitionTime"))
    yield from _reason(condition.get("reason", ""), path.child("reason"))
    if names.byte_length(condition.get("message", "")) > CONDITION_MESSAGE_BYTES:
        yield fieldpath.too_long(path.child("message"), CONDITION_MESSAGE_BYTES)


def _reason(value: str, path: Path) -> Iterator[FieldError]:
    if not value:
        yield fieldpath.required(path)
    elif not _is_reason.fullmatch(value):
        yield fieldpath.invalid(path, value, _REASON)
    if names.byte_length(value) > CONDITION_REASON_BYTES:
        yield fieldpath.too_long(path, CONDITION_REASON_BYTES)


OPERATIONS = ("*", "NodePrepareResources", "NodeUnprepareResources")


def _skipped_operations(value: Sequence[str], path: Path) -> Iterator[FieldError]:
    """Check that what is prepared on the node is also cleaned up there."""
    if "NodePrepareResources" in value and not {"NodeUnprepareResources", "*"} & set(value):
        text = "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
        yield fieldpath.invalid(path, list(value), text)


def skipped_operations_field(number: int, doc: str) -> Field:
    """Return the member `skipNodeOperations`, a set. Consumers ignore operations that they do not know."""
    operation = String(go="v1.SkipNodeOperation", enum=OPERATIONS, known=OPERATIONS)
    operations = ListOf(operation, ListType.SET, unique=fieldpath.Typed)
    return Field(name="skipNodeOperations", number=number, type=operations, check=_skipped_operations, doc=doc)


def binding_conditions_field(name: str, number: int, doc: str) -> Field:
    conditions_ = ListOf(String(check=label_key), max_items=BINDING_CONDITIONS)
    return Field(name=name, number=number, type=conditions_, doc=doc)


def binding_conditions(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Check the conditions of a device, or of an allocation result, against each other. Each list's own limits are in its shape."""
    return (error.at(path.child(BINDING)) for error in _binding_conditions(value, path))


def _binding_conditions(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield the errors. Repetitions are found in lists of any length, as upstream does."""
    wanted, failures = value.get("bindingConditions"), value.get("bindingFailureConditions")
    yield from _repeated(wanted or (), path.child("bindingConditions"))
    at = path.child("bindingFailureConditions")
    yield from _repeated(failures or (), at, elsewhere=frozenset(wanted or ()))
    if failures and not wanted:
        text = "bindingConditions are required to use bindingFailureConditions"
        yield fieldpath.invalid(path.child("bindingConditions"), wanted, text)
    if wanted and not failures:
        yield fieldpath.invalid(at, failures, "bindingFailureConditions are required to use bindingConditions")


def _repeated(conditions: Sequence[str], path: Path, *, elsewhere: Collection[str] = ()) -> Iterator[FieldError]:
    seen: set[str] = set()
    for i, name in enumerate(conditions):
        if name in seen:
            yield fieldpath.duplicate(path.index(i), name)
        seen.add(name)
        if name in elsewhere:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            yield fieldpath.invalid(path.index(i), name, text)


def each(check: Check) -> Check:
    """Make `check` run for every element of a list."""

    def all_of(value: Iterable[Any], path: Path) -> Iterator[FieldError]:
        for i, item in enumerate(value):
            yield from check(item, path.index(i))

    return all_of
