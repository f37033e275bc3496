"""Compute the managers of fields after a write, and the result of an apply.

Both go through upstream's layers, which are functions here. Their order: managedFields sent by clients, whether the object is tracked, the
limit of managers, the writer, the time, and the paths that nobody manages. Structured merge is the innermost.
Upstream: kubernetes/apimachinery
`pkg/util/managedfields/internal/{fieldmanager,skipnonapplied,managedfieldsupdater,stripmeta,
structuredmerge,versioncheck,lastappliedmanager}.go`,
kubernetes/apiserver `pkg/endpoints/handlers/fieldmanager/{admission,equality}.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.releases import V1_37, at, since
from apiserver.apimachinery.request import Warnings
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical, conversion, decoding
from apiserver.fieldmanager import cap, conflicts, entries, excess, lastapplied, typedefs, typedform
from apiserver.fieldmanager.converted import Unconverted, VersionError
from apiserver.fieldmanager.entries import NOBODY, EntriesError, Identity, Managed
from apiserver.fieldmanager.fieldsets import FieldSets
from apiserver.fieldmanager.versions import Versions
from apiserver.fieldmanager.writer import Writer
from apiserver.kinds.served import Kinds
from apiserver.schema import shapes
from apiserver.schema.custom import Custom
from apiserver.schema.resource import Object, Resource
from apiserver.schema.types import Struct
from structuredmerge import paths, sets, updater, validation
from structuredmerge.sets import EMPTY, Set
from structuredmerge.updater import UNCHANGED, Conflicts, Managers, Owned

UNKNOWN = "unknown"
BEFORE_FIRST_APPLY = "before-first-apply"
"""The manager of the fields that an untracked object had before its first apply."""
_WRITER = "current-operation"
"""The name of an update's writer in structured merge. It separates the present changes from earlier ones of the same manager."""

INVALID_AFTER_ADMISSION = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; "
    "please fix your requests: {}"
)

_OF_METADATA = (
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "clusterName",
    "generation",
    "managedFields",
    "resourceVersion",
)
_METADATA = paths.field("metadata")
UNMANAGED = sets.of(
    [
        (paths.field("apiVersion"),),
        (paths.field("kind"),),
        (_METADATA,),
        *((_METADATA, paths.field(name)) for name in _OF_METADATA),
    ]
)
"""The paths that nobody manages: the system's part of an object."""


KEPT, DROPPED = "kept", "dropped"
AFTER_FAILURE = since(
    V1_37, KEPT, before=DROPPED, what="an update that does not fit the types keeps the managers of the stored object"
)
"""The managers to keep when those after a write cannot be found."""


