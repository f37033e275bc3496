"""What a package of kinds declares, and what is wrong with it: told before anything is served.

A package of kinds is a module with a sequence `RESOURCES`. Whatever the generic rooms rely on is asked for here, so that a mistake in a
declaration is a sentence at the start and not a trace in the middle of a request.
"""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from apiserver.apimachinery import names
from apiserver.schema import canonical, indexed, shapes, strict, types
from apiserver.schema.featuregate import Gate
from apiserver.schema.kinds import Kinds
from apiserver.schema.openapi import Definitions, Dialect
from apiserver.schema.resource import Column, Resource, Subresource, Version
from apiserver.schema.strict import DecodeError
from apiserver.schema.types import UNSET, Field, RawJSON, String, Struct

MEMBER = "RESOURCES"
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_RELEASE = re.compile(r"[0-9]+\.[0-9]+")
_UNMADE = ("kind", "apiVersion")


def load(package: str) -> Iterator[Resource | str]:
    """The kinds that a package declares; a text for each thing that keeps one from being served."""
    try:
        module = importlib.import_module(package)
    except Exception as e:  # noqa: BLE001 - whatever the package does when it is imported
        yield f"{package}: {_reason(e, package)}"
        return
    found = getattr(module, MEMBER, None)
    if not isinstance(found, Sequence) or isinstance(found, str) or not found:
        yield f"{package}: {MEMBER} is not there" if found is None else f"{package}: {MEMBER} is not a list of kinds"
        return
    for position, declared in enumerate(found):
        if not isinstance(declared, Resource):
            yield f"{package}: {MEMBER}[{position}] is not a Resource"
            continue
        wrong = [f"{package}: {declared.kind}: {text}" for text in mistakes(declared)]
        if wrong:
            yield from wrong
        else:
            yield declared


def collisions(kinds: Kinds) -> Iterator[str]:
    """Shapes of different kinds that have one name in OpenAPI."""
    definitions = Definitions(Dialect.V2)
    for resource in kinds:
        definitions.within(resource.group, resource.version, kinds.groups[resource.group][resource.version])
        try:
            definitions.object(resource)
        except ValueError as e:
            yield f"{resource.kind}: {e}"


def _reason(error: Exception, package: str) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{package}.".startswith(f"{error.name}."):
        return "there is no such module"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames and frames[-1].filename != __file__ else ""
    return f"cannot be imported: {where}{type(error).__name__}: {error}"


def mistakes(declared: Resource) -> list[str]:
    """Why a kind cannot be served as it is declared; empty for a good one."""
    wrong = list(_shape(declared.shape))
    found = [*_names(declared), *wrong]
    if isinstance(declared.shape, Struct):
        found += _parts(declared)
    for version in declared.versions:
        found += [f"version {version.name}: {text}" for text in _version(declared, version, converts=not wrong)]
    repeated = _repeated([declared.version, *(version.name for version in declared.versions)])
    return [*found, *(f"the version {name} is declared twice" for name in repeated)]


def _names(declared: Resource) -> Iterator[str]:
    if not _KIND.fullmatch(declared.kind):
        yield f"the kind {declared.kind!r} is no name of letters and digits that begins with a capital"
    named = {"plural": declared.plural, "singular": declared.singular, "version": declared.version}
    named |= {f"short name {name!r}": name for name in declared.short_names}
    named |= {f"category {name!r}": name for name in declared.categories}
    named |= {f"subresource {sub.name!r}": sub.name for sub in declared.subresources}
    named |= {f"role {grant.role!r}": grant.role for grant in declared.grants}
    for what, name in named.items():
        for text in names.dns_label(name):
            yield f"{what}: {text}"
    if declared.group:
        wrong = names.dns_subdomain(declared.group)
        if not wrong and "." not in declared.group:
            wrong = ["a group needs at least one dot"]
        for text in wrong:
            yield f"group: {text}"


def _shape(shape: Any) -> Iterator[str]:
    """A shape that the memory, the decoder and OpenAPI can work with."""
    if not isinstance(shape, Struct):
        yield "the shape is not a Struct"
        return
    if not shape.fields or shape.fields[0].name != "metadata" or shape.fields[0].type is not shapes.OBJECT_META:
        yield "the first member of the shape must be metadata, of the type OBJECT_META"
    for name in _repeated([field.name for field in types.members(shape)]):
        yield f"the shape has the member {name} twice"
    for name in _UNMADE:
        if any(field.name == name for field in types.members(shape)):
            yield f"the shape has a member {name}, which every object has by itself"
    yield from _numbers(shape)
    yield from _defaults(shape)


