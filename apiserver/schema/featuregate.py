"""Feature gates: switches for features that are not enabled for everybody. A kind declares the gates that its hooks check.

Upstream: kubernetes/component-base `featuregate/feature_gate.go`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from apiserver.apimachinery.releases import NEWEST, Release


class Stage(StrEnum):
    """How mature a feature is, as upstream writes it (prerelease)."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = ""
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class Spec:
    """A gate from one release on (upstream: FeatureSpec)."""

    since: Release
    default: bool
    stage: Stage
    locked: bool = False


@dataclass(frozen=True, slots=True)
class Gate:
    """One switch and its default.

    A `locked` gate cannot be switched. A gate that `needs` others cannot be on without them.

    A gate that differs by release has `specs`, the oldest first (upstream: VersionedSpecs): `versioned` makes it. It does not exist before
    the first one.
    """

    name: str
    default: bool
    stage: Stage
    locked: bool = False
    needs: tuple[Gate, ...] = ()
    specs: tuple[Spec, ...] = ()

    def at(self, release: Release) -> Gate | None:
        """Return the gate as it is in a release, None if that has none."""
        if not self.specs:
            return self
        spec = next((spec for spec in reversed(self.specs) if spec.since <= release), None)
        if spec is None:
            return None
        return replace(self, default=spec.default, stage=spec.stage, locked=spec.locked, specs=())


def versioned(name: str, *specs: Spec, needs: tuple[Gate, ...] = ()) -> Gate:
    """Declare a gate with its stages by release, the oldest first."""
    newest = specs[-1]
    return Gate(name, newest.default, newest.stage, newest.locked, needs, specs)


ALL_ALPHA = Gate("AllAlpha", default=False, stage=Stage.ALPHA)
ALL_BETA = Gate("AllBeta", default=False, stage=Stage.BETA)
_TOGETHER = (ALL_ALPHA, ALL_BETA)
"""They switch every gate of their stage that is not switched by its own name."""


class InvalidGates(ValueError):
    """The gates cannot have these values. `errors` are all reasons, in upstream's words. Each of the `certain` ones is about a single gate,
    and holds for any values of the others. `switches` are the names of the gates that cause each error."""

    def __init__(self, certain: Mapping[str, Collection[str]], unmet: Mapping[str, Collection[str]]) -> None:
        self.errors = [*certain, *unmet]
        self.certain = [*certain]
        self.switches = {**certain, **unmet}
        super().__init__("\n".join(self.errors))


class Gates:
    """Every declared gate of one release and its value."""

    def __init__(
        self,
        declared: Iterable[Gate] = (),
        switched: Mapping[str, bool] | None = None,
        *,
        release: Release = NEWEST,
    ) -> None:
        """Set the gates. `switched` has the values that differ from defaults, by name. The needs of a declared gate are declared too.

        Raises InvalidGates.
        """
        self.release = release
        self._switched = dict(switched or {})
        every = dict.fromkeys((*_TOGETHER, *_with_needs(declared)))
        gates = [here for gate in every if (here := gate.at(release)) is not None]
        self._known = {gate.name: gate for gate in gates}
        self._on = {gate.name: False for gate in every} | {gate.name: self._stands(gate) for gate in gates}
        certain, unmet = dict((*_repetitions(gates), *self._refusals())), dict(self._unmet())
        if certain or unmet:
            raise InvalidGates(certain, unmet)

    def enabled(self, gate: Gate) -> bool:
        """Return whether the gate is on; a gate that the release does not have is off. Raises KeyError for an undeclared gate."""
        return self._on[gate.name]

    def all(self) -> Iterator[tuple[Gate, bool]]:
        """Yield each gate, and whether it is on."""
        return ((gate, self._on[name]) for name, gate in self._known.items())

    def described(self) -> list[str]:
        """Return the gates that can be switched, one line each, as upstream's help lists them: neither generally available nor deprecated
        ones."""
        shown = [gate for gate in self._known.values() if gate.stage in (Stage.ALPHA, Stage.BETA)]
        return sorted(f"{g.name}=true|false ({g.stage} - default={_bool(g.default)})" for g in shown)

    def warnings(self) -> list[tuple[str, Gate, bool]]:
        """Return, for each gate switched by name that will be removed: the warning for the operator, the gate, and its value."""
        switched = ((self._known[name], on) for name, on in self._switched.items())
        return [(_GOING[gate.stage], gate, on) for gate, on in switched if gate.stage in _GOING]

    def _refusals(self) -> Iterator[tuple[str, Collection[str]]]:
        for name, on in self._switched.items():
            gate = self._known.get(name)
            if gate is None:
                yield f"unrecognized feature gate: {name}", (name,)
            elif gate.locked and on != gate.default:
                locked = f"feature is locked to {_bool(gate.default)}"
                yield f"cannot set feature gate {name} to {_bool(on)}, {locked}", (name,)

    def _stands(self, gate: Gate) -> bool:
        if gate.locked:
            return gate.default
        together = next((t.name for t in _TOGETHER if t.stage is gate.stage), "")
        return self._switched.get(gate.name, self._switched.get(together, gate.default))

    def _unmet(self) -> Iterator[tuple[str, Collection[str]]]:
        for gate in self._known.values():
            off = sorted(g.name for g in gate.needs if g.name in self._known and not self._on[g.name])
            if off and self._on[gate.name]:
                text = f"{gate.name} is enabled, but depends on features that are disabled: [{' '.join(off)}]"
                yield text, (gate.name, *off)


def fitting(
    declared: Iterable[Gate], switched: Mapping[str, bool], *, release: Release, partly: bool = False
) -> tuple[dict[str, bool], dict[str, str]]:
    """Return the switches that a release can have, and for each other one by name the error that it causes.

    `partly`: some switches are unknown, so dependencies cannot be judged. Raises InvalidGates if the declarations are wrong.
    """
    declared, left, refused = tuple(declared), dict(switched), dict[str, str]()
    while True:
        try:
            Gates(declared, left, release=release)
        except InvalidGates as e:
            errors = e.certain if partly else e.errors
            if not errors:
                return left, refused
            causes = {name: text for text in errors for name in e.switches[text] if name in left}
            # Without a gate of its own, the cause is one that switches all of a stage.
            causes = causes or {gate.name: errors[0] for gate in _TOGETHER if gate.name in left}
            if not causes:
                raise
            refused |= causes
            left = {name: on for name, on in left.items() if name not in causes}
        else:
            return left, refused


_GOING = {
    Stage.GA: "Warning: setting GA feature gate. It will be removed in a future release.",
    Stage.DEPRECATED: "Warning: setting deprecated feature gate. It will be removed in a future release.",
}


def _repetitions(gates: Iterable[Gate]) -> Iterator[tuple[str, Collection[str]]]:
    names = Counter(gate.name for gate in gates)
    return ((f'feature gate "{name}" with different spec already exists', ()) for name, n in names.items() if n > 1)


def _with_needs(gates: Iterable[Gate]) -> Iterator[Gate]:
    for gate in gates:
        yield from _with_needs(gate.needs)
        yield gate


def _bool(value: bool) -> str:  # noqa: FBT001 - how Go writes it
    return "true" if value else "false"
