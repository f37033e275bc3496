"""One object as it would be written by requests, without a server: decoded, defaulted, tracked, prepared, encoded and decoded again."""

from __future__ import annotations

import copy
from itertools import chain
from typing import Any

from apiserver.codecs.objects import canonical, conversion, decoding, defaults
from apiserver.fieldmanager.manager import FieldManagers, keep_times
from apiserver.fieldmanager.writer import Writer
from apiserver.kinds.served import Kinds
from apiserver.patching import json_patch, merge_patch, strategic
from apiserver.resources import RESOURCES
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Object, Resource
from apiserver.verbs import lifecycle
from apiserver.wire import as_json

KINDS = Kinds(RESOURCES, group="resource.k8s.io")
CONTEXT = Context(gates=Gates(chain.from_iterable(kind.gates for kind in KINDS.stored)))
NOW = "2026-03-04T05:06:07Z"


def resource_of(kind: str, version: str = "v1") -> Resource:
    found = KINDS.named("resource.k8s.io", version, kind)
    assert found is not None
    return found


def _read(resource: Resource, text: bytes) -> Any:
    return as_json.loads(text, resource.shape)


class Written:
    """The stored state of one object. `now` is the time of the next request."""

    def __init__(self, kind: str, *, managers: FieldManagers | None = None) -> None:
        self.kind = kind
        self.managers = managers or FieldManagers(KINDS)
        self.now = NOW
        self.body: bytes | None = None

    @property
    def object(self) -> Object:
        """Decoded anew."""
        assert self.body is not None, "nothing is stored"
        return canonical.decode(resource_of(self.kind).shape, self.body)

    @property
    def managed_fields(self) -> list[Object]:
        found: list[Object] = self.object["metadata"].get("managedFields", [])
        return found

    def store(self, obj: Object) -> None:
        """As if it had been there already."""
        new = self._decoded(resource_of(self.kind), obj)
        self.body = canonical.encode(resource_of(self.kind).shape, new)

    def create(self, obj: Object, *, manager: str = "m", version: str = "v1") -> None:
        resource = resource_of(self.kind, version)
        new = self._decoded(resource, obj)
        self._insert(self.managers.updated(new, None, self.writer(resource, manager, "")))

    def update(self, obj: Object, *, manager: str = "m", version: str = "v1", subresource: str = "") -> None:
        resource = resource_of(self.kind, version)
        new, live = self._decoded(resource, obj), self.object
        self._replace(self.managers.updated(new, live, self.writer(resource, manager, subresource)), subresource)

    def patch(self, media: str, patch: Any, *, manager: str = "m", version: str = "v1", subresource: str = "") -> None:
        resource, live = resource_of(self.kind, version), self.object
        shown = self._shown(resource)
        match media:
            case "json-patch":
                changed = _read(
                    resource, json_patch.apply(json_patch.parse(as_json.dumps(patch)), as_json.dumps(shown))
                )
            case "merge-patch":
                changed = _read(resource, merge_patch.apply(as_json.dumps(patch), as_json.dumps(shown)))
            case _:
                changed = strategic.apply(patch, shown, resource.shape)
        new = self._decoded(resource, changed)
        self._replace(self.managers.updated(new, live, self.writer(resource, manager, subresource)), subresource)

    def apply(
        self, patch: Object, *, manager: str = "m", version: str = "v1", subresource: str = "", force: bool = False
    ) -> None:
        resource = resource_of(self.kind, version)
        writer = self.writer(resource, manager, subresource, force=force)
        before = copy.deepcopy(patch)
        result = self.managers.applied(patch, self._shown(resource), writer)
        assert patch == before, "a patch is applied again when somebody else was first"
        new = self._decoded(resource, result)
        if self.body is None:
            self._insert(new)
        else:
            self._replace(new, subresource)

    def writer(self, resource: Resource, manager: str, subresource: str = "", *, force: bool = False) -> Writer:
        return Writer(manager=manager, resource=resource, subresource=subresource, now=self.now, force=force)

    def _shown(self, resource: Resource) -> Object:
        shown = {} if self.body is None else conversion.served(resource, self.object)
        return {"kind": resource.kind, "apiVersion": resource.api_version, **shown}

    def _decoded(self, resource: Resource, obj: Object) -> Object:
        members = {name: x for name, x in obj.items() if name not in ("kind", "apiVersion")}
        decoded = decoding.decode(resource.shape, members)
        assert not decoded.unknown
        defaults.apply(resource.shape, decoded.object, now=self.now)
        return conversion.stored(resource, decoded.object)

    def _insert(self, new: Object) -> None:
        resource = resource_of(self.kind)
        lifecycle.wipe_system_metadata(new)
        new["metadata"] |= {"uid": "00000000-0000-4000-8000-000000000000", "creationTimestamp": self.now}
        lifecycle.prepare_create(CONTEXT, resource, new)
        self.body = canonical.encode(resource.shape, new)

    def _replace(self, new: Object, subresource: str) -> None:
        resource, old = resource_of(self.kind), self.object
        lifecycle.prepare_update(CONTEXT, resource, new, old, sub=resource.subresource(subresource))
        keep_times(resource.shape, new, old)
        self.body = canonical.encode(resource.shape, new)
