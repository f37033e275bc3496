"""Serve the scale subresource of custom resources: GET, PUT and PATCH of an autoscaling/v1 Scale.

A write changes the replicas of the object and nothing else, and who manages them.
Upstream: kubernetes/apiextensions-apiserver `pkg/registry/customresource/etcd.go` (ScaleREST), kubernetes/apimachinery
`pkg/util/managedfields/scalehandler.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace as changed
from functools import partial
from typing import Any

from apiserver.apimachinery import errors, meta, options
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import UpdateOptions
from apiserver.codecs.objects import canonical
from apiserver.fieldmanager.writer import Writer
from apiserver.kinds.served import Kinds
from apiserver.runtime import offload
from apiserver.schema import machinery
from apiserver.schema.columns import AGE, NAME
from apiserver.schema.custom import Scale
from apiserver.schema.resource import Column, Object, Resource
from apiserver.structural.scale_paths import member, text
from apiserver.verbs import lifecycle, ownership, read, recorded, rendering, replace
from apiserver.verbs import patch as patching
from apiserver.verbs.context import Call, Services
from apiserver.verbs.patch_type import PatchType
from apiserver.watchcache.entry import Entry
from apiserver.wire import body

UNSET_REPLICAS = -(1 << 31)
"""The replicas that a patch finds where the object has none."""
_APPLIED = (
    "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper version: "
    "request to convert CR to an invalid group/version: autoscaling/v1"
)


def _replicas(part: str) -> Callable[[Object, float], Any]:
    return lambda obj, now: obj[part].get("replicas", 0)


SCALE = Resource(
    kind="Scale",
    plural="scales",
    singular="scale",
    group=machinery.SCALE_KIND[0],
    namespaced=True,
    shape=machinery.SCALE,
    columns=(
        NAME,
        Column(
            name="Desired",
            type="integer",
            cell=_replicas("spec"),
            reads=["spec.replicas"],
            description="Number of desired replicas",
        ),
        Column(
            name="Available",
            type="integer",
            cell=_replicas("status"),
            reads=["status.replicas"],
            description="Number of actual replicas",
        ),
        changed(AGE, type="date"),
    ),
)
_KNOWN = Kinds([SCALE])


async def get(services: Services, call: Call) -> Any:
    """Answer with the scale of the newest object."""
    answer = _answer(services, call)
    entry = await read.one(call)
    obj = await rendering.patiently(rendering.decoded, call.resource, entry)
    scale = _scale(call)
    made, found = shown(scale, obj)
    if not found:
        raise errors.internal(f'the spec replicas field "{text(scale.spec_replicas)}" does not exist')
    return await answer.single(_written(made))


async def update(services: Services, call: Call) -> Any:
    """Set the replicas that a Scale names."""
    exchange, answer = call.exchange, _answer(services, call)
    raw = await exchange.body()
    wanted = options.parse_update(exchange.query)
    sent = await _decoded(call, raw, validation=wanted.validation, now=meta.rfc3339(services.now()))
    return await _written_back(services, call, answer, lambda live: sent, wanted=wanted, size=len(raw))


async def patch(services: Services, call: Call) -> Any:
    """Patch the scale of the object."""
    exchange, answer = call.exchange, _answer(services, call)
    kind = patching.patch_type(services, call)
    raw = await exchange.body()
    wanted = options.parse_patch(exchange.query, apply=kind.applies)
    if kind.applies:
        raise errors.raw(_APPLIED)
    if kind.check is not None:
        await offload.run_sized(offload.DECODE_SLOWLY, len(raw), kind.check, raw)
    await recorded.patch(call, raw, applies=False)
    writer = ownership.writer(services, call, wanted.field_manager)
    terms = body.Terms(
        resource=SCALE,
        kinds=_KNOWN,
        now=meta.rfc3339(services.now()),
        validation=wanted.validation,
        warnings=exchange.warnings,
    )

    def change(live: Object) -> Object:
        return _patched(kind, raw, writer, terms=terms, live=live)

    size = len(raw) + kind.growth(raw)
    return await _written_back(services, call, answer, change, wanted=wanted.as_update(), size=size)


def _patched(kind: PatchType, raw: bytes, writer: Writer, *, terms: body.Terms, live: Object) -> Object:
    sent = kind.read(raw, terms.validation)
    document = {"kind": SCALE.kind, "apiVersion": SCALE.api_version, **live}
    return kind.decode(terms, kind.apply(sent.value, document, writer), sent)


async def _written_back(
    services: Services,
    call: Call,
    answer: rendering.Answer,
    change: Callable[[Object], Object],
    *,
    wanted: UpdateOptions,
    size: int,
) -> Any:
    """Write the replicas of a changed scale into the object. Answer with its scale then."""
    scale = _scale(call)
    writer = ownership.writer(services, call, wanted.field_manager)

    def compute(live: Entry) -> Object:
        old = rendering.decoded(call.resource, live)
        before, found = shown(scale, old)
        if not found:
            before["spec"]["replicas"] = UNSET_REPLICAS
        former = before["spec"].get("replicas", 0)
        after = change(before)
        lifecycle.set_namespace(call, after)
        lifecycle.check_name(call, after)
        new = with_scale(scale, old, after)
        return services.managers.rescaled(new, writer, former=former, replicas=after["spec"].get("replicas", 0))

    def applied(live: Entry | None) -> Awaitable[Object]:
        assert live is not None
        return offload.run_sized(offload.PATCH, size + live.size, compute, live)

    part = replace.Part(SCALE, lambda obj: shown(scale, obj)[0], partial(with_scale, scale))
    order = replace.Order(
        name=call.info.name, change=applied, sub=None, options=wanted, whole=False, size=size, owned=True, part=part
    )
    outcome = await replace.replace(services, call, order)
    obj = canonical.decode(call.resource.stored.shape, outcome.value)
    return await answer.single(_written(shown(scale, obj)[0]))


def shown(scale: Scale, obj: Object) -> tuple[Object, bool]:
    """Return the Scale of an object, and whether the object has replicas. Raises a bare 500 for members of wrong types."""
    wanted = _member(obj, scale.spec_replicas, int, "int64")
    status: Object = {"replicas": _int32(_member(obj, scale.status_replicas, int, "int64") or 0)}
    if scale.selector:
        status["selector"] = _member(obj, scale.selector, str, "string") or ""
    metadata = obj["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    made = {
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": _int32(wanted or 0)},
        "status": status,
    }
    return made, wanted is not None


def with_scale(scale: Scale, obj: Object, part: Object) -> Object:
    """Return a copy of an object with the replicas of a Scale, and its resourceVersion if it names one. Raises StatusError."""
    replicas = part["spec"].get("replicas", 0)
    if replicas == UNSET_REPLICAS:
        raise errors.bad_request(f'the spec replicas field "{text(scale.spec_replicas)}" cannot be empty')
    made: Object = {**obj, "metadata": {**obj["metadata"]}}
    if version := part["metadata"].get("resourceVersion"):
        made["metadata"]["resourceVersion"] = version
    here = made
    *way, last = scale.spec_replicas
    for depth, name in enumerate(way):
        below = here.get(name, {})
        if not isinstance(below, dict):
            place = text(scale.spec_replicas[: depth + 1])
            raise errors.raw(f"value cannot be set because {place} is not a map[string]interface{{}}")
        here[name] = {**below}
        here = here[name]
    here[last] = replicas
    return made


def _member(obj: Object, path: tuple[str, ...], kind: type, wanted: str) -> Any:
    value, problem = member(obj, path, kind, wanted)
    if problem:
        raise errors.raw(problem)
    return value


def _int32(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def _scale(call: Call) -> Scale:
    assert call.resource.custom is not None
    assert call.resource.custom.scale is not None
    return call.resource.custom.scale


def _answer(services: Services, call: Call) -> rendering.Answer:
    return rendering.Answer(services, call._replace(resource=SCALE), rendering.negotiated(call))


def _written(scale: Object) -> bytes:
    return canonical.encode_served(machinery.SCALE, scale)


async def _decoded(call: Call, raw: bytes, *, validation: str, now: str) -> Object:
    """Return the Scale of a body. Raises 400 with upstream's text for anything else, and 415."""
    media = call.exchange.content_type
    body.check_content_type(media)
    try:
        found = await body.decode_object(
            SCALE, media, raw, kinds=_KNOWN, now=now, validation=validation, warnings=call.exchange.warnings
        )
    except StatusError as e:
        if e.code != 400 or "strict decoding error" in e.message:
            raise
        raise errors.bad_request('no kind is registered for the type v1.Scale in scheme "apiserver"') from e
    size = body.size_estimate(raw, media)
    await recorded.sent(call._replace(resource=SCALE), found, size=size)
    return found
