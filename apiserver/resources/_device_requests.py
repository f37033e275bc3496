"""The shape of a request for devices and the rules over its members, which claims and claim templates share. Knows no endpoint.

Upstream: kubernetes/api `resource/v1/types.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import ROOT, FieldError, Path
from apiserver.apimachinery.releases import V1_37, since
from apiserver.resources import _configuration, _features
from apiserver.resources._features import Feature, Place
from apiserver.resources._rules import _formats
from apiserver.resources._rules._formats import MODEL, by_name
from apiserver.schema.context import Context
from apiserver.schema.resource import Object
from apiserver.schema.types import ACCESS, Boolean, Field, Integer, ListOf, MapOf, Presence, Quantity, String, Struct
from apiserver.validation import verdict
from kubetext import names, quoting

ALTERNATIVES, CONSTRAINTS, DERIVED_ATTRIBUTES = 8, 32, 32
DERIVED_COST = 1_000_000
"""The highest worst-case cost of all derived attributes of a claim together."""
OPERATORS = ("Equal", "Exists")
MODES = ("All", "ExactCount")

_KIND_OF_REQUEST = "exactly one of `exactly` or `firstAvailable` is required"
_NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"


# --- Requests --------------------------------------------------------------------------------------------------------

DEVICE_TOLERATION = Struct(
    name="DeviceToleration",
    model=MODEL,
    doc="Lets a request use devices in spite of the taints that this toleration matches by key, value and effect.",
    fields=(
        Field(
            name="key",
            number=1,
            type=String(),
            doc="The key of the taints that are tolerated, in the form of a label key. Empty matches every key; the operator "
            "has to be Exists then.",
        ),
        Field(
            name="operator",
            number=2,
            type=String(go="v1.DeviceTolerationOperator", known=OPERATORS),
            default="Equal",
            doc="How the taint's value is judged: with Equal, the default, it has to be the same as `value`; with Exists any "
            "value will do.",
        ),
        Field(
            name="value",
            number=3,
            type=String(),
            doc="The value that a taint must have to be tolerated. Has to be empty with the operator Exists, otherwise a legal "
            "label value.",
        ),
        Field(
            name="effect",
            number=4,
            type=String(go="v1.DeviceTaintEffect", known=_formats.EFFECTS),
            doc="The effect that a taint must have to be tolerated: NoExecute, NoSchedule or None. Empty matches every effect.",
        ),
        Field(
            name="tolerationSeconds",
            number=5,
            type=Integer(),
            presence=Presence.POINTER,
            doc="For how many seconds, counted from the time at which the taint was added, a taint with the effect NoExecute "
            "is tolerated. Without it: for ever. Zero and negative numbers mean not at all. Ignored for other effects.",
        ),
    ),
)


def toleration(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Check one toleration."""
    if value.get("key"):
        yield from _formats.label_key(value["key"], path.child("key"))
    operator, text, effect = value.get("operator", ""), value.get("value", ""), value.get("effect", "")
    if operator == "Equal":
        yield from _formats.label_value(text, path.child("value"))
    elif operator == "Exists":
        if text:
            yield fieldpath.invalid(path.child("value"), text, "must be empty for operator `Exists`")
    elif operator:
        yield fieldpath.not_supported(path.child("operator"), fieldpath.Typed(operator), OPERATORS)
    else:
        yield fieldpath.required(path.child("operator"))
    if effect and effect not in _formats.EFFECTS:
        yield fieldpath.not_supported(path.child("effect"), fieldpath.Typed(effect), _formats.EFFECTS)


CAPACITY_REQUIREMENTS = Struct(
    name="CapacityRequirements",
    model=MODEL,
    doc="How much of a device's capacities a request needs.",
    fields=(
        Field(
            name="requests",
            number=1,
            type=MapOf(Quantity(), go_key="v1.QualifiedName"),
            doc="The amount needed of each capacity, by its name. Only devices that have all of them in at least this amount "
            "are considered. From a device that may be allocated several times the amount is taken off, rounded up to what "
            "the capacity's request policy allows; when the policy allows no such amount, the device is not considered. "
            "A capacity that is not mentioned is consumed as its policy's default says or, without a policy, as a whole.",
        ),
    ),
)


