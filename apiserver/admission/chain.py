"""The order of admission: every mutating plugin, then (after validation of the object) every validating one.

Upstream: kubernetes/apiserver `pkg/admission/chain.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from apiserver.admission.attributes import Attributes


class Plugin(Protocol):
    """One rule about changes. It raises a StatusError to refuse, and is asked again on every retry of a lost race."""

    async def admit(self, change: Attributes) -> None:
        """May change `change.object`."""

    async def validate(self, change: Attributes) -> None:
        """Sees the final object and changes nothing."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The plugins in the order in which they are asked."""

    plugins: Sequence[Plugin] = ()

    async def admit(self, change: Attributes) -> None:
        for plugin in self.plugins:
            await plugin.admit(change)

    async def validate(self, change: Attributes) -> None:
        for plugin in self.plugins:
            await plugin.validate(change)
