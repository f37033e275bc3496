"""Show a change in a version of its kind: as JSON text for webhooks, as plain values for expressions, and back to the stored form.

Upstream: kubernetes/apiserver `pkg/admission/conversion.go`, `pkg/admission/plugin/cel/condition.go` (objectToResolveVal).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from apiserver.apimachinery import meta
from apiserver.codecs.json import rawjson, surrogates
from apiserver.codecs.objects import canonical, conversion, decoding, defaults, typed
from apiserver.runtime import offload
from apiserver.schema.resource import Object, Resource
from kubetext import strconv

if TYPE_CHECKING:
    from apiserver.admission.core.attributes import Attributes

Convert = Callable[[Object, Resource], Awaitable[Object]]
"""Converts the members of a custom resource from the version of the request to another one, by the webhook of its definition. Raises
StatusError 500."""
Restore = Callable[[Object, Resource], Awaitable[Object]]
"""Converts them back, from that version to the version of the request."""
P = ParamSpec("P")
T = TypeVar("T")

REMEMBERED = 4
"""How many objects are cached in other forms: the stored one, and the new one after the last plugins."""
REMEMBERED_LARGE = 2
"""The same for large objects, whose values take more than ten times the memory of their text: the stored one, and the present new one."""
TYPE_META = ("kind", "apiVersion")


class Views:
    """The objects of one change in other forms, each made once. Thread-safe, because webhooks run concurrently.

    An object is cached by identity, not by content: objects must not be changed in place. `size` is the approximate size of an object
    in bytes. `clock`, in seconds since the epoch, gives the time for defaults. `convert` and `restore` are there where a webhook
    converts the objects.
    """

    __slots__ = ("_convert", "_converted", "_known", "_left", "_lock", "clock", "restore", "size")

    def __init__(
        self,
        *,
        size: int = 0,
        clock: Callable[[], float] = time.time,
        convert: Convert | None = None,
        restore: Restore | None = None,
    ) -> None:
        self.size = size
        self.clock = clock
        self.restore = restore
        self._convert = convert
        self._converted: list[tuple[Object, str, Object]] = []
        self._lock = threading.Lock()
        self._known: list[tuple[Object, dict[tuple[str, str], Any]]] = []
        self._left: list[Any] = []

    @property
    def large(self) -> bool:
        """Whether reading and writing these objects holds the event loop for too long."""
        return self.size > offload.CHANGE.limit

    def text(self, obj: Object, resource: Resource) -> bytes:
        """Return Go's JSON of a stored object in that version of its kind, kind and apiVersion first. Not for large objects."""
        known, key = self._of(obj), ("text", resource.api_version)
        made: bytes | None = known.get(key)
        if made is None:
            made = known[key] = written(self.members(obj, resource), resource)
        return made

    def plain(self, obj: Object, resource: Resource) -> dict[str, Any]:
        """Return the object as dicts, lists, text, integers, floats, booleans and None. The caller must not change it."""
        known, key = self._of(obj), ("plain", resource.api_version)
        made: dict[str, Any] | None = known.get(key)
        if made is None:
            # The text of a large object is dropped at once unless it is cached already.
            text = known.get(("text", resource.api_version))
            if text is None:
                text = written(self.members(obj, resource), resource) if self.large else self.text(obj, resource)
            made = known[key] = rawjson.parsed(text)
        return made

    async def atext(self, obj: Object, resource: Resource) -> bytes:
        """Like `text`, for objects of any size, and converted by a webhook if need be."""
        await self.prepare(obj, resource)
        return await self.run(self.text, obj, resource)

    async def aplain(self, obj: Object, resource: Resource) -> dict[str, Any]:
        """Like `plain`, for objects of any size, and converted by a webhook if need be."""
        await self.prepare(obj, resource)
        return await self.run(self.plain, obj, resource)

    async def prepare(self, obj: Object, resource: Resource) -> None:
        """Convert an object to a version if only a webhook can. Raises StatusError 500."""
        if self._needs_webhook(obj, resource) and self._known_members(obj, resource) is None:
            assert self._convert is not None
            made = await self._convert(without_type(obj), resource)
            self._converted.append((obj, resource.api_version, made))

    def members(self, obj: Object, resource: Resource) -> Object:
        """Return the members of an object of a change in a version of its kind, without kind and apiVersion. A webhook must have converted
        it already (`prepare`)."""
        if not self._needs_webhook(obj, resource):
            return members_of(obj, resource)
        found = self._known_members(obj, resource)
        assert found is not None, "the object is prepared"
        return found

    def _needs_webhook(self, obj: Object, resource: Resource) -> bool:
        custom = resource.custom
        return custom is not None and custom.webhook is not None and obj.get("apiVersion") != resource.api_version

    def _known_members(self, obj: Object, resource: Resource) -> Object | None:
        found = (made for known, version, made in self._converted if known is obj and version == resource.api_version)
        return next(found, None)

    def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Call a function of these objects, in a thread if they are large."""
        return offload.run_sized(offload.CHANGE, self.size, call, *args, **kwargs)

    def leave(self, obj: Object) -> None:
        """Drop the cached forms of a large object that is no longer needed."""
        if self.large:
            self.let_go()
            with self._lock:
                _, forms = self._taken(obj)
            offload.free([forms])
            self._left.append(obj)  # the code that made another object of it still uses it

    def let_go(self) -> None:
        """Free the dropped objects in a thread: freeing a large one takes most of a step of the event loop."""
        if self._left:
            left, self._left = self._left, []
            offload.free(left)

    def _of(self, obj: Object) -> dict[tuple[str, str], Any]:
        self.let_go()
        with self._lock:
            found = self._taken(obj)
            while len(self._known) >= (REMEMBERED_LARGE if self.large else REMEMBERED):
                del self._known[0]
            self._known.append(found)  # the object that was used last stays longest
        return found[1]

    def _taken(self, obj: Object) -> tuple[Object, dict[tuple[str, str], Any]]:
        """Remove an object with its forms from the known ones, and return it. An unknown one has no forms yet."""
        for at, (known, _) in enumerate(self._known):
            if known is obj:
                return self._known.pop(at)
        return obj, {}


def written(members: Object, resource: Resource) -> bytes:
    """Encode members in a version of their kind as Go's JSON."""
    return resource.head + canonical.encode_shown(resource.shape, members)[1:]


