"""Log lines that nobody can forge, make longer than a page, or make so many that nothing else is seen."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from apiserver.config import config, logs
from apiserver.filters import observe
from tests.fixtures.watching import Clock

FORMATTERS = [logs.JsonLines(), logs.TextLines()]


def record(
    message: str, *args: object, level: int = logging.INFO, error: Exception | None = None, **fields: object
) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error else None
    made = logging.LogRecord("apiserver.x", level, "/somewhere/x.py", 42, message, args, info)
    made.created = 1_700_000_000.25
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_a_json_line_has_kubernetes_members_then_the_fields() -> None:
    line = json.loads(logs.JsonLines().format(record("told %s", "you", level=logging.WARNING, port=6443, name_="x")))
    assert line == {
        "ts": 1_700_000_000_250.0, "level": "warning", "caller": "x.py:42", "msg": "told you", "port": 6443, "name_": "x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("level", "name", "v"),
    [
        (logging.DEBUG, "apiserver.x", 4),
        (logging.INFO, "apiserver.x", 0),
        (logging.INFO, logs.REQUEST_LOG, 3),
        (logging.WARNING, "apiserver.x", None),
        (logging.ERROR, "apiserver.x", None),
    ],
)
def test_json_line_has_the_verbosity_that_shows_it_unless_it_is_always_shown(
    level: int, name: str, v: int | None
) -> None:
    made = record("x", level=level)
    made.name = name
    assert json.loads(logs.JsonLines().format(made)).get("v") == v


def test_changed_settings_change_form_and_verbosity(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(logs.TextLines())
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    before, former = logs.verbosity(), logging.getLogger("apiserver").level
    try:
        logs.change(config.Logging(format="text", verbosity=0), config.Logging(format="json", verbosity=4))
        assert isinstance(handler.formatter, logs.JsonLines)
        assert logs.verbosity() == 4
        # The level that /debug/flags/v has set stays while the flag is the same.
        logs.set_verbosity(7)
        logs.change(config.Logging(format="json", verbosity=4), config.Logging(format="text", verbosity=4))
        assert isinstance(handler.formatter, logs.TextLines)
        assert logs.verbosity() == 7
    finally:
        logs.set_verbosity(before)
        logging.getLogger("apiserver").setLevel(former)


def test_a_text_line_is_klogs() -> None:
    line = logs.TextLines().format(record("told", port=6443, address="::1", ok=True))
    assert line == 'I1114 22:13:20.250000 x.py:42] "told" port=6443 address="::1" ok=true'


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_client_input_cannot_begin_a_new_log_line(formatter: logging.Formatter) -> None:
    line = formatter.format(record("HTTP", uri='/x\n{"msg":"forged"}\r\nI1114 "forged"', agent="\x1b[2J"))
    assert "\n" not in line
    assert "\r" not in line
    assert "\x1b" not in line


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_a_trace_stays_in_its_line(formatter: logging.Formatter) -> None:
    try:
        raise RuntimeError("deep\ninside")
    except RuntimeError as e:
        line = formatter.format(record("unhandled", level=logging.ERROR, error=e))
    assert "\n" not in line
    assert "RuntimeError" in line


@pytest.mark.parametrize(("verbosity", "level"), [(0, logging.INFO), (3, logging.INFO), (4, logging.DEBUG)])
def test_verbosity_four_shows_details(verbosity: int, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    logs.configure(config.Logging(format="json", verbosity=verbosity))
    assert logging.getLogger("apiserver.anything").getEffectiveLevel() == level
    [handler] = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr
    monkeypatch.setattr(root, "level", logging.WARNING)
    logging.getLogger("apiserver").setLevel(logging.NOTSET)


# How long


HUGE = {
    "ascii": "x" * 3_000_000,
    "quotes": '"' * 100_000,
    "not ascii": "\N{GRINNING FACE}" * 500_000,
    "control characters": "\x01" * 500_000,
    "half a surrogate pair": "\ud83d" * 100_000,
    "a list": ["y" * 1000] * 1000,
    "an integer": 10**5000,
    "a list with an integer": [10**5000],
    "bytes": b"\xff" * 100_000,
}


@pytest.mark.parametrize("formatter", FORMATTERS)
@pytest.mark.parametrize("value", HUGE.values(), ids=HUGE)
def test_log_line_is_bounded_for_every_message(formatter: logging.Formatter, value: object) -> None:
    try:
        raise RuntimeError(value)
    except RuntimeError as e:
        line = formatter.format(record("told %s", value, error=e, uri=value, agent=value, more=value, rest=value))
    assert len(line.encode(errors="backslashreplace")) <= logs.LINE_BYTES
    assert "\n" not in line
    if isinstance(formatter, logs.JsonLines):
        assert {"msg", "uri", "agent", "more", "rest", "stacktrace"} <= json.loads(line).keys()


def test_cut_text_says_how_much_is_missing() -> None:
    line = json.loads(logs.JsonLines().format(record("m", uri="x" * 10_000)))
    assert line["uri"] == "x" * logs.FIELD_BYTES + "… 5,904 more"


def test_a_trace_that_is_too_long_shows_where_it_was_and_what_was_raised() -> None:
    def down(depth: int) -> None:
        if depth:
            up(depth - 1)
        raise RuntimeError("the reason")

    def up(depth: int) -> None:
        down(depth)

    try:
        down(300)
    except RuntimeError as e:
        trace = json.loads(logs.JsonLines().format(record("m", error=e)))["stacktrace"]
    assert trace.startswith("Traceback (most recent call last):")
    assert trace.endswith("RuntimeError: the reason\n")


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize("formatter", FORMATTERS)
def test_a_call_that_cannot_be_printed_still_makes_a_line(formatter: logging.Formatter) -> None:
    assert "told %s %s <TypeError>" in formatter.format(record("told %s %s", "one"))
    assert "Unprintable that cannot be printed" in formatter.format(record("m", it=Unprintable()))


# How many


class Log:
    """A handler on a clock of the test, and what it wrote."""

    def __init__(self) -> None:
        self.clock, self.stream = Clock(), io.StringIO()
        self.handler = logs.LimitedHandler(self.stream, clock=self.clock)
        self.handler.setFormatter(logging.Formatter("%(message)s"))

    def tell(self, *messages: str, name: str = "apiserver.x", line: int = 1, times: int = 1, task: str = "") -> None:
        for _ in range(times):
            for message in messages:
                told = logging.LogRecord(name, logging.WARNING, "/x.py", line, "refused %s", (message,), None)
                if task:
                    told.task = task
                self.handler.handle(told)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.handler.close()


def test_first_lines_of_one_cause_in_a_window_are_written_the_rest_counted(log: Log) -> None:
    log.tell("a", "b", times=617)
    assert log.lines == ["refused a", "refused b"] * (logs.BURST // 2)
    log.clock.now += logs.WINDOW_SECONDS
    log.tell("c")
    assert log.lines[logs.BURST :] == ["refused %s … 1,214 more like this in the last 10 s", "refused c"]


def test_no_cause_hides_another(log: Log) -> None:
    log.tell("a", times=1000)
    log.tell("b", line=2)
    log.tell("c", name="apiserver.y")
    assert log.lines[logs.BURST :] == ["refused b", "refused c"]


def test_every_failing_task_is_a_cause_of_its_own(log: Log) -> None:
    log.tell("a", task="one", times=1000)
    log.tell("b", task="another")
    assert log.lines[logs.BURST :] == ["refused b"]


def test_causes_below_the_limit_are_never_held_back(log: Log) -> None:
    for number in range(100):
        log.tell(str(number))
        log.clock.now += logs.WINDOW_SECONDS / logs.BURST
    assert log.lines == [f"refused {number}" for number in range(100)]


def test_the_log_of_requests_holds_every_request(log: Log) -> None:
    log.tell("a", name=logs.REQUEST_LOG, times=1000)
    assert len(log.lines) == 1000


def test_flood_that_has_ended_is_reported_by_itself(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "WINDOW_SECONDS", 0.05)
    log.tell("a", times=25)
    log.clock.now += 1
    timer = log.handler._timer
    assert timer is not None
    timer.join()
    assert log.lines[logs.BURST :] == ["refused %s … 5 more like this in the last 1 s"]


def test_suppressed_lines_are_counted_at_the_end(log: Log) -> None:
    log.tell("a", times=25)
    log.handler.close()
    assert log.lines[logs.BURST :] == ["refused %s … 5 more like this in the last 0 s"]


def test_the_request_log_is_that_of_the_filter_that_writes_it() -> None:
    assert observe.logger.name == logs.REQUEST_LOG