class FieldManagers:
    """The managers of all kinds. Thread-safe."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._keeps = at(kinds.release, AFTER_FAILURE) == KEPT
        self._sets = FieldSets(kinds.release)
        self._versions: dict[tuple[str, str, str], Versions] = {}

    def updated(self, new: Object, live: Object | None, writer: Writer) -> Object:
        """Return `new` with its managers in metadata.managedFields, for a POST, PUT or patch.

        There `new` has the value that the client sent or the patch left. Both objects are of the stored version, without kind and
        apiVersion; `live` is None on create. `new` becomes part of the result.

        Managers never make an update fail: if they cannot be found, the object has none, or those that it had. Raises Unconverted.
        """
        metadata = new["metadata"]
        sent = metadata.pop("managedFields", None)
        managed = self._before_update(sent, live, writer)
        if not managed.managers and live is not None:
            return new
        try:
            found = self._tracked(new, live, managed, writer)
        except Unconverted:
            if sent is not None:
                metadata["managedFields"] = sent
            raise
        except ValueError:
            if live is not None and self._keeps and "managedFields" in live["metadata"]:
                metadata["managedFields"] = live["metadata"]["managedFields"]
            return new
        if found.managers:
            metadata["managedFields"] = entries.encode(found, self._sets)
        return new

    def _before_update(self, sent: Sequence[Object] | None, live: Object | None, writer: Writer) -> Managed:
        """Return the managers before an update: those that the client sent, if any, otherwise those of `live`."""
        if not writer.subresource:
            if sent is not None and _is_reset(sent):
                return NOBODY
            try:
                if sent and (found := entries.decode(sent, self._sets)).managers:
                    return found
            except EntriesError:
                pass
        try:
            return NOBODY if live is None else entries.decode(live["metadata"].get("managedFields"), self._sets)
        except EntriesError:
            return NOBODY

    def _tracked(self, new: Object, live: Object | None, managed: Managed, writer: Writer) -> Managed:
        """Return the managers after the writer has replaced `live` by `new`."""
        resource = writer.resource
        if resource.hub is not resource:
            new = conversion.served(resource, conversion.copied(new))
            live = live and typedform.written(resource, conversion.served(resource, conversion.copied(live)))
        before, after = typedform.both(resource.shape, live, new)
        if resource.custom is not None:
            # A part of both objects is one Python object, and need not be checked twice.
            _check_types(resource, after, {name: x for name, x in before.items() if after.get(name) is not x})
        return self._replaced(before, after, managed, writer)

    def _replaced(self, before: Object, after: Object, managed: Managed, writer: Writer) -> Managed:
        """Return the same for typed forms."""
        version = writer.resource.api_version
        identity = entries.updater(writer.manager or UNKNOWN, version, writer.subresource)
        left = updater.update(
            before,
            after,
            version=version,
            managers=managed.managers,
            manager=_WRITER,
            versions=self._versions_of(writer),
            before=identity.text,
            forgone=UNMANAGED,
        )
        managers = dict(left)
        changed = managers.pop(_WRITER, None)
        found = managed.with_managers(managers)
        own = EMPTY if changed is None else changed.set - UNMANAGED
        if own:
            previous = managers.get(identity.text)
            set_ = own if previous is None else previous.set | own
            found = found.with_manager(identity, Owned(set_, version, applied=False), time=writer.now)
        return cap.capped(found)

    def applied(self, patch: Object, live: Object, writer: Writer) -> Object:
        """Return the result of an apply on `live`, with its managers in metadata.managedFields. It is not decoded. A custom resource that
        the apply changed has its defaults. Others have none.

        Patch and live object are of the writer's version, with kind and apiVersion; a missing live object has nothing else. The result
        shares parts with both. If it is too large for the store, its managers do not own all of it.

        Raises StatusError: 400 for a patch of another kind, or one that names managers; 409 for fields of other managers; 500, as upstream,
        for a patch that does not match the kind's type. Raises Unconverted.
        """
        try:
            managed = entries.decode((live.get("metadata") or {}).get("managedFields"), self._sets)
        except EntriesError as e:
            raise errors.raw(f"failed to decode managed fields: {e}") from None
        _check_kind(writer.resource, patch)
        try:
            patch = _checked(writer.resource, patch)
        except StatusError:
            # Upstream finds the managers of an untracked object first, so the errors of the object win.
            if writer.resource.custom is not None and "metadata" in live and not managed.managers:
                _check_live(writer.resource, _typed(writer.resource, live), tracked=False)
            raise
        sets_ = [owned.set for owned in managed.managers.values()]
        lighter, left_out = excess.taken(patch, live, sets_, most=writer.most)
        try:
            value, managed = self._merged(lighter, live, managed, writer)
        except VersionError as e:
            raise errors.raw(str(e)) from None
        except ValueError as e:
            raise errors.raw(f"failed to create typed live object ({_shown(writer.resource, live)}): {e}") from None
        if writer.resource.custom is not None and value is not live:
            # Defaults of this version may change an object that was created in another one. An apply without changes leaves it alone.
            value = _completed(writer.resource.custom, value)
        result: Object = {**value, "metadata": {**(value.get("metadata") or {})}}
        result["metadata"].pop("managedFields", None)
        excess.put_back(left_out, result["metadata"])
        if writer.manager == lastapplied.KUBECTL:
            result = lastapplied.keep_up(result, patch)
        if managed.managers:
            result["metadata"]["managedFields"] = entries.encode(managed, self._sets)
        return result

    def _merged(self, patch: Object, live: Object, managed: Managed, writer: Writer) -> tuple[Object, Managed]:
        """Return the live object with the patch applied, and its managers. Raises StatusError."""
        resource, type_ = writer.resource, typedefs.type_of(writer.resource)
        before = typedform.zero(resource)
        if "metadata" in live:
            before = _typed(resource, live)
            if resource.custom is not None:
                _check_live(resource, before, tracked=bool(managed.managers))
            if not managed.managers:
                untracked = writer._replace(manager=BEFORE_FIRST_APPLY)
                managed = self._replaced(typedform.zero(resource), before, managed, untracked)
        identity = entries.applier(writer.manager, writer.subresource)

        def merge(*, force: bool) -> tuple[Object, Managed]:
            value, left = updater.apply(
                before,
                patch,
                version=resource.api_version,
                managers=managed.managers,
                manager=identity.text,
                versions=self._versions_of(writer),
                force=force,
                spelled=lambda: typedform.spelled(resource, live),
            )
            changed = value is not UNCHANGED
            return value if changed else live, _applied(left, managed, identity, time=writer.now if changed else None)

        try:
            return merge(force=writer.force)
        except Conflicts as e:
            found = e.conflicts
            if writer.manager == lastapplied.KUBECTL:
                allowed = lastapplied.applied_before(before, type_)
                found = [conflict for conflict in found if not allowed.has(conflict.path)]
            if found:
                raise conflicts.refusal(found, managed.identities) from None
        return merge(force=True)

    def rescaled(self, obj: Object, writer: Writer, *, former: int, replicas: int) -> Object:
        """Return an object whose replicas `/scale` has changed from `former`, with its managers. Unreadable managers stay.

        Upstream updates a Scale whose managers are those of the replicas, and takes the result back. Updates have another identity in a
        Scale, so the replicas get an entry of their own, which has no time. Replicas that nobody manages get none.
        Upstream: kubernetes/apimachinery `pkg/util/managedfields/scalehandler.go`.
        """
        metadata = obj["metadata"]
        try:
            managed = entries.decode(metadata.get("managedFields"), self._sets)
        except EntriesError:
            return obj
        versions = self._versions_of(writer)
        version, subresource = writer.resource.api_version, writer.subresource
        own = _replicas_in(versions, version)
        assert own, "the version has the subresource"
        known = {
            name: owned for name, owned in managed.managers.items() if _replicas_in(versions, owned.version) is not None
        }
        owners = {name for name, owned in known.items() if owned.set & (_replicas_in(versions, owned.version) or EMPTY)}
        left = {name: owned for name, owned in known.items() if name not in owners}
        moved: list[Identity] = []
        for name in sorted(owners):
            owned = known[name]
            if former == replicas:
                if owned.applied:
                    left[name] = owned
                    continue
                moved.append(managed.identities[name]._replace(api_version=version))
            rest = owned.set - (_replicas_in(versions, owned.version) or EMPTY)
            if rest:
                left[name] = owned._replace(set=rest)
        if owners and former != replicas and replicas:
            moved.append(entries.updater(writer.manager or UNKNOWN, version, subresource))
        # An updater may have two entries now, with the same identity.
        added = {f"{identity.text}/scale": identity for identity in moved}
        found = Managed(
            {**left, **dict.fromkeys(added, Owned(own, version, applied=False))},
            managed.times,
            {**managed.identities, **added},
            managed.stored,
        )
        metadata = {name: x for name, x in metadata.items() if name != "managedFields"}
        if found.managers:
            metadata["managedFields"] = entries.encode(found, self._sets)
        return {**obj, "metadata": metadata}

    def _versions_of(self, writer: Writer) -> Versions:
        if writer.converted is not None:
            return Versions(self._kinds, writer.resource, writer.subresource, writer.converted)
        key = writer.resource.storage_name, writer.resource.version, writer.subresource
        found = self._versions.get(key)
        if found is None:
            found = self._versions[key] = Versions(self._kinds, writer.resource, writer.subresource)
        return found

    def readmitted(self, new: Object, before: Object, warnings: Warnings) -> None:
        """Keep the managers that mutating admission left in `new` if they are valid. Otherwise restore those of `before`, with a
        warning."""
        found, former = (obj["metadata"].get("managedFields") for obj in (new, before))
        if found is former:
            return
        try:
            entries.decode(found, self._sets)
        except EntriesError as e:
            new["metadata"].pop("managedFields", None)
            if former is not None:
                new["metadata"]["managedFields"] = former
            warnings.add(INVALID_AFTER_ADMISSION.format(e))


def _replicas_in(versions: Versions, version: str) -> Set | None:
    """Return the path of the replicas in a version: empty if it has no scale subresource, None if it is not served."""
    try:
        resource = versions.at(version)
    except VersionError:
        return None
    if resource is None:
        return None
    scale = resource.custom and resource.custom.scale
    return sets.of([tuple(map(paths.field, scale.spec_replicas))]) if scale else EMPTY


def _check_types(resource: Resource, *values: Object) -> None:
    """Raise ValueError if a custom resource does not fit the types of its schema. Those of other kinds always do."""
    type_ = typedefs.type_of(resource)
    for value in values:
        if wrong := validation.validate(value, type_, duplicates=True):
            raise ValueError(validation.joined(wrong))


def _check_live(resource: Resource, live: Object, *, tracked: bool) -> None:
    """Raise a bare 500 if a stored custom resource does not fit the types of its schema. `tracked`: it has managers."""
    try:
        _check_types(resource, live)
    except ValueError as e:
        named = _shown(resource, live)
        if tracked:
            raise errors.raw(f"failed to create typed live object ({named}): {e}") from None
        what = f"failed to convert new object ({named}) to smd typed: {e}"
        raise errors.raw(f"failed to create manager for existing fields: {what}") from None


def _completed(custom: Custom, value: Object) -> Object:
    """Return a copy with the defaults of the schema. Raises a bare 500 for an object that is too deep."""
    try:
        made: Object = conversion.copied(value)
    except RecursionError:
        raise errors.raw(decoding.TOO_DEEP) from None
    custom.default(made)
    return made


def _is_reset(sent: Sequence[Object]) -> bool:
    """Return whether the client asks for an object without managers: by an empty list, or one empty entry."""
    if len(sent) == 1:
        return not any(x is not None if name in ("time", "fieldsV1") else x for name, x in sent[0].items())
    return not sent


def _applied(left: Managers, managed: Managed, identity: Identity, *, time: str | None) -> Managed:
    """Return the managers that an apply leaves. A manager that changed nothing keeps its time; a new one then has none."""
    name = identity.text
    own = left[name].set - UNMANAGED if name in left else EMPTY
    found = managed.with_managers({other: owned for other, owned in left.items() if other != name})
    if own:
        found = found.with_manager(identity, left[name]._replace(set=own), time=time)
    return found


def _typed(resource: Resource, live: Object) -> Object:
    return typedform.of_stored(resource, live) if resource.hub is resource else typedform.form(resource, live)


def _check_kind(resource: Resource, patch: Object) -> None:
    stated = _group_version_kind(patch)
    if stated != (resource.group, resource.version, resource.kind):
        raise errors.bad_request("invalid object type: {}/{}, Kind={}".format(*stated))


def _checked(resource: Resource, patch: Object) -> Object:
    """Return the patch, without managers that cannot be decoded. Raises StatusError if it names managers, or does not fit the types of the
    kind.

    A null for the managers stays. No live object has one, so upstream takes such an apply for a change, and sets the time of the applier.
    """
    if _names_managers(patch):
        raise errors.bad_request("metadata.managedFields must be nil")
    found = validation.validate(patch, typedefs.type_of(resource))
    if found:
        raise errors.raw(f"failed to create typed patch object ({_shown(resource, patch)}): {validation.joined(found)}")
    null = (patch.get("metadata") or {}).get("managedFields") is None
    return patch if null else typedform.untracked(patch)


def _shown(resource: Resource, obj: Object) -> str:
    """Return an object as upstream's errors name it."""
    namespace, name = (_text(obj.get("metadata"), member) for member in ("namespace", "name"))
    return f"{namespace}/{name}; {resource.api_version}, Kind={resource.kind}"


