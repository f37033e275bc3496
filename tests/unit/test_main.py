"""Exit codes, and log lines that nobody can forge."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest

from apiserver import __main__ as program
from apiserver import config


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
    line = json.loads(program.JsonLines().format(record("told %s", "you", level=logging.WARNING, port=6443, name_="x")))
    assert line == {
        "ts": 1_700_000_000_250.0, "level": "warning", "caller": "x.py:42", "msg": "told you", "port": 6443, "name_": "x",
    }  # fmt: skip


def test_a_text_line_is_klogs() -> None:
    line = program.TextLines().format(record("told", port=6443, address="::1", ok=True))
    assert line == 'I1114 22:13:20.250000 x.py:42] "told" port=6443 address="::1" ok=True'


@pytest.mark.parametrize("formatter", [program.JsonLines(), program.TextLines()])
def test_what_a_client_sent_cannot_begin_a_new_line(formatter: logging.Formatter) -> None:
    line = formatter.format(record("HTTP", uri='/x\n{"msg":"forged"}\r\nI1114 "forged"', agent="\x1b[2J"))
    assert "\n" not in line
    assert "\r" not in line
    assert "\x1b" not in line


@pytest.mark.parametrize("formatter", [program.JsonLines(), program.TextLines()])
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
    program.configure_logging(config.Logging(format="json", verbosity=verbosity))
    assert logging.getLogger("apiserver.anything").getEffectiveLevel() == level
    [handler] = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr
    monkeypatch.setattr(root, "level", logging.WARNING)
    logging.getLogger("apiserver").setLevel(logging.NOTSET)


def test_a_misconfiguration_ends_with_two_and_names_every_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["dev", "--secure-port", "x", "--nonsense"], {}) == 2
    told = capsys.readouterr().err
    assert re.search("--secure-port", told)
    assert re.search("--nonsense", told)
