"""Follow the configuration file while the server runs.

A changed file is read once it has stood still for a while, so that no half-written file counts. Files of a mounted ConfigMap are symbolic
links that change together: their targets are looked at. Flags that are declared `live` apply at once, all together or none. The log names
the others, which need a restart. A file with an error changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from apiserver import files
from apiserver.config.config import FLAGS, Live
from apiserver.config.flags import ConfigError

logger = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""The time between two looks at the file. A changed file is read when two looks in a row find the same state."""

Prepare = Callable[[Live, Live], Callable[[], None]]
"""Prepares the change from the former settings to the new ones, and returns the function that makes it. Raises ConfigError."""


class Following:
    """Follows a file. `live` are the settings that apply, `prepared` is everything that must change with them."""

    def __init__(self, path: Path, live: Live, *, prepared: Sequence[Prepare]) -> None:
        self._path = path
        self._live = live
        self._prepared = prepared
        self._seen = files.state(path)
        self._waiting = dict[str, str]()
        """Texts of flags that need a restart, as the log has named them."""

    async def run(self) -> None:
        """Follow the file until cancelled."""
        async for seen in files.changes(partial(files.state, self._path), self._seen, POLL_SECONDS):
            self._seen = seen
            if seen != files.ABSENT:
                await self.reload()

    async def reload(self) -> None:
        """Read the file, and apply what can change. Logs every error."""
        try:
            reading = await asyncio.to_thread(self._live.read_again)
            if reading.errors:
                raise ConfigError(reading.errors)
            self._apply(reading.config.live)
        except ConfigError as error:
            logger.error(
                "the changed configuration file is not used: the former settings are", extra={"errors": error.errors}
            )

    def _apply(self, new: Live) -> None:
        """Apply the live settings. Raises ConfigError before anything has changed."""
        changes = [prepare(self._live, new) for prepare in self._prepared]
        live = {flag.name for flag in FLAGS if flag.live}
        changed = {name: text for name, text in new.exact.items() if text != self._live.exact[name]}
        waiting = {name: text for name, text in changed.items() if name not in live}
        for change in changes:
            change()
        self._live.adopt(new, live)
        if applied := [name for name in changed if name in live]:
            logger.info("settings changed", extra={"flags": applied})
        for name, text in waiting.items():
            if self._waiting.get(name) != text:
                logger.warning("needs a restart: %s", name)
        self._waiting = waiting
