"""The context of a kind's hooks: one value, the same for every hook of one write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.apimachinery.request import ANONYMOUS, User
from apiserver.schema.featuregate import Gate, Gates


class Compiler(Protocol):
    """Checks expressions in the Common Expression Language. Called from threads too."""

    def problems(self, expression: str, path: Path, *, stored: bool) -> Iterable[FieldError]:
        """Return why the expression cannot be used. One that is `stored` may use everything that was legal when it was written."""

    def value_problems(self, expression: str, path: Path) -> tuple[list[FieldError], int]:
        """Return why the expression cannot say the value of an attribute, and the highest cost of its evaluation."""

    def is_quick(self, expressions: Iterable[str]) -> bool:
        """Return whether checking all of them is quick enough for the event loop."""


def _unsaid(text: str) -> None:
    return None


def _unknown() -> None:
    return None


def _go_on() -> None:
    return None


class Context(NamedTuple):
    """The things that hooks may use besides the object.

    `namespace_labels` returns the labels of the object's namespace, or None if there is no namespace. It raises LookupError with the reason
    if they are unknown. `user` makes the request, and `verb` is its verb. `now` is its time in whole seconds, as objects have it.

    `old_obeys`: the stored object satisfies everything that its shape declares, so only changes need checks.

    `cel` is None where expressions are not compiled. Long checks call `checkpoint` between their steps. It raises to end them when nobody
    waits for their result. A check that finds something which is no error tells it to `warn`, once or more often: the answer has each text
    once.
    """

    gates: Gates = Gates()
    user: User = ANONYMOUS
    verb: str = ""
    now: str = ""
    namespace_labels: Callable[[], Mapping[str, str] | None] = _unknown
    cel: Compiler | None = None
    checkpoint: Callable[[], None] = _go_on
    old_obeys: bool = False
    warn: Callable[[str], None] = _unsaid

    def enabled(self, gate: Gate) -> bool:
        """Return whether the feature is on."""
        return self.gates.enabled(gate)
