"""Which mutations of policies are made a second time, because something has changed the object after they were made.

Upstream: kubernetes/apiserver `pkg/admission/plugin/policy/mutating/reinvocationcontext.go`.
"""

from __future__ import annotations

from apiserver.schema.resource import Object

Key = tuple[str, str, str, str]
"""Of a mutation: its policy, its binding, and the namespace and name of its parameter, empty without one."""


class Reinvocations:
    """Kept from the first time that a plugin is asked about a change to the second. `output` is the object as it was left the last time."""

    def __init__(self) -> None:
        self.output: Object | None = None
        self._may: set[Key] = set()
        self._must: set[Key] = set()

    def made(self, key: Key) -> None:
        """It was made, and may be made again."""
        self._may.add(key)

    def changed(self) -> None:
        """The object is another than it was for all that were made until now."""
        self._must |= self._may
        self._may.clear()

    def wants(self, key: Key) -> bool:
        return key in self._must