def _count(parent: Mapping[str, Any], now: str) -> Any:
    """Return one device if a number of devices was requested without a count."""
    return 1 if parent.get("allocationMode") == "ExactCount" else None


def _wanted(first: int) -> tuple[Field, ...]:
    """Return the members that a plain request and an alternative of a prioritized one share, numbered from `first`. Tolerations and
    capacity have the same number in both."""
    return (
        Field(
            name="deviceClassName",
            number=first,
            type=String(check=_formats.subdomain),
            presence=Presence.ALWAYS,
            required=True,
            doc="The DeviceClass whose selectors and settings apply, in addition to those of this request. It need not exist "
            "yet when the claim is created. Administrators can use classes to limit who may ask for what.",
        ),
        Field(
            name="selectors",
            number=first + 1,
            type=_configuration.SELECTOR_LIST,
            doc="Conditions that a device has to meet, all of them, beside those of the class. At most 32.",
        ),
        Field(
            name="allocationMode",
            number=first + 2,
            type=String(go="v1.DeviceAllocationMode", known=MODES),
            default="ExactCount",
            tells_default=False,
            doc="How many devices are meant: ExactCount, the default, is the number in `count`; All is every device of a pool "
            "that fits, and the claim cannot be allocated while one of them is in use or a pool is incomplete. "
            "Consumers should refuse a mode that they do not know, as there may be more later.",
        ),
        Field(
            name="count",
            number=first + 3,
            type=Integer(),
            default=_count,
            doc="The number of devices, greater than zero, with the mode ExactCount; 1 when nothing is said. "
            "May not be given with another mode.",
        ),
    )


TOLERATIONS_DOC = (
    "The device taints that this request puts up with. A device with the effect NoSchedule or NoExecute in a taint that is "
    "not tolerated is not chosen; NoExecute also ends the use of a device that was chosen before the taint came. "
    "Best kept to 16 or fewer."
)


def _tolerations(doc: str) -> Field:
    return Field(name="tolerations", number=6, type=ListOf(DEVICE_TOLERATION), check=_formats.each(toleration), doc=doc)


_CAPACITY = Field(
    name="capacity",
    number=7,
    type=CAPACITY_REQUIREMENTS,
    presence=Presence.POINTER,
    doc="The amounts of device capacity that this request needs. Without it a device is judged by selectors alone.",
)


DERIVED_ATTRIBUTE = Struct(
    name="DeviceDerivedAttribute",
    model=MODEL,
    doc="An attribute that is computed for each device, for the claim's constraints.",
    fields=(
        Field(
            name="name",
            number=1,
            type=String(go="v1.FullyQualifiedName", check=_formats.fully_qualified_name),
            presence=Presence.ALWAYS,
            required=True,
            doc="The name by which constraints refer to it: a domain, a slash and a C identifier. Hides an attribute of the device with "
            "the same name. At least one constraint for this request has to refer to it.",
        ),
        Field(
            name="expression",
            number=2,
            type=String(),
            presence=Presence.ALWAYS,
            required=True,
            doc="A CEL expression with the variable `device`, as in selectors. Says a text, a number, a truth value, a version, or a list "
            "of these. A device for which the evaluation fails ends the attempt to allocate the claim. At most 10 KiB long; the worst "
            "case of all such expressions of a claim together is limited.",
        ),
    ),
)

_DERIVED = since(
    V1_37,
    Field(
        name="derivedAttributes",
        number=8,
        type=ListOf(DERIVED_ATTRIBUTE, max_items=DERIVED_ATTRIBUTES, unique=lambda item: item.get("name", "")),
        doc="Attributes that are computed for each candidate, at most 32, to be compared by the claim's constraints. Selectors do not see "
        "them. Alpha: needs the feature gate DRADerivedAttributes.",
    ),
)


