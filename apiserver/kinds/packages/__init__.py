"""Load packages of kinds, and find the errors in their declarations before anything is served.

A package of kinds is a module with a sequence `RESOURCES`. Everything that generic packages rely on is checked here. So an error in a
declaration is a sentence at the start, not a traceback in the middle of a request or lost data.
"""

from __future__ import annotations

import importlib
import re
import traceback
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from apiserver.apimachinery.releases import NEWEST, Release, at
from apiserver.codecs.objects import indexed
from apiserver.kinds.packages import arguments, hooks, shape
from apiserver.kinds.served import Kinds
from apiserver.schema import types
from apiserver.schema.featuregate import Gate, Gates, InvalidGates
from apiserver.schema.openapi import Definitions, Dialect
from apiserver.schema.resource import Column, Deprecation, Grant, Resource, Subresource, Version
from apiserver.schema.types import String, Struct
from kubetext import names

MEMBER = "RESOURCES"
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_RELEASE = re.compile(r"[0-9]+\.[0-9]+")
_ALWAYS_SELECTABLE = ("metadata.name", "metadata.namespace")
_VERBS = re.compile(r"\*|[a-z][a-z0-9:-]*")


def load(package: str, release: Release = NEWEST) -> Iterator[Resource | str]:
    """Yield the kinds that a package declares for a release, and a text for each error that prevents serving one."""
    try:
        module = importlib.import_module(package)
    except (Exception, SystemExit) as e:  # noqa: BLE001 - any failure of the package's own code
        yield f"{package}: {_reason(e, package)}"
        return
    found = getattr(module, MEMBER, None)
    if not isinstance(found, Sequence) or isinstance(found, str) or not found:
        yield f"{package}: {MEMBER} is not there" if found is None else f"{package}: {MEMBER} is not a list of kinds"
        return
    for position, declared in enumerate(at(release, tuple(found))):
        if not isinstance(declared, Resource):
            yield f"{package}: {MEMBER}[{position}] is not a Resource"
            continue
        kind: Any = declared.kind
        named = kind if kind and isinstance(kind, str) else f"{MEMBER}[{position}]"
        wrong = [f"{package}: {named}: {text}" for text in errors(declared)]
        if wrong:
            yield from wrong
        else:
            yield declared


def collisions(kinds: Kinds) -> Iterator[str]:
    """Yield an error for each pair of different shapes with one name in OpenAPI. Names of custom resources have their group in them."""
    definitions = Definitions(Dialect.V2)
    for resource in kinds:
        if resource.custom is not None:
            continue
        definitions.within(resource.group, resource.version, kinds.groups[resource.group][resource.version])
        try:
            definitions.object(resource)
        except ValueError as e:
            yield f"{resource.kind}: {e}"


def _reason(error: BaseException, package: str) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{package}.".startswith(f"{error.name}."):
        return "there is no such module"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames and frames[-1].filename != __file__ else ""
    return f"cannot be imported: {where}{type(error).__name__}: {error}"


def errors(declared: Resource) -> list[str]:
    """Return why a kind cannot be served as declared; empty for a valid one. Errors that follow from others are left out."""
    misfits = arguments.wrong(declared)
    texts = [text for name, texts in misfits.items() if name != "shape" for text in texts]
    found = [*_names(declared, misfits), *texts]
    wrong, walkable = shape.errors(declared.shape)
    found += wrong
    if not misfits.keys() & {"consumption", *hooks.HOOKS}:
        found += _functions(declared)
    gates = list(_gates(declared.gates)) if "gates" not in misfits else []
    if not gates and not misfits.keys() & {"gates", "subresources", *hooks.HOOKS}:
        gates += hooks.undeclared_gates(declared)
    found += gates
    known = declared.shape if walkable else None
    if "columns" not in misfits:
        found += _columns(declared.columns, known)
    if "subresources" not in misfits:
        found += _subresources(declared.subresources, known)
    if "grants" not in misfits:
        found += (f"role {grant.role!r}: {text}" for grant in declared.grants for text in _grant(grant))
    if walkable:
        found += _of_shape(declared, misfits)
    if "deprecation" not in misfits and declared.deprecation is not None:
        found += _deprecation(declared.deprecation)
    if declared.stored_as is not None or declared.conversion is not None:
        found.append("stored_as and conversion are not declared: they are made of versions")
    if not found:
        found += hooks.tried_out(declared)
    if "versions" not in misfits:
        found += _versions(declared, converts=not wrong)
    return found


