"""What the hooks of a kind may need to know beyond the object: one value, the same for every hook of one write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.apimachinery.request import ANONYMOUS, User
from apiserver.schema.featuregate import Gate, Gates


class Compiler(Protocol):
    """Judges expressions in the Common Expression Language. Called from threads too."""

    def problems(self, expression: str, path: Path, *, stored: bool) -> Iterable[FieldError]:
        """Why the expression cannot be used. One that is `stored` may use whatever was legal when it was written."""

    def is_quick(self, expressions: Iterable[str]) -> bool:
        """Whether judging them all is nothing to keep off the event loop."""


def _unknown() -> None:
    return None


def _go_on() -> None:
    return None


class Context(NamedTuple):
    """`namespace_labels` looks up the labels of the object's namespace, None when there is none; it raises LookupError with the reason when
    nobody can say. `user` is who writes, by the request's `verb`.

    `old_obeys`: what is stored is known to obey all that its shape declares, so only what a change touches has to be looked at.
    `cel` is None where expressions are not compiled. Long checks call `checkpoint` between their steps; it raises what ends them when
    nobody waits for their result any more.
    """

    gates: Gates = Gates()
    user: User = ANONYMOUS
    verb: str = ""
    namespace_labels: Callable[[], Mapping[str, str] | None] = _unknown
    cel: Compiler | None = None
    checkpoint: Callable[[], None] = _go_on
    old_obeys: bool = False

    def enabled(self, gate: Gate) -> bool:
        """Whether the feature is on."""
        return self.gates.enabled(gate)