_NUMBERS, _RESERVED_NUMBERS = range(1, 1 << 29), range(19000, 20000)
"""Those that protobuf has for fields, and of them those that it keeps for itself."""


def _numbers(shape: Struct) -> Iterator[str]:
    """Members whose protobuf numbers would be mistaken for one another."""
    for struct in types.structs(shape):
        for field in struct.fields:
            if field.number not in _NUMBERS or field.number in _RESERVED_NUMBERS:
                yield f"{struct.name}.{field.name}: {field.number} is no protobuf number of a field"
        for number in _repeated([str(field.number) for field in struct.fields]):
            yield f"{struct.name} has the protobuf number {number} twice"


def _defaults(shape: Struct) -> Iterator[str]:
    """Values that stand for what is not there, and could not be there."""
    for struct in types.structs(shape):
        for field in struct.fields:
            if field.default is UNSET or field.default is None or callable(field.default):
                continue
            if not _fits(field):
                yield f"{struct.name}.{field.name}: the default {field.default!r} is no value of its type"


def _fits(field: Field) -> bool:
    match field.type:
        case RawJSON():
            return True
        case String(enum=(_, *_) as values):
            return field.default in values
    try:
        return not strict.decode(Struct(name="", fields=[field]), {field.name: field.default}).unknown
    except (DecodeError, TypeError):
        return False


def _parts(declared: Resource) -> Iterator[str]:
    """What the declaration says about members of its shape."""
    members = {field.name: field for field in types.members(declared.shape)}
    if declared.has_status and "status" not in members:
        yield "has_status is set, but the shape has no member status"
    for sub in declared.subresources:
        yield from (f"subresource {sub.name}: the shape has no member {name}" for name in _missing(sub, members))
    gates: Sequence[Any] = declared.gates
    for gate in gates:
        if not isinstance(gate, Gate):
            yield f"gates: {gate!r} is not a Gate"
        elif not _KIND.fullmatch(gate.name):
            yield f"the feature gate {gate.name!r} is no name of letters and digits that begins with a capital"
    for name in _repeated([sub.name for sub in declared.subresources]):
        yield f"the subresource {name} is declared twice"
    for label, path in declared.selectable.items():
        if not indexed.is_selectable(declared.shape, path):
            yield f"selectable field {label}: the shape has no text, number or boolean at {path}"
    if declared.node_field and declared.node_field not in declared.selectable:
        yield f"node_field: {declared.node_field} is not selectable"
    yield from _unread(declared.columns, declared.shape)


def _unread(columns: Iterable[Column], shape: Struct) -> Iterator[str]:
    """Cells would be shown that nothing is there."""
    for column in columns:
        for path in column.reads or ():
            if not _leads_somewhere(shape, path):
                yield f"column {column.name}: the shape has nothing at {path}"


def _leads_somewhere(shape: Struct, path: str) -> bool:
    here: types.Type = shape
    for name in path.split("."):
        if isinstance(here, types.MapOf):
            here = here.value
            continue
        members = types.members(here) if isinstance(here, Struct) else ()
        found = next((field for field in members if field.name == name), None)
        if found is None:
            return False
        here = found.type
    return True


def _missing(sub: Subresource, members: Iterable[str]) -> list[str]:
    return [name for name in sub.owns if name not in members]


def _version(declared: Resource, version: Version, *, converts: bool) -> Iterator[str]:
    """`converts`: there are stored objects to convert."""
    yield from names.dns_label(version.name)
    if version.deprecation is not None:
        releases = filter(None, (version.deprecation.since or "nothing", version.deprecation.removed))
        yield from (f"deprecation: {text} is no release" for text in releases if not _RELEASE.fullmatch(text))
    wrong = list(_shape(version.shape))
    yield from wrong
    if isinstance(version.shape, Struct):
        yield from _unread(version.columns or (), version.shape)
    if wrong or not converts or version.conversion is None:
        return
    for what, convert, shape in (
        ("from_storage", version.conversion.from_storage, declared.shape),
        ("to_storage", version.conversion.to_storage, version.shape),
    ):
        try:
            converted: Any = convert(canonical.zero(shape))
        except Exception as e:  # noqa: BLE001 - the declaration's own code
            yield f"{what} fails for an object of which nothing is set: {type(e).__name__}: {e}"
        else:
            if not isinstance(converted, dict) or "metadata" not in converted:
                yield f"{what} must return an object with metadata"


def _repeated(texts: Sequence[str]) -> list[str]:
    return sorted({text for text in texts if texts.count(text) > 1})