def _names(declared: Resource, wrong: Container[str]) -> Iterator[str]:
    if "kind" not in wrong and not _KIND.fullmatch(declared.kind):
        yield f"the kind {declared.kind!r} is no name of letters and digits that begins with a capital"
    named = {name: getattr(declared, name) for name in ("plural", "singular", "version") if name not in wrong}
    for what, argument in (("short name", "short_names"), ("category", "categories")):
        if argument not in wrong:
            given = getattr(declared, argument)
            named |= {f"{what} {name!r}": name for name in given}
            yield from (f"the {what} {name} is declared twice" for name in shape.repeated(given))
    for what, name in named.items():
        yield from (f"{what}: {text}" for text in names.old_dns_label(name))
    for what in ("group", "home"):
        if what not in wrong and getattr(declared, what):
            yield from (f"{what}: {text}" for text in _group(getattr(declared, what)))


def _group(name: str) -> list[str]:
    wrong = names.dns_subdomain(name)
    return wrong if wrong or "." in name else ["a group needs at least one dot"]


def _functions(declared: Resource) -> Iterator[str]:
    yield from hooks.signatures(declared)
    if declared.consumption is not None:
        misfits = arguments.wrong(declared.consumption)
        yield from (f"consumption: {text}" for texts in misfits.values() for text in texts)
        if not misfits:
            yield from (f"consumption: {text}" for text in hooks.of_consumption(declared.consumption))


def _twice(declared: Iterable[Subresource | Column | Version]) -> list[str]:
    return shape.repeated(part.name for part in declared)


def _gates(gates: Sequence[Gate]) -> Iterator[str]:
    """Yield the errors of each gate. If there are no such errors, yield those of their combination."""
    wrong = list(_each_gate(gates))
    if not wrong:
        try:
            Gates(gates)
        except InvalidGates as e:
            wrong = e.errors
    yield from wrong


def _each_gate(gates: Iterable[Gate]) -> Iterator[str]:
    """Yield the errors of the gates and of those that they need."""
    for gate in gates:
        misfits = arguments.wrong(gate)
        yield from (f"the feature gate {gate.name!r}: {text}" for texts in misfits.values() for text in texts)
        if "name" not in misfits and not _KIND.fullmatch(gate.name):
            yield f"the feature gate {gate.name!r} is no name of letters and digits that begins with a capital"
        if "needs" not in misfits:
            yield from _each_gate(gate.needs)


def _grant(grant: Grant) -> Iterator[str]:
    misfits = arguments.wrong(grant)
    yield from (text for texts in misfits.values() for text in texts)
    if "role" not in misfits:
        yield from names.dns_label(grant.role)
    if "subresource" not in misfits and grant.subresource:
        yield from (f"subresource: {text}" for text in names.dns_label(grant.subresource))
    if "verbs" not in misfits:
        if not grant.verbs:
            yield "verbs is empty"
        yield from (f"{verb!r} is no verb" for verb in grant.verbs if not _VERBS.fullmatch(verb))


def _subresources(declared: Sequence[Subresource], known: Struct | None) -> Iterator[str]:
    for sub in declared:
        yield from (f"subresource {sub.name}: {text}" for text in _subresource(sub, known))
    yield from (f"the subresource {name} is declared twice" for name in _twice(declared))


def _subresource(sub: Subresource, known: Struct | None) -> Iterator[str]:
    misfits = arguments.wrong(sub)
    yield from (text for texts in misfits.values() for text in texts)
    if "name" not in misfits:
        yield from names.dns_label(sub.name)
    if not misfits:
        yield from hooks.signatures(sub)
    if known is not None and "owns" not in misfits:
        members = {field.name for field in types.members(known)}
        yield from (f"the shape has no member {name}" for name in sub.owns if name not in members)
        if "metadata" in sub.owns:
            yield "nobody owns metadata"


def _columns(columns: Sequence[Column], known: Struct | None) -> Iterator[str]:
    for column in columns:
        yield from (f"column {column.name}: {text}" for text in _column(column, known))
    yield from (f"the column {name} is declared twice" for name in _twice(columns))


