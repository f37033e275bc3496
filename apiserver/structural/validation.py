"""Validate values by a schema, with the errors of kube-openapi in its words.

A schema is compiled once: each node becomes a function that says whether a value fits. Most values do, so errors are looked for only when
it says no. Both follow the same upstream rules, some of which surprise: they are marked.
Upstream: kubernetes/kube-openapi `pkg/validation/{validate,errors}`, kubernetes/apiextensions-apiserver
`pkg/apiserver/validation/{validation,ratcheting,formats}.go`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.apimachinery.releases import NEWEST, Release, at
from apiserver.schema.structural import Source, Structural
from apiserver.structural import formats
from apiserver.structural.correlation import Correlated
from apiserver.structural.enumeration import Enumeration
from apiserver.structural.numbers import IS_INTEGRAL, Numbers
from apiserver.structural.values import shown
from kubecel.values import regexes
from kubecel.values.errors import CostExceeded
from kubetext.quoting import go_quote

Check = Callable[[Any], bool]
"""Whether a value fits."""

KEY_CHARACTERS = 1_024
"""Characters of a map key that paths show. One long key would make each error below it as long."""


class Found(NamedTuple):
    """An error before it is written. `tail` ends the message that begins with the path. Errors that agree in the first three are reported
    once, as upstream drops errors with the same message."""

    code: str
    path: str
    tail: str
    value: Any = None


class Validator:
    """Validates the values of one schema. It is compiled when the first value comes, because many schemas never get one."""

    __slots__ = ("_compiled", "_source")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._compiled: dict[Release, _Node] = {}

    def _root(self, release: Release) -> _Node:
        root = self._compiled.get(release)
        if root is None:
            root = self._compiled[release] = _Compiler(release).node(self._source)
        return root

    def prepare(self, release: Release) -> None:
        """Compile the schema for a release, unless that was done. Takes a tenth of a second for the largest schemas."""
        self._root(release)

    def fits(self, value: Any, release: Release = NEWEST) -> bool:
        """Return whether a value has no errors."""
        return self._root(release).fits(value)

    def errors(
        self, value: Any, correlated: Correlated | None = None, *, path: str = "", release: Release = NEWEST
    ) -> Iterator[FieldError]:
        """Yield the errors of a value, found while they are asked for.

        `correlated` has the old value: errors at its unchanged parts are left out. `path` is the value's own place, which messages of
        errors do not repeat.
        """
        seen = set()
        for found in _errors(self._root(release), value, _Place("", correlated)):
            key = found[:3]
            if key not in seen:
                seen.add(key)
                yield _written(found, path)


def validator(schema: Structural) -> Validator:
    """Return the validator of a schema."""
    return Validator(schema.source)


# Schemas


_ALL_KINDS = (bool, int, float, str, list, dict)
_NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
_GO_FORMATS = {int: "int64", float: "float64"}


class _Node:
    """One compiled node. `types` are the JSON types that it names. `format` is "" if it does not apply to them."""

    __slots__ = (
        "additional",
        "all_of",
        "any_of",
        "checks",
        "enumeration",
        "fits",
        "format",
        "has_format",
        "is_integral",
        "items",
        "max_items",
        "max_length",
        "max_properties",
        "min_items",
        "min_length",
        "min_properties",
        "negated",
        "nullable",
        "numbers",
        "one_of",
        "pattern",
        "properties",
        "required",
        "types",
    )

    def __init__(self, source: Source, release: Release, below: _Compiler) -> None:
        kind = source.get("type") or ""
        self.types: tuple[str, ...] = (kind,) if kind else ()
        if source.get("x-kubernetes-int-or-string"):
            self.types = ("integer", "string")
        self.nullable = bool(source.get("nullable"))
        self.format = formats.applied(source.get("format") or "", self.types)
        self.has_format: Check | None = formats.of(self.format)
        self.max_length: int | None = source.get("maxLength")
        self.min_length: int | None = source.get("minLength")
        self.pattern = _Pattern(source["pattern"]) if source.get("pattern") else None
        self.max_items: int | None = source.get("maxItems")
        self.min_items: int | None = source.get("minItems")
        self.max_properties: int | None = source.get("maxProperties")
        self.min_properties: int | None = source.get("minProperties")
        self.required: tuple[str, ...] = tuple(source.get("required") or ())
        self.enumeration = Enumeration(source["enum"]) if source.get("enum") else None
        self.is_integral = at(release, IS_INTEGRAL)
        self.numbers = Numbers.of(source, self.types, self.format, release)
        self.properties: Mapping[str, _Node] = {
            name: below.node(member) for name, member in (source.get("properties") or {}).items()
        }
        self.additional = below.member(source, "additionalProperties")
        self.items = below.member(source, "items")
        self.any_of = below.branches(source, "anyOf")
        self.one_of = below.branches(source, "oneOf")
        self.all_of = below.branches(source, "allOf")
        self.negated = below.member(source, "not")
        # For each kind of value: None if all fit, else the check.
        self.checks: dict[type, Check | None] = {}
        self.fits: Check = self._check()

    def type_problem(self, value: Any) -> tuple[str, str] | None:
        """Return the types that are allowed and the one that the value has, None if it is allowed."""
        kind = type(value)
        name = _NAMES[kind]
        types = self.types
        if not types and not self.format:
            return None
        as_integer = kind is float and "integer" in types and self.is_integral(value)
        as_number = kind is int and "number" in types
        if self.format:
            go_format = _GO_FORMATS.get(kind, "")
            if kind is str or kind is list:
                # A list passes where a text with a format is expected.
                if "number" not in types and "integer" not in types:
                    return None
            elif not (name in types or go_format == self.format or as_integer or as_number):
                return self.format, go_format
        if name in types or as_integer or as_number:
            return None
        return ",".join(types), name

    def _check(self) -> Check:
        for kind in _ALL_KINDS:
            check = self._check_of(kind)
            if check is not _never:
                self.checks[kind] = check
        if (self.nullable or not self.types) and self.enumeration is None:
            self.checks[type(None)] = None
        if len(self.checks) == len(_ALL_KINDS) + 1 and not any(self.checks.values()):
            return _always
        if len(self.checks) == 1:
            ((only, check),) = self.checks.items()
            return _of_kind(only, check)
        return _by_kind(self.checks)

    def _check_of(self, kind: type) -> Check | None:
        """Return the check of values of one kind."""
        sample = kind() if kind is not float else 0.5
        checks: list[Check] = []
        if kind is float and "integer" in self.types and "number" not in self.types:
            checks.append(self.is_integral)
        elif self.type_problem(sample) is not None:
            return _never
        if kind is str:
            checks += self._text_checks()
        elif kind is int or kind is float:
            if self.numbers is not None and (check := self.numbers.check(kind)) is not None:
                checks.append(check)
        elif kind is list:
            checks += self._list_checks()
        elif kind is dict:
            checks += self._object_checks()
        if self.enumeration is not None:
            checks.append(self.enumeration.check(kind))
        checks += self._junctor_checks()
        return _all(checks)

    def _text_checks(self) -> Iterator[Check]:
        least, most = self.min_length, self.max_length
        if least is not None or most is not None:
            yield _sized(least, most)
        if self.pattern is not None:
            yield self.pattern.matches
        if self.has_format is not None:
            yield self.has_format

    def _list_checks(self) -> Iterator[Check]:
        if self.min_items is not None or self.max_items is not None:
            yield _sized(self.min_items, self.max_items)
        if self.items is not None and self.items.fits is not _always:
            yield _items_check(self.items)

    def _object_checks(self) -> Iterator[Check]:
        if self.min_properties is not None or self.max_properties is not None:
            yield _sized(self.min_properties, self.max_properties)
        if self.required:
            yield _required_check(self.required)
        if any(node.fits is not _always for node in self.properties.values()) or (
            self.additional is not None and self.additional.fits is not _always
        ):
            yield _members_check(self.properties, self.additional)

    def _junctor_checks(self) -> Iterator[Check]:
        if self.any_of:
            yield _any_check([node.fits for node in self.any_of])
        if self.one_of:
            yield _one_check([node.fits for node in self.one_of])
        for node in self.all_of:
            if node.fits is not _always:
                yield node.fits
        if self.negated is not None:
            yield _not_check(self.negated.fits)


_PLAIN = frozenset(("type", "nullable", "format", "description", "default", "title"))
"""Members of a node that are part of its key in `_PLAIN_NODES`, or do not matter here."""
_PLAIN_NODES: dict[tuple[str, bool, str, Release], _Node] = {}
"""Nodes without any constraint but types and formats. Most nodes are, and these few serve all schemas."""
_SCALARS = frozenset(("string", "integer", "number", "boolean"))


class _Compiler:
    """Compiles the nodes of one schema in a release. Source that stands at several places becomes one node."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self._nodes: dict[int, _Node] = {}

    def node(self, source: Source) -> _Node:
        kind = source.get("type") or ""
        if kind in _SCALARS and _PLAIN.issuperset(source):
            return self._plain(kind, source)
        node = self._nodes.get(id(source))
        if node is None:
            node = self._nodes[id(source)] = _Node(source, self._release, self)
        return node

    def _plain(self, kind: str, source: Source) -> _Node:
        form = formats.applied(source.get("format") or "", (kind,))
        key = (kind, bool(source.get("nullable")), form, self._release)
        node = _PLAIN_NODES.get(key)
        if node is None:
            plain = {"type": kind, "nullable": key[1], "format": form}
            node = _PLAIN_NODES[key] = _Node(plain, self._release, self)
        return node

    def member(self, source: Source, name: str) -> _Node | None:
        below = source.get(name)
        return self.node(below) if isinstance(below, Mapping) else None

    def branches(self, source: Source, name: str) -> tuple[_Node, ...]:
        return tuple(map(self.node, source.get(name) or ()))


