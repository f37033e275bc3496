"""Format log lines, and limit them: each line has a bounded length, and each cause a bounded number in a time window.

Upstream: kubernetes/component-base `logs/json`, `logs/klog`; neither limits what a client can make it write.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TextIO

from apiserver.config import config

logger = logging.getLogger(__name__)

LINE_BYTES = 16 << 10
FIELD_BYTES = 4 << 10
TRACE_BYTES = 8 << 10
ENVELOPE_BYTES = 1 << 10
"""Bytes of a line around its message and fields."""
TRACE_FRAMES = 40
"""The innermost frames; a recursion that went too deep has thousands."""

BURST = 20
WINDOW_SECONDS = 10.0
"""The most lines of one cause in this many seconds; the others are counted and reported at the end of the window."""
REQUEST_LOG = "apiserver.filters.observe"
"""`-v=3` asks for one line per request: these lines are not limited."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LETTERS = {logging.DEBUG: "D", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


def configure(settings: config.Logging) -> None:
    """Log to standard error, one line per event."""
    handler = LimitedHandler(sys.stderr)
    handler.setFormatter(_formatter(settings.format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    set_verbosity(settings.verbosity)


def change(old: config.Logging, new: config.Logging) -> None:
    """Change the form of lines and the verbosity to new settings. A verbosity that was set by /debug/flags/v stays if its flag did not
    change.
    """
    if new.format != old.format:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(_formatter(new.format))
    if new.verbosity != old.verbosity:
        set_verbosity(new.verbosity)


def _formatter(form: str) -> logging.Formatter:
    return JsonLines() if form == "json" else TextLines()


class _Present:
    """The verbosity of this process."""

    verbosity = 0


def verbosity() -> int:
    """Return how much is logged now: 3 and more have each request, 4 and more have details."""
    return _Present.verbosity


def set_verbosity(level: int) -> None:
    """Change how much is logged from now on."""
    _Present.verbosity = level
    logging.getLogger("apiserver").setLevel(logging.DEBUG if level >= 4 else logging.INFO)


def unraisable(what: sys.UnraisableHookArgs) -> None:
    """Log an error that nothing could handle as a normal line. Clients can cause it: Python's `ssl` decodes the requested name (SNI) as
    ASCII before any other code sees it.
    """
    logger.error(
        "an error could not be handled",
        extra={"error": str(what.exc_value)[:256], "type": what.exc_type.__name__, "where": repr(what.object)[:256]},
    )


# ---------------------------------------------------------------------------------------------------------------- how long


def _cut(text: str, size: int) -> str:
    """Cut a text, and append how much is missing."""
    return text if len(text) <= size else f"{text[:size]}… {len(text) - size:,} more"


def _quoted(value: object, size: int, *, ascii_only: bool) -> str:
    """Encode a value as JSON of about `size` bytes at most. No client input can begin a new line or look like a field."""
    if isinstance(value, int | float | None) and not (isinstance(value, int) and value.bit_length() > 64):
        return json.dumps(value)
    if isinstance(value, list | tuple | dict):
        with contextlib.suppress(ValueError, RecursionError):
            whole = json.dumps(value, default=_text, ensure_ascii=ascii_only)
            if _length(whole) <= size:
                return whole
    text = _cut(_text(value), size)
    quoted = json.dumps(text, ensure_ascii=ascii_only)
    left = size
    while _length(quoted) > size + ENVELOPE_BYTES:  # a character may take up to twelve bytes: `\ud83d\ude00`
        left //= 2
        quoted = json.dumps(_cut(text, left), ensure_ascii=ascii_only)
    return quoted


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="backslashreplace"))


def _text(value: object) -> str:
    """Convert any value to text. An integer with too many digits cannot be printed, and a line must not fail for that."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - of any class that is logged
        return f"<{type(value).__name__} that cannot be printed: {type(error).__name__}>"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001 - a call with the wrong arguments is a bug that must not hide what it tells
        return f"{_text(record.msg)} <{type(error).__name__}>"


def _trace(record: logging.LogRecord) -> str | None:
    """Format the innermost frames. A text that is too long keeps both ends, which show the place and the exception."""
    if not record.exc_info or record.exc_info[0] is None:
        return None
    text = "".join(traceback.format_exception(*record.exc_info, limit=-TRACE_FRAMES))
    half = TRACE_BYTES // 3  # its line ends are quoted
    return text if len(text) <= 2 * half else f"{text[:half]}\n… {len(text) - 2 * half:,} more …\n{text[-half:]}"


def _parts(record: logging.LogRecord, *, ascii_only: bool) -> Iterator[tuple[str, str]]:
    """Yield `msg`, then the caller's fields (`extra`), quoted. The first ones may use all of the line."""
    trace = _trace(record)
    left = LINE_BYTES - ENVELOPE_BYTES - (TRACE_BYTES if trace else 0)
    given = ((name, value) for name, value in vars(record).items() if name not in _STANDARD)
    for name, value in chain([("msg", _message(record))], given):
        quoted = _quoted(value, min(FIELD_BYTES, left), ascii_only=ascii_only)
        left = max(0, left - _length(quoted))
        yield name, quoted
    if trace:
        yield "stacktrace", _quoted(trace, TRACE_BYTES, ascii_only=ascii_only)


