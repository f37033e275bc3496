"""Plans along a schema that are worked out when the first value comes to them: most definitions have many nodes that no object uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class LazyPlan(ABC):
    """A plan whose slots are set by `_work_out`, which the first read of an unset slot calls."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name not in type(self).__slots__:
            raise AttributeError(name)
        self._work_out()
        return object.__getattribute__(self, name)

    @abstractmethod
    def _work_out(self) -> None:
        """Set every slot that is unset."""
