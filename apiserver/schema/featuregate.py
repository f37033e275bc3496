"""Feature gates: switches for what is not, or not yet, on for everybody. A kind declares those that its hooks ask about.

Upstream: kubernetes/component-base `featuregate/feature_gate.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gate:
    """One switch and where it stands when nobody touches it."""

    name: str
    default: bool


class Gates:
    """Every gate that was declared, and which of them are on. One value for the life of a process."""

    def __init__(self, declared: Iterable[Gate] = (), switched: Mapping[str, bool] | None = None) -> None:
        """`switched` are those that do not stand where they do by default. Raises ValueError for a name that nobody declared."""
        self._on = {gate.name: gate.default for gate in declared}
        for name, on in (switched or {}).items():
            if name not in self._on:
                raise ValueError(f"unrecognized feature gate: {name}")
            self._on[name] = on

    def enabled(self, gate: Gate) -> bool:
        """KeyError for a gate that its kind does not declare."""
        return self._on[gate.name]
