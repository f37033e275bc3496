"""Exit codes."""

from __future__ import annotations

import importlib.util
import logging
import pathlib
import re

import pytest

from apiserver import __main__ as program


def test_a_misconfiguration_ends_with_two_and_names_every_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.run(["dev", "--secure-port", "x", "--nonsense"], {}) == 2
    told = capsys.readouterr().err
    assert re.search("--secure-port", told)
    assert re.search("--nonsense", told)


def test_feature_gates_that_cannot_stand_like_that_are_a_misconfiguration_told_before_anything_starts(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["dev", "--data-dir", str(tmp_path / "data"), "--feature-gates=WatchList=true,DRAAdminAccess=false"]
    assert program.run(words, {}) == 2
    assert capsys.readouterr().err.splitlines()[:2] == [
        "sluice: --feature-gates: unrecognized feature gate: WatchList",
        "sluice: --feature-gates: cannot set feature gate DRAAdminAccess to false, feature is locked to true",
    ]
    assert not (tmp_path / "data").exists()


def test_without_its_store_dev_says_in_one_line_what_to_install(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    try:
        assert program.run(["dev", "--data-dir", str(tmp_path / "data")], {}) == 1
    finally:
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)
    assert capsys.readouterr().err.splitlines()[-1] == (
        "sluice: `sluice dev` needs its own store: pip install 'sluice-apiserver[dev]'"
    )
