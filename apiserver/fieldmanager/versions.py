"""Give structured merge the versions of a kind: their types, their conversion, and the fields that an endpoint does not change.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/internal/versionconverter.go`, kubernetes/kubernetes
`pkg/registry/resource/resourceclaim/strategy.go` (GetResetFields).
"""

from __future__ import annotations

from typing import Any

from apiserver.codecs.objects import conversion, decoding
from apiserver.fieldmanager import typedefs, typedform
from apiserver.fieldmanager.converted import Converted, VersionError
from apiserver.kinds.served import Kinds
from apiserver.schema import types
from apiserver.schema.resource import Object, Resource
from structuredmerge import paths, sets, validation
from structuredmerge.sets import EMPTY, Set
from structuredmerge.types import Type


class Versions:
    """The versions of one kind, for writes to one of its endpoints."""

    def __init__(self, kinds: Kinds, resource: Resource, subresource: str, converted: Converted | None = None) -> None:
        self._kinds = kinds
        self._converted = converted
        self._stored = resource.stored
        self._served: dict[str, Resource] = {resource.api_version: resource}
        self._written, self._subresource = resource, subresource
        self._ignored = reset_fields(resource.hub, subresource)

    def type_at(self, version: str) -> Type | None:
        """Return the type in a served version; None for any other, whose managers are dropped. Raises VersionError."""
        resource = self.at(version)
        return None if resource is None else typedefs.type_of(resource)

    def convert(self, value: Any, version_from: str, version_to: str) -> Any:
        """Return the value in another version, in its typed form.

        Raises VersionError if it cannot be decoded or has duplicate items, which upstream tolerates only in the version that is written.
        """
        source, target = self.at(version_from), self.at(version_to)
        assert source is not None, "there are no values of versions that are not served"
        assert target is not None, "nobody asks for a version that is not served"
        if source is target:
            return value
        if target.custom is not None:
            return _in_version(value, source, target, self._converted)
        found = typedform.form(target, conversion.served(target, conversion.stored(source, decoded(source, value))))
        return _valid(found, target)

    def ignored(self, version: str) -> Set:
        """Return the members that the endpoint restores: nobody changes or owns them through it.

        The endpoint of a custom resource restores members in its own version only, and `/status` in the versions that have it. Managers in
        other versions lose what the request left out, though it is restored (upstream: kubernetes/apiextensions-apiserver
        `pkg/registry/customresource/strategy.go`, `pkg/apiserver/customresource_handler.go`).
        """
        if self._written.custom is None or version == self._written.api_version:
            return self._ignored
        if self._subresource != "status" or (other := self.at(version)) is None:
            return EMPTY
        return EMPTY if other.subresource("status") is None else self._ignored

    def at(self, version: str) -> Resource | None:
        """Return the kind in a served version; None for any other. Raises VersionError for text that is no version."""
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


def _valid(value: Any, resource: Resource) -> Any:
    if wrong := validation.validate(value, typedefs.type_of(resource)):
        raise VersionError(validation.joined(sorted(wrong, key=_member)))
    return value


def _in_version(value: Any, source: Resource, target: Resource, converted: Converted | None) -> Any:
    """Return a custom resource in another version. Without a webhook all versions look the same."""
    if target.custom is None or target.custom.webhook is None:
        return _valid({**value, "apiVersion": target.api_version}, target)
    if converted is None:
        raise VersionError("no conversion webhook is called here")
    return _valid(converted.get(value, source, target), target)


def decoded(resource: Resource, value: Any) -> Object:
    """Return the object of a merged value. Raises VersionError."""
    try:
        members = {name: x for name, x in value.items() if name not in ("kind", "apiVersion")}
        return decoding.decode(resource.shape, members).object
    except decoding.DecodeError as e:
        raise VersionError(str(e)) from None


def reset_fields(resource: Resource, subresource: str) -> Set:
    """Return the members that an endpoint does not write: for the main one, those that subresources own; for a subresource, those that it
    does not own."""
    if resource.custom is not None and subresource == "status":
        return sets.of(((paths.field("metadata"),), (paths.field("spec"),)))
    owned = {name for sub in resource.subresources for name in sub.owns}
    if resource.has_status:
        owned.add("status")
    if subresource:
        sub = resource.subresource(subresource)
        own = () if sub is None else sub.owns
        owned = {field.name for field in types.members(resource.shape) if field.name not in own}
    return sets.of((paths.field(name),) for name in owned) if owned else EMPTY


def _member(error: str) -> str:
    """Return the path of an error up to the first list. Upstream checks members by name, and items in their order."""
    return error.partition(":")[0].partition("[")[0]
