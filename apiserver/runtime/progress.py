"""Show the progress of a long command: a bar on a terminal, a line from time to time elsewhere.

It goes to standard error, so that scripts can read standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import Protocol, TextIO

BAR_SECONDS, LINE_SECONDS = 0.2, 10.0
"""Time between two updates, on a terminal and elsewhere."""
BAR_CELLS = 24
_ERASE = "\r\x1b[K"


class Progress(Protocol):
    """Receives the progress of a command."""

    def begin(self, step: str, total: int | None = None) -> None:
        """Begin another step. `total` is its number of objects, None if unknown."""

    def advance(self, objects: int, *, left: int | None = None) -> None:
        """Count `objects` more. `left` is the number of objects that remain, if known."""


class Silent:
    """Shows nothing."""

    def begin(self, step: str, total: int | None = None) -> None:
        pass

    def advance(self, objects: int, *, left: int | None = None) -> None:
        pass


class Shown:
    """Shows progress while the context is open. A task prints it, so that it appears during long requests too."""

    def __init__(self, out: TextIO, *, line_seconds: float = LINE_SECONDS, bar_seconds: float = BAR_SECONDS) -> None:
        self._out = out
        self._bar = out.isatty()
        self._seconds = bar_seconds if self._bar else line_seconds
        self._step, self._done = "", 0
        self._total: int | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, step: str, total: int | None = None) -> None:
        self._step, self._done, self._total = step, 0, total

    def advance(self, objects: int, *, left: int | None = None) -> None:
        self._done += objects
        if left is not None:
            self._total = self._done + left

    async def __aenter__(self) -> Shown:
        self._task = asyncio.get_running_loop().create_task(self._show(), name="progress")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._bar:
            self._write(_ERASE)

    async def _show(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            if self._step:
                width = shutil.get_terminal_size().columns - 1
                self._write(f"{_ERASE}{self.text()[:width]}" if self._bar else f"{self.text()}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is closed, but the work goes on
            self._out.write(text)
            self._out.flush()

    def text(self) -> str:
        """Return the present progress."""
        if self._total is None:
            return f"{self._step}: {self._done}"
        total = max(self._total, self._done)
        share = self._done / total if total else 1.0
        counted = f"{self._done} of {total} ({share:.0%})"
        if not self._bar:
            return f"{self._step}: {counted}"
        cells = int(share * BAR_CELLS)
        return f"{self._step} [{'#' * cells}{'.' * (BAR_CELLS - cells)}] {counted}"