class _Pattern:
    """A regular expression, compiled when the first text comes."""

    __slots__ = ("_compiled", "problem", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._compiled: regexes.Pattern | None = None
        self.problem = ""

    def matches(self, value: str) -> bool:
        if self._compiled is None and not self.problem:
            try:
                self._compiled = regexes.compiled(self.text)
            except regexes.InvalidPattern as error:
                self.problem = f", but pattern is invalid: {error}"
        try:
            return self._compiled is not None and self._compiled.found(value)
        except CostExceeded:
            return False


# Checks


def _always(_value: Any) -> bool:
    return True


def _never(_value: Any) -> bool:
    return False


def _all(checks: list[Check]) -> Check | None:
    if not checks:
        return None
    if len(checks) == 1:
        return checks[0]
    if len(checks) == 2:
        first, second = checks
        return lambda value: first(value) and second(value)
    return lambda value: all(check(value) for check in checks)


def _of_kind(kind: type, check: Check | None) -> Check:
    if check is None:
        return lambda value: type(value) is kind
    return lambda value: type(value) is kind and check(value)


def _by_kind(checks: Mapping[type, Check | None]) -> Check:
    def fits(value: Any) -> bool:
        check = checks.get(type(value), _never)
        return check is None or check(value)

    return fits


def _sized(least: int | None, most: int | None) -> Check:
    low, high = least or 0, math.inf if most is None else most
    return lambda value: low <= len(value) <= high


def _items_check(node: _Node) -> Check:
    plain, check = _plain_kind(node), node.fits

    def fits(value: Any) -> bool:
        for item in value:  # noqa: SIM110 - quicker
            if type(item) is not plain and not check(item):
                return False
        return True

    return fits


def _required_check(required: tuple[str, ...]) -> Check:
    if len(required) == 1:
        (only,) = required
        return lambda value: only in value
    names = frozenset(required)
    return lambda value: value.keys() >= names


def _members_check(properties: Mapping[str, _Node], additional: _Node | None) -> Check:
    if not properties and additional is not None:
        of_items = _items_check(additional)
        return lambda value: of_items(value.values())
    plain = {name: _plain_kind(node) for name, node in properties.items() if _plain_kind(node) is not None}
    checks = {name: node.fits for name, node in properties.items()}
    other = _always if additional is None else additional.fits

    def fits(value: Any) -> bool:
        for name, member in value.items():  # noqa: SIM110 - quicker
            if type(member) is not plain.get(name) and not checks.get(name, other)(member):
                return False
        return True

    return fits


def _plain_kind(node: _Node) -> type | None:
    """Return a kind of which all values fit."""
    return next((kind for kind in (str, dict, int, bool, list, float) if node.checks.get(kind, _never) is None), None)


def _any_check(checks: list[Check]) -> Check:
    return lambda value: any(check(value) for check in checks)


def _one_check(checks: list[Check]) -> Check:
    def fits(value: Any) -> bool:
        found = 0
        for check in checks:
            if check(value):
                found += 1
                if found > 1:
                    return False
        return found == 1

    return fits


def _not_check(check: Check) -> Check:
    return lambda value: not check(value)


# Errors


class _Tally:
    """Count the parts of a value that are right. A junctor reports the failed branch with the highest count.

    Upstream: MatchCount of kube-openapi `pkg/validation/validate/result.go`.
    """

    __slots__ = ("points",)

    def __init__(self) -> None:
        self.points = 0


class _Place(NamedTuple):
    """The place of a value. Inside of junctors there is a `tally`, and nothing correlates."""

    path: str
    correlated: Correlated | None = None
    tally: _Tally | None = None

    def item(self, index: int) -> _Place:
        correlated = None if self.correlated is None else self.correlated.item(index)
        return _Place(f"{self.path}[{index}]", correlated, self.tally)

    def member(self, name: str) -> _Place:
        """Return the place of a member that has its own schema."""
        return _Place(f"{self.path}.{name}" if self.path else name, self._old(name), self.tally)

    def entry(self, name: str) -> _Place:
        """Return the place of any other member."""
        more = len(name) - KEY_CHARACTERS
        shortened = name if more <= 0 else f"{name[:KEY_CHARACTERS]}… {more} more characters"
        return _Place(f"{self.path}.{shortened}", self._old(name), self.tally)

    def _old(self, name: str) -> Correlated | None:
        # The version of an object cannot be seen to change, so its apiVersion and kind are never forgiven.
        if self.correlated is None or (not self.path and name in ("apiVersion", "kind")):
            return None
        return self.correlated.member(name)

    def fits(self, node: _Node, value: Any) -> bool:
        """Return whether a value has no errors, and nobody counts what is right about it."""
        return self.tally is None and node.fits(value)


def _errors(node: _Node, value: Any, place: _Place) -> Iterator[Found]:
    """Yield the errors of a value in upstream's order."""
    if place.fits(node, value) or (place.correlated is not None and place.correlated.unchanged):
        return
    path, tally = place.path, place.tally or _Tally()
    if value is None:
        yield from _null_errors(node, path, tally)
        return
    if node.types or node.format:
        mismatch = node.type_problem(value)
        if mismatch is not None:
            yield Found("type", path, *_type_texts(mismatch))
        else:
            tally.points += 1
        tally.points += 1
    yield from _junctor_errors(node, value, path, tally)
    tally.points += 2
    kind = type(value)
    if kind is str:
        yield from _text_errors(node, value, path, tally)
    elif kind is int or kind is float:
        for problem in node.numbers.problems(value) if node.numbers is not None else ():
            yield Found(problem.code, path, problem.tail, problem.value)
        tally.points += 2
    elif kind is list:
        yield from _list_errors(node, value, place)
        tally.points += 2
    if node.enumeration is not None and not node.enumeration.has(value):
        yield Found("enum", path, node.enumeration.text, (value, node.enumeration))
    tally.points += 1
    if kind is dict:
        yield from _object_errors(node, value, place)
        tally.points += 1
    tally.points += 1


def _null_errors(node: _Node, path: str, tally: _Tally) -> Iterator[Found]:
    if node.types and not node.nullable:
        yield Found("type", path, *_type_texts((",".join(node.types), "null")))
    else:
        tally.points += 1
    if node.enumeration is not None:
        yield Found("enum", path, node.enumeration.text, (None, node.enumeration))


def _type_texts(mismatch: tuple[str, str]) -> tuple[str, str]:
    wanted, found = mismatch
    return f'must be of type {wanted}: "{found}"', found


def _text_errors(node: _Node, value: str, path: str, tally: _Tally) -> Iterator[Found]:
    if node.max_length is not None and len(value) > node.max_length:
        yield Found("long", path, str(node.max_length))
    elif node.min_length is not None and len(value) < node.min_length:
        yield Found("", path, f"should be at least {node.min_length} chars long", value)
    elif node.pattern is not None and not node.pattern.matches(value):
        yield Found("", path, f"should match '{node.pattern.text}{node.pattern.problem}'", value)
    tally.points += 1
    if node.has_format is not None:
        if not node.has_format(value):
            yield Found("format", path, f"must be of type {node.format}", value)
        tally.points += 1


def _list_errors(node: _Node, value: list[Any], place: _Place) -> Iterator[Found]:
    if node.items is not None:
        for index, item in enumerate(value):
            if not place.fits(node.items, item):
                yield from _errors(node.items, item, place.item(index))
    size = len(value)
    if node.min_items is not None and size < node.min_items:
        yield Found("", place.path, f"should have at least {node.min_items} items", size)
    if node.max_items is not None and size > node.max_items:
        yield Found("many items", place.path, str(node.max_items), size)


def _object_errors(node: _Node, value: dict[str, Any], place: _Place) -> Iterator[Found]:
    size, properties, additional = len(value), node.properties, node.additional
    if node.min_properties is not None and size < node.min_properties:
        yield Found("", place.path, f"should have at least {node.min_properties} properties", size)
    if node.max_properties is not None and size > node.max_properties:
        yield Found("many properties", place.path, str(node.max_properties), size)
    for name, member in value.items():
        if name in properties:
            if not place.fits(properties[name], member):
                yield from _errors(properties[name], member, place.member(name))
        elif additional is not None and not place.fits(additional, member):
            yield from _errors(additional, member, place.entry(name))
    for name in node.required:
        if name not in value:
            yield Found("required", f"{place.path}.{name}", "")


# Errors of junctors


class _Result(NamedTuple):
    errors: list[Found]
    points: int


def _result(node: _Node, value: Any, path: str) -> _Result:
    tally = _Tally()
    errors: list[Found] = []
    for error in _errors(node, value, _Place(path, tally=tally)):
        if len(errors) < fieldpath.MOST_COUNTED:
            errors.append(error)
    return _Result(errors, tally.points)


def _junctor_errors(node: _Node, value: Any, path: str, tally: _Tally) -> Iterator[Found]:
    if node.any_of:
        yield from _any_errors(node.any_of, value, path, tally)
    if node.one_of:
        yield from _one_errors(node.one_of, value, path, tally)
    if node.all_of:
        validated = 0
        for branch in node.all_of:
            result = _result(branch, value, path)
            validated += not result.errors
            tally.points += result.points
            yield from result.errors
        if validated != len(node.all_of):
            more = "" if validated else ". None validated"
            yield Found("junctor", "", f"{go_quote(path)} must validate all the schemas (allOf){more}")
    if node.negated is not None and node.negated.fits(value):
        yield Found("junctor", "", f"{go_quote(path)} must not validate the schema (not)")


def _any_errors(branches: tuple[_Node, ...], value: Any, path: str, tally: _Tally) -> Iterator[Found]:
    best = _Result([], -1)
    for branch in branches:
        result = _result(branch, value, path)
        if not result.errors:
            tally.points += result.points
            return
        if result.points > best.points:
            best = result
    yield Found("junctor", "", f"{go_quote(path)} must validate at least one schema (anyOf)")
    tally.points += best.points
    yield from best.errors


def _one_errors(branches: tuple[_Node, ...], value: Any, path: str, tally: _Tally) -> Iterator[Found]:
    best, success, validated = _Result([], -1), _Result([], 0), 0
    for branch in branches:
        result = _result(branch, value, path)
        if not result.errors:
            success = success if validated else result
            validated += 1
        elif result.points > best.points:
            best = result
    if validated == 1:
        tally.points += success.points
        return
    more = f"Found {validated} valid alternatives" if validated else "Found none valid"
    yield Found("junctor", "", f"{go_quote(path)} must validate one and only one schema (oneOf). {more}")
    if not validated:
        tally.points += best.points
        yield from best.errors


# Words


def _written(error: Found, base: str) -> FieldError:
    """Return the error as it is reported, for a value whose own place is `base`."""
    code, path, tail, value = error
    if code == "junctor":
        return fieldpath.invalid(base or "<nil>", "", tail)
    if code == "range":
        return fieldpath.invalid(base or "<nil>", "", f"{tail} in {path}")
    field = _field(path, base)
    if code == "required":
        return fieldpath.required(field)
    if code == "enum":
        rejected, enumeration = cast(tuple[Any, Enumeration], value)
        return enumeration.error(field, rejected)
    if code == "long":
        return fieldpath.too_long(field, int(tail))
    if code in ("many items", "many properties"):
        return fieldpath.too_many(field, value, int(tail))
    if code == "type":
        return fieldpath.type_invalid(field, value, f"{path} in body {tail}")
    if code == "format":
        quoted = fieldpath.show(value)
        return fieldpath.type_invalid(field, fieldpath.Shown(quoted), f"{path} in body {tail}: {quoted}")
    if code == "factor":
        return fieldpath.invalid(
            field, fieldpath.Shown(tail), f"factor MultipleOf declared for {path} must be positive: {tail}"
        )
    return fieldpath.invalid(field, shown(value), f"{path} in body {tail}")


def _field(path: str, base: str) -> str:
    if path in ("", "."):
        return base or "<nil>"
    name = path.removeprefix(".")
    return f"{base}.{name}" if base else name