def _group_version_kind(patch: Object) -> tuple[str, str, str]:
    """Return group, version and kind of the patch; empty ones for an invalid apiVersion."""
    group, slash, version = _text(patch, "apiVersion").partition("/")
    if not slash:
        group, version = "", group
    return ("", "", "") if "/" in version else (group, version, _text(patch, "kind"))


def _text(value: Any, name: str) -> str:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def _names_managers(patch: Object) -> bool:
    """Return whether the patch has valid managedFields, which upstream refuses. The type check finds invalid ones."""
    metadata = patch.get("metadata")
    found = metadata.get("managedFields") if isinstance(metadata, dict) else None
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        return False
    try:
        for entry in found:
            decoding.decode(shapes.MANAGED_FIELDS_ENTRY, entry)
    except decoding.DecodeError:
        return False
    return True


FAST, SLOW, EQUAL = "unequal_objects_fast", "unequal_objects_slow", "equal_objects"
"""The results of a comparison for times, as upstream's metric names them: objects not compared, different, equal."""


def differ_in_time(new: Object, old: Object) -> bool:
    """Return whether the managers of two objects differ in their times and in nothing else."""
    found, former = (obj["metadata"].get("managedFields") for obj in (new, old))
    if not found or not former or len(found) != len(former):
        return False
    if all(entry.get("time") == before.get("time") for entry, before in zip(found, former, strict=True)):
        return False
    return all(map(_same_but_for_time, found, former))


def keep_times(shape: Struct, new: Object, old: Object) -> str:
    """Restore the times of managers if `new` differs from the stored object in nothing else. Return the result of the comparison: FAST,
    SLOW or EQUAL."""
    if not differ_in_time(new, old):
        return FAST
    if not canonical.equal(shape, _without_managers(new), _without_managers(old)):
        return SLOW
    new["metadata"]["managedFields"] = old["metadata"]["managedFields"]
    return EQUAL


def _same_but_for_time(entry: Object, former: Object) -> bool:
    plain = (name for name in {**entry, **former} if name not in ("time", "fieldsV1"))
    return all(entry.get(name) == former.get(name) for name in plain) and _fields(entry) == _fields(former)


def _fields(entry: Object) -> bytes | None:
    fields = entry.get("fieldsV1")
    return None if fields is None else rawjson.text(fields)


def _without_managers(obj: Object) -> Object:
    metadata = {name: x for name, x in obj["metadata"].items() if name not in ("managedFields", "resourceVersion")}
    return {**obj, "metadata": metadata}