def without_type(obj: Object) -> Object:
    """Return the members of an object without kind and apiVersion."""
    return {name: value for name, value in obj.items() if name not in TYPE_META}


def members_of(obj: Object, resource: Resource) -> Object:
    """Return the members of an object of a change in a version of its kind, without kind and apiVersion, where no webhook converts it."""
    members = without_type(obj)
    if resource.custom is not None and obj.get("apiVersion") != resource.api_version:
        members = resource.custom.convert(conversion.copied(members))
    elif resource.hub is not resource:
        members = conversion.served(resource, conversion.copied(members))
    return members


def taken_back(
    resource: Resource, data: bytes | Mapping[str, Any], attributes: Attributes, *, unknown: list[str] | None = None
) -> Object:
    """Decode JSON of that version, as text or as values, into an object as the change has it: defaulted, with kind and apiVersion.

    Unknown members are dropped; from values their paths are added to `unknown`. Raises ValueError with Go's text for values that do not
    fit. Large ones are for a thread.
    """
    return headed(attributes, defaulted(resource, decoded(resource, data, unknown=unknown), attributes))


def decoded(resource: Resource, data: bytes | Mapping[str, Any], *, unknown: list[str] | None = None) -> Object:
    """Decode JSON into an object of that version, without kind and apiVersion, before it is defaulted."""
    raw = data if isinstance(data, bytes) else b""
    try:
        value: Any = _read(resource, raw) if raw else data
        members = {name: x for name, x in value.items() if name not in TYPE_META}
        found = decoding.decode(resource.shape, members, raw=raw)
    except decoding.DecodeError as e:
        raise ValueError(str(e)) from e
    except RecursionError:
        raise ValueError(decoding.TOO_DEEP) from None
    if unknown is not None:
        unknown += found.unknown
    return found.object


_decode = surrogates.replaced(msgspec.json.Decoder(float_hook=strconv.parse_float).decode)


def _read(resource: Resource, raw: bytes) -> Any:
    try:
        return typed.parser(resource.shape, strconv.parse_float)(raw)
    except msgspec.ValidationError:
        return _decode(raw)


def defaulted(resource: Resource, obj: Object, attributes: Attributes) -> Object:
    """Default a decoded object of that version, and convert it to the version of the change. It becomes part of the result.

    Where only a webhook can convert it, it stays in that version."""
    if resource.custom is None:
        defaults.apply(resource.shape, obj, now=meta.rfc3339(attributes.views.clock()))
        return conversion.stored(resource, obj)
    # Upstream drops what the schema does not know when it stores the object.
    resource.custom.prune(obj, None)
    resource.custom.fill(obj)
    asked = attributes.resource.custom
    same = asked is None or asked is resource.custom or asked.webhook is not None
    return obj if same or asked is None else asked.convert(obj)


def headed(attributes: Attributes, obj: Object) -> Object:
    """Add kind and apiVersion of the version of the change."""
    hub = attributes.resource.hub
    return {"kind": hub.kind, "apiVersion": hub.api_version, **obj}
