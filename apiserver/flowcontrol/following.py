"""Put the cluster's FlowSchemas and PriorityLevelConfigurations in force, whenever they change.

Until both are read, and while they cannot be, the former configuration stays. Objects are read in a thread, once for each of their
versions: there may be many, and an object may have more than a mebibyte. Sluice does not write the condition `Dangling`; kube-apiserver
does. Upstream: kubernetes/apiserver `pkg/util/flowcontrol/apf_controller.go` digestConfigObjects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from apiserver.flowcontrol.control import FlowControl
from apiserver.flowcontrol.types import Malformed, flow_schema, priority_level

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.1
"""How long further changes are waited for, so that many changes are digested together."""

Object = Mapping[str, Any]
T = TypeVar("T")


class Copy(Protocol):
    """A copy of a collection, objects by name."""

    @property
    def ready(self) -> asyncio.Event: ...
    @property
    def items(self) -> Mapping[str, Object]: ...


class Following:
    """`changed` is set after each change of a copy."""

    def __init__(self, control: FlowControl, *, schemas: Copy, levels: Copy, changed: asyncio.Event) -> None:
        self._control = control
        self._schemas = Reader(schemas, flow_schema)
        self._levels = Reader(levels, priority_level)
        self._changed = changed

    async def run(self) -> None:
        """Follow until cancelled."""
        for copy in (self._schemas.copy, self._levels.copy):
            await copy.ready.wait()
        self._changed.set()
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            schemas, levels = await self._schemas.read(), await self._levels.read()
            self._control.configure(schemas, levels)
            about = {"flowSchemas": len(schemas), "priorityLevels": len(levels)}
            logger.info("the flow control of the cluster is in force", extra=about)


class Reader(Generic[T]):
    """Reads the objects of a copy. An object that did not change is not read again."""

    def __init__(self, copy: Copy, read: Callable[[Object], T]) -> None:
        self.copy = copy
        self._read = read
        self._known: dict[str, tuple[Object, T | None]] = {}

    async def read(self) -> list[T]:
        """Return the objects of the copy that can be used."""
        items = dict(self.copy.items)
        known = self._known
        changed = {name: found for name, found in items.items() if name not in known or known[name][0] is not found}
        made = await asyncio.to_thread(self._made, changed)
        self._known = {name: made[name] if name in made else known[name] for name in items}
        return [one for _, one in self._known.values() if one is not None]

    def _made(self, changed: Mapping[str, Object]) -> dict[str, tuple[Object, T | None]]:
        return {name: (found, self._one(name, found)) for name, found in changed.items()}

    def _one(self, name: str, found: Object) -> T | None:
        try:
            return self._read(found)
        except Malformed as error:
            logger.warning("an object of flow control is ignored", extra={"object": name[:253], "reason": str(error)})
            return None
