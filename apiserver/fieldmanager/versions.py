"""What structured merge must know of the versions of a kind: their types, the way between them, and what an endpoint does not change.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/versionconverter.go`, kubernetes/kubernetes
`pkg/registry/resource/resourceclaim/strategy.go` (GetResetFields).
"""

from __future__ import annotations

from typing import Any

from apiserver.codecs.objects import conversion, decoding
from apiserver.fieldmanager import typedefs, typedform
from apiserver.kinds.served import Kinds
from apiserver.schema import types
from apiserver.schema.resource import Object, Resource
from structuredmerge import paths, sets, validation
from structuredmerge.sets import EMPTY, Set
from structuredmerge.types import Type


class VersionError(ValueError):
    """A version that no server could know, or an object that no version can hold; the text is upstream's."""


class Versions:
    """Of one kind, for writes to one of its endpoints."""

    def __init__(self, kinds: Kinds, resource: Resource, subresource: str) -> None:
        self._kinds = kinds
        self._stored = resource.stored
        self._served: dict[str, Resource] = {resource.api_version: resource}
        self._ignored = reset_fields(self._stored, subresource)

    def type_at(self, version: str) -> Type | None:
        """The type in a version that is served; None for any other, whose managers nobody can serve any more. Raises VersionError."""
        resource = self._at(version)
        return None if resource is None else typedefs.type_of(resource)

    def convert(self, value: Any, version_from: str, version_to: str) -> Any:
        """The value in another version, in its typed form. Raises VersionError for one that cannot be decoded, and for one with items
        that are there twice, which upstream tolerates only in the version that is written.
        """
        source, target = self._at(version_from), self._at(version_to)
        assert source is not None, "there are no values of versions that are not served"
        assert target is not None, "nobody asks for a version that is not served"
        if source is target:
            return value
        found = typedform.form(target, conversion.served(target, conversion.stored(source, decoded(source, value))))
        if wrong := validation.validate(found, typedefs.type_of(target)):
            raise VersionError(validation.joined(sorted(wrong, key=_member)))
        return found

    def ignored(self, version: str) -> Set:
        """The members that the endpoint restores, which nobody changes, takes or owns through it."""
        return self._ignored

    def _at(self, version: str) -> Resource | None:
        known = self._served.get(version)
        if known is not None:
            return known
        if version.count("/") > 1:
            raise VersionError(f"unexpected GroupVersion string: {version}")
        group, _, name = version.rpartition("/")
        found = self._kinds.at(group, name, self._stored.plural) if group == self._stored.group else None
        if found is not None:
            self._served[version] = found
        return found


def decoded(resource: Resource, value: Any) -> Object:
    """The object of a value that was merged. Raises VersionError."""
    try:
        members = {name: x for name, x in value.items() if name not in ("kind", "apiVersion")}
        return decoding.decode(resource.shape, members).object
    except decoding.DecodeError as e:
        raise VersionError(str(e)) from None


def reset_fields(resource: Resource, subresource: str) -> Set:
    """The main endpoint does not write what subresources own; a subresource writes nothing but what it owns."""
    owned = {name for sub in resource.subresources for name in sub.owns}
    if resource.has_status:
        owned.add("status")
    if subresource:
        sub = resource.subresource(subresource)
        own = () if sub is None else sub.owns
        owned = {field.name for field in types.members(resource.shape) if field.name not in own}
    return sets.of((paths.field(name),) for name in owned) if owned else EMPTY


def _member(error: str) -> str:
    """Where something is wrong, up to the first list: upstream looks at members in the order of their names, and at items in theirs."""
    return error.partition(":")[0].partition("[")[0]