class JsonLines(logging.Formatter):
    """Kubernetes' JSON form: ts in milliseconds, caller, v, msg, then the fields; and level, which upstream leaves out.

    v is the verbosity that shows the line. Warnings and errors have none, because they are always shown.
    """

    def format(self, record: logging.LogRecord) -> str:
        head: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "level": record.levelname.lower(),
            "caller": f"{record.filename}:{record.lineno}",
        }
        if record.levelno < logging.WARNING:
            head["v"] = 3 if record.name == REQUEST_LOG else 0 if record.levelno >= logging.INFO else 4
        fields = "".join(f",{json.dumps(name)}:{value}" for name, value in _parts(record, ascii_only=True))
        return json.dumps(head, separators=(",", ":"))[:-1] + fields + "}"


class TextLines(logging.Formatter):
    """klog's text form: `I0102 15:04:05.678901 file.py:42] "message" name="value"`."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%m%d %H:%M:%S", time.gmtime(record.created))
        head = f"{_LETTERS.get(record.levelno, 'I')}{when}.{int(record.created % 1 * 1e6):06d}"
        (_, message), *fields = _parts(record, ascii_only=False)
        shown = "".join(f" {name}={value}" for name, value in fields)
        return f"{head} {record.filename}:{record.lineno}] {message}{shown}"


# --------------------------------------------------------------------------------------------------------------- how many


@dataclass(slots=True)
class _Cause:
    """The lines of one place in the code since `began`."""

    first: logging.LogRecord
    began: float
    said: int = 0
    left_out: int = 0


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes the first lines of each cause in a window; after the window, one line counts the others.

    A cause is a place in the code, whatever its text: there are as many as logging calls, and no client can add one. Each failing task
    (`tasks.supervised`) is a cause of its own, so that none hides another.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock = clock
        self._causes: dict[tuple[str, str, int, str], _Cause] = {}
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write or count a record. Called with this handler's lock held."""
        if record.name == REQUEST_LOG:
            super().emit(record)
            return
        place = record.name, record.filename, record.lineno, str(getattr(record, "task", ""))
        if (cause := self._causes.get(place)) is None or self._is_over(cause):
            self._forget(place)
            cause = self._causes[place] = _Cause(record, self._clock())
        if cause.said < BURST:
            cause.said += 1
            super().emit(record)
        else:
            cause.left_out += 1
            self._report_later()

    def _is_over(self, cause: _Cause) -> bool:
        return self._clock() - cause.began >= WINDOW_SECONDS

    def _forget(self, place: tuple[str, str, int, str]) -> None:
        """Drop a cause, and report the lines that were left out."""
        cause = self._causes.pop(place, None)
        if cause is None or not cause.left_out:
            return
        first, seconds = cause.first, self._clock() - cause.began
        text = f"… {cause.left_out:,} more like this in the last {seconds:.0f} s"
        about = (_cut(_text(first.msg), FIELD_BYTES // 2), text)
        super().emit(logging.LogRecord(first.name, first.levelno, first.pathname, first.lineno, "%s %s", about, None))

    def _report_later(self) -> None:
        """Start a thread that reports a flood after its end. Only one such thread runs at a time."""
        if self._timer is None:
            self._timer = threading.Timer(WINDOW_SECONDS, self._report)
            self._timer.daemon = True
            self._timer.start()

    def _report(self) -> None:
        self.acquire()
        try:
            self._timer = None
            for place, cause in list(self._causes.items()):
                if self._is_over(cause):
                    self._forget(place)
            if any(cause.left_out for cause in self._causes.values()):
                self._report_later()
        finally:
            self.release()

    def close(self) -> None:
        """Report what was left out until now, then close."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            for place in list(self._causes):
                self._forget(place)
        finally:
            self.release()
        super().close()