def _amount(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Check the number of devices against the mode."""
    mode, count = value.get("allocationMode", ""), value.get("count", 0)
    if mode not in MODES:
        yield fieldpath.not_supported(path.child("allocationMode"), fieldpath.Typed(mode), MODES)
    elif mode == "All" and count:
        yield fieldpath.invalid(path.child("count"), count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        yield from _formats.positive(count, path.child("count"))


EXACT_DEVICE_REQUEST = Struct(
    name="ExactDeviceRequest",
    model=MODEL,
    doc="A request for one or more equal devices.",
    fields=(
        *_wanted(1),
        Field(
            name="adminAccess",
            number=5,
            type=Boolean(),
            presence=Presence.POINTER,
            doc="Asks for administrative access, for example to watch over a device: the devices are given no matter whether "
            "they are in use, and stay free for others. Only in namespaces that carry the label "
            "`resource.kubernetes.io/admin-access: true`.",
        ),
        _tolerations(TOLERATIONS_DOC),
        _CAPACITY,
        _DERIVED,
    ),
    check=_amount,
)

DEVICE_SUB_REQUEST = Struct(
    name="DeviceSubRequest",
    model=MODEL,
    doc="One of the alternatives of a request; it is what a plain request is, but for administrative access.",
    fields=(
        Field(
            name="name",
            number=1,
            type=_formats.LABEL,
            presence=Presence.ALWAYS,
            doc="How constraints, settings and pods refer to this alternative: as `<request>/<name>`. A DNS label, unique "
            "among the alternatives.",
        ),
        *_wanted(2),
        _tolerations(TOLERATIONS_DOC),
        _CAPACITY,
        _DERIVED,
    ),
    check=_amount,
)


def _one_kind(value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Check that exactly one kind of request is set. An empty list of alternatives counts as unset."""
    exactly, alternatives = value.get("exactly") is not None, bool(value.get("firstAvailable"))
    if not exactly and not alternatives:
        yield fieldpath.required(path, _KIND_OF_REQUEST)
    elif exactly and alternatives:
        yield fieldpath.invalid(path, None, f"{_KIND_OF_REQUEST}, but multiple fields are set")


DEVICE_REQUEST = Struct(
    name="DeviceRequest",
    model=MODEL,
    doc="Asks for devices, either for one kind of them (`exactly`) or for the first of several alternatives that can be had "
    "(`firstAvailable`). Exactly one of the two has to be given; a client that finds neither should refuse the request, "
    "because there may be more ways to ask later.",
    fields=(
        Field(
            name="name",
            number=1,
            type=_formats.LABEL,
            presence=Presence.ALWAYS,
            doc="How constraints, settings and the containers of a pod refer to this request. A DNS label, unique in the claim.",
        ),
        Field(
            name="exactly",
            number=2,
            type=EXACT_DEVICE_REQUEST,
            presence=Presence.POINTER,
            doc="One kind of devices. The request is met only when as many as were asked for can be had.",
        ),
        Field(
            name="firstAvailable",
            number=3,
            type=ListOf(DEVICE_SUB_REQUEST, max_items=ALTERNATIVES, unique=by_name),
            doc="Up to eight alternatives, best first. The scheduler takes the first one that can be met on a node; it does not "
            "compare nodes by how good an alternative they offer beyond preferring earlier ones.",
        ),
    ),
    check=_one_kind,
    judged=("name", ""),
    alternatives=("exactly", "firstAvailable"),
)

# --- The claim -------------------------------------------------------------------------------------------------------

DEVICE_CONSTRAINT = Struct(
    name="DeviceConstraint",
    model=MODEL,
    doc="A condition on the devices of several requests taken together. One of the attribute members has to be given.",
    fields=(
        _configuration.request_names(
            "The requests whose devices have to obey, at most 32; empty means all of the claim. For a request with alternatives "
            "its name means whichever alternative is chosen, `<request>/<alternative>` one of them.",
            number=1,
        ),
        Field(
            name="matchAttribute",
            number=2,
            type=String(go="v1.FullyQualifiedName"),
            presence=Presence.POINTER,
            doc="A fully qualified attribute name, such as example.com/numa: all the devices must have this attribute, with the "
            "same type and value. With list values, one value in common is enough. A device without it is never chosen.",
        ),
        Field(
            name="distinctAttribute",
            number=3,
            type=String(go="v1.FullyQualifiedName"),
            presence=Presence.POINTER,
            doc="A fully qualified attribute name: all the devices must have this attribute, and no two of them the same "
            "value. The opposite of `matchAttribute`, for example to get devices on different boards.",
        ),
    ),
)

DEVICE_CLAIM_CONFIGURATION = Struct(
    name="DeviceClaimConfiguration",
    model=MODEL,
    doc="Settings for the devices of some requests of a claim.",
    fields=(
        _configuration.request_names(
            "The requests whose devices get these settings, at most 32; empty means all of the claim. For a request with "
            "alternatives its name means whichever alternative is chosen, `<request>/<alternative>` one of them.",
            number=1,
        ),
        _configuration.inlined(2),
    ),
)


def requests_of(devices: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the names that can be referred to: each request with its alternatives."""
    return {
        by_name(request): frozenset(by_name(sub) for sub in request.get("firstAvailable") or ())
        for request in devices.get("requests") or ()
    }


def request_reference(name: str, path: Path, known: Mapping[str, frozenset[str]]) -> Iterator[FieldError]:
    """Check a reference `request` or `request/alternative`. The bare name is legal for a request with alternatives too."""
    segments = name.split("/")
    if len(segments) > 2:
        yield fieldpath.invalid(path, name, _NOT_A_REQUEST)
        return
    for segment in segments:
        for text in names.dns_label(segment):
            yield fieldpath.invalid(path, segment, text)
    found = segments[0] in known and (len(segments) == 1 or segments[1] in known[segments[0]])
    if not found:
        yield fieldpath.invalid(path, name, _NOT_A_REQUEST)


def references(
    items: Sequence[Mapping[str, Any]], path: Path, known: Mapping[str, frozenset[str]]
) -> Iterator[FieldError]:
    """Check the references in the member `requests` of every element. A list over its limit was refused as a whole before."""
    for i, item in enumerate(items):
        given = item.get("requests") or ()
        if len(given) <= _configuration.REQUESTS:
            for j, name in enumerate(given):
                yield from request_reference(name, path.index(i).child("requests").index(j), known)


def _constraint_attribute(context: Context, value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Check the attribute of a constraint. With both members set only the first is checked; the text for neither speaks of several. Both
    are as upstream."""
    if value.get("matchAttribute") is not None:
        yield from _formats.fully_qualified_name(value["matchAttribute"], path.child("matchAttribute"))
    elif value.get("distinctAttribute") is not None:
        yield from _formats.fully_qualified_name(value["distinctAttribute"], path.child("distinctAttribute"))
    elif not context.enabled(_features.CONSUMABLE_CAPACITY):
        yield fieldpath.required(path.child("matchAttribute"))
    else:
        yield fieldpath.required(
            path,
            'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set',
        )


def _claim(
    context: Context, value: Mapping[str, Any], old: Mapping[str, Any] | None, path: Path
) -> Iterator[FieldError]:
    """Check the references of constraints and settings to the claim's requests. A list over its limit was refused as a whole before."""
    known = requests_of(value)
    constraints, configs = value.get("constraints") or (), value.get("config") or ()
    if len(constraints) <= CONSTRAINTS:
        at = path.child("constraints")
        yield from references(constraints, at, known)
        for i, constraint in enumerate(constraints):
            yield from _constraint_attribute(context, constraint, at.index(i))
    if len(configs) <= _configuration.CONFIGS:
        yield from references(configs, path.child("config"), known)


def _claim_with_derived(
    context: Context, value: Mapping[str, Any], old: Mapping[str, Any] | None, path: Path
) -> Iterator[FieldError]:
    yield from _claim(context, value, old, path)
    yield from _derived_attributes(context, value, path)


def _derived_attributes(context: Context, devices: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Check that each derived attribute is used by a constraint, that its expression compiles, and what all expressions together can cost.

    Upstream compiles those of a list over its limit too.
    """
    compared = _compared(devices.get("constraints") or ())
    total = 0
    for requested, attributes, at in _derivations(devices, path.child("requests")):
        used = set().union(*(compared.get(name, ()) for name in requested))
        for i, attribute in enumerate(attributes):
            place, name, expression = at.index(i), attribute.get("name", ""), attribute.get("expression", "")
            if name and name not in used:
                text = "must be referenced by at least one matchAttribute or distinctAttribute constraint targeting this request"
                yield fieldpath.invalid(place.child("name"), fieldpath.Typed(name), text)
            place = place.child("expression")
            if verdict.too_long(expression, _configuration.EXPRESSION_BYTES):
                yield fieldpath.too_long(place, _configuration.EXPRESSION_BYTES)
            elif expression and context.cel is not None:
                context.checkpoint()
                found, cost = context.cel.value_problems(expression, place)
                yield from found
                total += cost
    if total > DERIVED_COST:
        text = "too complex, total cost of derived attribute CEL expressions in the claim exceeds cost limit"
        yield fieldpath.forbidden(path, text)


def _compared(constraints: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the attributes that constraints compare, by the name of the request; those of all requests under ""."""
    found: dict[str, set[str]] = {}
    for constraint in constraints:
        attribute = constraint.get("matchAttribute")
        attribute = constraint.get("distinctAttribute") if attribute is None else attribute
        if attribute is not None:
            for name in constraint.get("requests") or ("",):
                found.setdefault(name, set()).add(attribute)
    return found


def _derivations(
    devices: Mapping[str, Any], path: Path
) -> Iterator[tuple[Sequence[str], Sequence[Mapping[str, Any]], Path]]:
    """Yield the derived attributes of each wish, with the names under which constraints can mean it. Lists over their limits, and both
    kinds of requests together, were refused before."""
    requests = devices.get("requests") or ()
    for i, request in enumerate(requests if len(requests) <= _configuration.REQUESTS else ()):
        exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or ()
        name, at = request.get("name", ""), path.index(i)
        if exactly is not None and not alternatives:
            yield from _derivation(("", name), exactly, at.child("exactly"))
        elif exactly is None and len(alternatives) <= ALTERNATIVES:
            for j, wish in enumerate(alternatives):
                requested = ("", name, f"{name}/{wish.get('name', '')}")
                yield from _derivation(requested, wish, at.child("firstAvailable").index(j))


def _derivation(
    requested: Sequence[str], wish: Mapping[str, Any], path: Path
) -> Iterator[tuple[Sequence[str], Sequence[Mapping[str, Any]], Path]]:
    attributes = wish.get("derivedAttributes") or ()
    if len(attributes) <= DERIVED_ATTRIBUTES:
        yield requested, attributes, path.child("derivedAttributes")


DEVICE_CLAIM = Struct(
    name="DeviceClaim",
    model=MODEL,
    doc="How to ask for devices: what is needed, what has to hold between the devices, and how they are to be set up.",
    fields=(
        Field(
            name="requests",
            number=1,
            type=ListOf(DEVICE_REQUEST, max_items=_configuration.REQUESTS, unique=by_name),
            presence=Presence.ALWAYS,
            doc="The devices that are needed, at most 32 requests. All of them have to be met for the claim to be allocated. "
            "A claim without requests can be allocated as well.",
        ),
        Field(
            name="constraints",
            number=2,
            type=ListOf(DEVICE_CONSTRAINT, max_items=CONSTRAINTS),
            doc="Conditions that the chosen devices have to meet together, at most 32.",
        ),
        Field(
            name="config",
            number=3,
            type=ListOf(DEVICE_CLAIM_CONFIGURATION, max_items=_configuration.CONFIGS),
            doc="Settings for the drivers of the chosen devices, at most 32. They do not influence the choice.",
        ),
    ),
    rule=since(
        V1_37, _claim_with_derived, before=_claim, what="derived attributes are checked, and what they cost together"
    ),
)

RESOURCE_CLAIM_SPEC = Struct(
    name="ResourceClaimSpec",
    model=MODEL,
    doc="What is asked for.",
    fields=(
        Field(
            name="devices",
            number=1,
            type=DEVICE_CLAIM,
            presence=Presence.ALWAYS,
            doc="The devices that are asked for.",
        ),
    ),
)

# --- Features --------------------------------------------------------------------------------------------------------


_ALTERNATIVES, _TOLERATIONS = frozenset(("firstAvailable",)), frozenset(("tolerations",))
_DERIVED_ATTRIBUTES = frozenset(("derivedAttributes",))
_CAPACITIES, _DISTINCT = frozenset(("capacity",)), frozenset(("distinctAttribute",))


def _requests(spec: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    return spec["devices"].get("requests") or ()


def _alternatives(spec: Mapping[str, Any]) -> Iterator[Place]:
    return ((request, _ALTERNATIVES) for request in _requests(spec))


def _wishes(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the wishes of each request: exactly, or one of its alternatives."""
    for request in _requests(spec):
        if "exactly" in request:
            yield request["exactly"]
        yield from request.get("firstAvailable") or ()


def expressions(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the selectors of devices and the derived attributes in all requests."""
    for wish in _wishes(spec):
        yield from _configuration.expressions(wish)
        for attribute in wish.get("derivedAttributes") or ():
            yield attribute.get("expression", "")


def _tolerated(spec: Mapping[str, Any]) -> Iterator[Place]:
    return ((wish, _TOLERATIONS) for wish in _wishes(spec))


def shared_capacity(spec: Mapping[str, Any]) -> Iterator[Place]:
    """Yield the members about devices that may be allocated several times."""
    for constraint in spec["devices"].get("constraints") or ():
        yield constraint, _DISTINCT
    for wish in _wishes(spec):
        yield wish, _CAPACITIES


def _derived(spec: Mapping[str, Any]) -> Iterator[Place]:
    return ((wish, _DERIVED_ATTRIBUTES) for wish in _wishes(spec))


def features(spec_of: Callable[[Object], Object]) -> tuple[Feature, ...]:
    """Return the features of a kind that has such a spec."""
    return (
        Feature(gates=(_features.PRIORITIZED_LIST,), places=lambda obj: _alternatives(spec_of(obj))),
        Feature(gates=(_features.DEVICE_TAINTS,), places=lambda obj: _tolerated(spec_of(obj))),
        Feature(gates=(_features.CONSUMABLE_CAPACITY,), places=lambda obj: shared_capacity(spec_of(obj))),
        Feature(gates=(_features.DERIVED_ATTRIBUTES,), places=lambda obj: _derived(spec_of(obj))),
    )


# --- Administrative access -------------------------------------------------------------------------------------------

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"


def admin_access(context: Context, spec: Mapping[str, Any], namespace: str) -> Iterator[FieldError]:
    """Check whether this namespace may request devices regardless of their users. The path is the claim's, also for a template."""
    path = ROOT.child("spec").child("devices").child("requests")
    for i, request in enumerate(_requests(spec)):
        if (request.get("exactly") or {}).get("adminAccess") is True:
            found = admin_namespace(context, namespace, path.index(i).child("adminAccess"))
            yield from (error.at(ROOT.child(ACCESS)) for error in found)
            return


def admin_namespace(context: Context, namespace: str, path: Path) -> Iterator[FieldError]:
    """Check that the namespace is one for administrators. Upstream: `pkg/registry/resource/authorization.go`."""
    try:
        labels = context.namespace_labels()
        why = f"namespaces {quoting.go_quote(namespace)} not found" if labels is None else ""
    except LookupError as e:
        labels, why = None, str(e)
    if labels is None:
        yield fieldpath.internal(path, f"could not retrieve namespace to verify admin access: {why}")
    elif labels.get(ADMIN_ACCESS_LABEL) != "true":
        text = f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label on the containing namespace"
        yield fieldpath.forbidden(path, text)
