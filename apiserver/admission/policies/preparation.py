"""New policies are compiled before a request needs them, and what does not compile is told in the log."""

from __future__ import annotations

import logging
from typing import Protocol, TypeVar

from apiserver.admission.core.sources import Derived
from apiserver.admission.policies.definitions import Definition

logger = logging.getLogger(__name__)

SHOWN = 1000
"""Characters of an expression, and of what is wrong with it, in the log."""
REFUSING = "an expression of a policy cannot be evaluated: everything that the policy judges is refused"
IGNORED = "an expression of a policy cannot be evaluated: the policy says to ignore that"


class Rules(Protocol):
    async def compile(self) -> list[tuple[str, str]]:
        """Makes them ready. The first time, which expressions do not compile and why; none after that."""


Made = TypeVar("Made", bound=Rules)


class Preparation:
    """Of the policies of one plugin."""

    def __init__(self, definitions: Derived[list[Definition[Made]]]) -> None:
        self._definitions = definitions
        self._prepared: object = None

    async def prepare(self) -> None:
        """Costs nothing where nothing is new."""
        definitions = self._definitions.current()
        if definitions is self._prepared:
            return
        for definition in definitions:
            for expression, problem in await definition.rules.compile():
                about = {"policy": definition.name, "expression": expression[:SHOWN], "problem": problem[:SHOWN]}
                logger.error(IGNORED if definition.ignores_failures else REFUSING, extra=about)
        self._prepared = definitions
