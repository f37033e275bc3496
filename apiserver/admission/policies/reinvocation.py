"""Select the mutations of policies that run a second time, because something has changed the object after them.

Upstream: kubernetes/apiserver `pkg/admission/plugin/policy/mutating/reinvocationcontext.go`.
"""

from __future__ import annotations

from apiserver.schema.resource import Object

Key = tuple[str, str, str, str]
"""A mutation's policy, binding, and the namespace and name of its parameter, empty without one."""


class Reinvocations:
    """State that a plugin keeps from its first run on a change for the second. `output` is the object as the last run left it."""

    def __init__(self) -> None:
        self.output: Object | None = None
        self._may: set[Key] = set()
        self._must: set[Key] = set()

    def made(self, key: Key) -> None:
        """Note that a mutation was made, and may be made again."""
        self._may.add(key)

    def changed(self) -> None:
        """Note that the object has changed since all mutations until now."""
        self._must |= self._may
        self._may.clear()

    def wants(self, key: Key) -> bool:
        return key in self._must
