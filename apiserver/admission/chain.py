"""The order of admission: every mutating plugin, then (after validation of the object) every validating one.

Upstream: kubernetes/apiserver `pkg/admission/{chain,reinvocation}.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from apiserver.admission.attributes import Attributes
from apiserver.schema.resource import Object


@runtime_checkable
class MutatingPlugin(Protocol):
    """Sees a change before its object is validated, refuses it with a StatusError, or says what it becomes. Asked again in every round
    of a write."""

    async def admit(self, attributes: Attributes) -> Object | None:
        """The object that takes the place of `attributes.object`, whole, with kind and apiVersion; None leaves it as it is."""


@runtime_checkable
class ValidatingPlugin(Protocol):
    """Sees the final object, and refuses it with a StatusError or lets it pass."""

    async def validate(self, attributes: Attributes) -> None: ...


Plugin = MutatingPlugin | ValidatingPlugin
"""A plugin may be of both sorts."""


class Chain:
    """The plugins in the order in which they are asked."""

    def __init__(self, plugins: Sequence[Plugin] = ()) -> None:
        self.mutating = tuple(plugin for plugin in plugins if isinstance(plugin, MutatingPlugin))
        self.validating = tuple(plugin for plugin in plugins if isinstance(plugin, ValidatingPlugin))

    async def admit(self, attributes: Attributes) -> None:
        """Leaves in `attributes.object` what the plugins made of it."""
        await self._admit(attributes)
        reinvocation = attributes.reinvocation
        if reinvocation.wanted:
            reinvocation.again = True
            await self._admit(attributes)

    async def _admit(self, attributes: Attributes) -> None:
        for plugin in self.mutating:
            replaced = await plugin.admit(attributes)
            if replaced is not None:
                attributes.object = replaced

    async def validate(self, attributes: Attributes) -> None:
        for plugin in self.validating:
            await plugin.validate(attributes)
