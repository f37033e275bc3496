"""Exit codes."""

from __future__ import annotations

import re

import pytest

from apiserver import __main__ as program


def test_a_misconfiguration_ends_with_two_and_names_every_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["dev", "--secure-port", "x", "--nonsense"], {}) == 2
    told = capsys.readouterr().err
    assert re.search("--secure-port", told)
    assert re.search("--nonsense", told)
