"""Compile new policies before a request needs them, and log expressions that do not compile."""

from __future__ import annotations

import logging
from typing import Protocol, TypeVar

from apiserver.admission.core.sources import Derived
from apiserver.admission.policies.definitions import Definition

logger = logging.getLogger(__name__)

SHOWN = 1000
"""Characters of an expression, and of its error, in the log."""
REFUSING = "an expression of a policy does not compile: all requests that match the policy are refused"
IGNORED = "an expression of a policy does not compile: the policy ignores failures"


class Rules(Protocol):
    async def compile(self) -> list[tuple[str, str]]:
        """Compile the expressions. The first call returns those that do not compile, with their errors; later ones return nothing."""


Made = TypeVar("Made", bound=Rules)


class Preparation:
    """Prepares the policies of one plugin."""

    def __init__(self, definitions: Derived[list[Definition[Made]]]) -> None:
        self._definitions = definitions
        self._prepared: object = None

    async def prepare(self) -> None:
        """Compile new policies. Costs nothing if nothing is new."""
        definitions = self._definitions.current()
        if definitions is self._prepared:
            return
        for definition in definitions:
            for expression, problem in await definition.rules.compile():
                about = {"policy": definition.name, "expression": expression[:SHOWN], "problem": problem[:SHOWN]}
                logger.error(IGNORED if definition.ignores_failures else REFUSING, extra=about)
        self._prepared = definitions