def _column(column: Column, known: Struct | None) -> Iterator[str]:
    misfits = arguments.wrong(column)
    yield from (text for texts in misfits.values() for text in texts)
    if misfits:
        return
    if not column.name:
        yield "a column needs a name"
    if column.priority < 0:
        yield f"priority: {column.priority} is less than 0"
    if column.since is not None and column.type not in ("string", "date"):
        yield f"since: an age is a text, and the type of this column is {column.type}"
    yield from hooks.of_column(column)
    if known is not None:
        yield from (f"the shape has nothing at {path}" for path in column.reads or () if shape.at(known, path) is None)


def _deprecation(deprecation: Deprecation) -> Iterator[str]:
    misfits = arguments.wrong(deprecation)
    yield from (f"deprecation: {text}" for texts in misfits.values() for text in texts)
    if not misfits:
        releases = filter(None, (deprecation.since or "nothing", deprecation.removed))
        yield from (f"deprecation: {text} is no release" for text in releases if not _RELEASE.fullmatch(text))


def _of_shape(declared: Resource, wrong: Container[str]) -> Iterator[str]:
    """Yield the errors of what the declaration says about members of its shape."""
    members = {field.name: field.type for field in types.members(declared.shape)}
    if declared.has_status and "status" not in members:
        yield "has_status is set, but the shape has no member status"
    if declared.has_status and "status" in members and not isinstance(members["status"], Struct):
        yield "has_status is set, but status is not a Struct"
    if declared.tracks_generation is True and not isinstance(members.get("spec"), Struct):
        yield "tracks_generation is set, but the shape has no Struct spec"
    if declared.counts_dropped is True and declared.tracks_generation is False:
        yield "counts_dropped is set, but tracks_generation is not"
    if declared.shape.name == declared.list_kind:
        yield f"the shape has the name of the list, {declared.list_kind}"
    if "selectable" in wrong:
        return
    for label, path in declared.selectable.items():
        if label in _ALWAYS_SELECTABLE:
            yield f"selectable field {label}: it always is"
        elif not re.fullmatch(r"[^\s,=!\\]+", label):
            yield f"selectable field {label!r}: no selector can name it"
        if not indexed.is_selectable(declared.shape, path):
            yield f"selectable field {label}: the shape has no text, number or boolean at {path}"
    for label in declared.listed_by if "listed_by" not in wrong else ():
        if label not in declared.selectable:
            yield f"listed_by: {label} is not selectable"
    if "node_field" in wrong or not declared.node_field:
        return
    if declared.node_field not in declared.selectable:
        yield f"node_field: {declared.node_field} is not selectable"
    elif not isinstance(shape.at(declared.shape, declared.selectable[declared.node_field]), String):
        yield f"node_field: {declared.node_field} is no text"


def _versions(declared: Resource, *, converts: bool) -> Iterator[str]:
    for version in declared.versions:
        yield from (f"version {version.name}: {text}" for text in _version(declared, version, converts=converts))
    for name in shape.repeated([declared.version, *(version.name for version in declared.versions)]):
        yield f"the version {name} is declared twice"


def _version(declared: Resource, version: Version, *, converts: bool) -> Iterator[str]:
    """Yield the errors of a version. `converts`: there are stored objects to convert."""
    misfits = arguments.wrong(version)
    yield from (text for name, texts in misfits.items() if name != "shape" for text in texts)
    if "name" not in misfits:
        yield from names.old_dns_label(version.name)
    if "home" not in misfits and version.home:
        yield from (f"home: {text}" for text in _group(version.home))
    if "deprecation" not in misfits and version.deprecation is not None:
        yield from _deprecation(version.deprecation)
    wrong, walkable = shape.errors(version.shape)
    yield from wrong
    if "columns" not in misfits:
        yield from _columns(version.columns or (), version.shape if walkable else None)
    if "conversion" in misfits:
        return
    unusable = list(hooks.of_conversion(version.conversion)) if version.conversion is not None else []
    yield from unusable
    if wrong or unusable or not converts:
        return
    if version.conversion is not None:
        yield from hooks.converted(declared.shape, version.shape, version.conversion)
        return
    for text in shape.same_json(declared.shape, version.shape):
        yield f"it needs a conversion, because its JSON is not that of {declared.version}: {text}"
