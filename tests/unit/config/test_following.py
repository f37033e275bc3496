"""Changes of the configuration file while a server runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from apiserver.config import config, following
from apiserver.config.config import Live
from apiserver.config.flags import ConfigError
from apiserver.config.following import Following


class Rig:
    """A file with the settings of a start, and what is prepared for its changes."""

    def __init__(self, folder: Path, text: str, *argv: str) -> None:
        self.file = folder / "sluice.yaml"
        self.file.write_text(text)
        self.config = config.parse(["dev", f"--config={self.file}", *argv], {})
        self.live = self.config.live
        self.changed = asyncio.Queue[tuple[int, int]]()
        self.refused: list[str] = []
        self.following = Following(self.file, self.live, prepared=[self._prepare])

    def _prepare(self, old: Live, new: Live) -> Callable[[], None]:
        if self.refused:
            raise ConfigError(self.refused)
        levels = old.logging.verbosity, new.logging.verbosity
        return lambda: self.changed.put_nowait(levels)

    async def change(self, text: str) -> None:
        self.file.write_text(text)
        await self.following.reload()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_live_flags_apply_and_the_others_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path, "v: 1\nsecure-port: 7000\nmax-requests-inflight: 10\n")
    await rig.change("v: 4\nsecure-port: 7001\nmax-requests-inflight: 20\ngroup: a.test\nmin-request-timeout: 60\n")
    live = rig.live
    assert (live.logging.verbosity, live.limits.in_flight, live.limits.watch_seconds) == (4, 20, 60)
    assert rig.changed.get_nowait() == (1, 4)
    assert {name: live.shown[name] for name in ("v", "max-requests-inflight", "secure-port", "group")} == {
        "v": "4", "max-requests-inflight": "20", "secure-port": "7000", "group": "resource.sluice.dev",
    }  # fmt: skip
    assert warnings(caplog) == ["needs a restart: secure-port", "needs a restart: group"] or warnings(caplog) == [
        "needs a restart: group", "needs a restart: secure-port",
    ]  # fmt: skip
    caplog.clear()
    await rig.change("v: 4\nsecure-port: 7001\nmax-requests-inflight: 20\ngroup: b.test\nmin-request-timeout: 60\n")
    assert warnings(caplog) == ["needs a restart: group"]


async def test_removed_line_brings_the_default_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "v: 4\nmax-requests-inflight: 20\n")
    await rig.change("v: 4\n")
    assert rig.live.limits.in_flight == 400


async def test_flag_of_the_command_line_is_not_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path, "", "-v=2", "--secure-port=1")
    await rig.change("v: 4\nsecure-port: 2")
    assert (rig.live.logging.verbosity, warnings(caplog)) == (2, [])


async def test_limit_that_is_not_live_keeps_its_value_beside_one_that_is(tmp_path: Path) -> None:
    rig = Rig(tmp_path, "request-timeout: 30s\nmax-requests-inflight: 1")
    await rig.change("request-timeout: 90s\nmax-requests-inflight: 2")
    assert (rig.live.limits.request_seconds, rig.live.limits.in_flight) == (30, 2)


@pytest.mark.parametrize("text", ["v: x", "v: 3\nnope: 1", "v: 3\ngroup: G", "v: ["])
async def test_file_with_an_error_changes_nothing(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path, "v: 1")
    await rig.change(text)
    assert (rig.live.logging.verbosity, rig.live.shown["v"], rig.changed.empty()) == (1, "1", True)
    assert warnings(caplog) == ["the changed configuration file is not used: the former settings are"]
    await rig.change("v: 2")
    assert rig.live.logging.verbosity == 2


async def test_change_that_cannot_be_prepared_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(tmp_path, "v: 1\nmax-requests-inflight: 10")
    rig.refused = ["no policy"]
    await rig.change("v: 2\nmax-requests-inflight: 20")
    assert (rig.live.logging.verbosity, rig.live.limits.in_flight) == (1, 10)
    [record] = caplog.records
    assert record.__dict__["errors"] == ["no policy"]


async def test_password_is_neither_shown_nor_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pem, file = tmp_path / "x.pem", tmp_path / "sluice.yaml"
    pem.touch()
    text = f"tls-cert-file: {pem}\ntls-private-key-file: {pem}\nstandalone: true\nredis-url: redis://u:%s@h\n"
    file.write_text(text % "hunter2")
    live = config.parse(["serve", f"--config={file}"], {}).live
    file.write_text(text % "hunter3")
    await Following(file, live, prepared=[]).reload()
    assert warnings(caplog) == ["needs a restart: redis-url"]
    assert live.shown["redis-url"] == "CLASSIFIED"
    assert "hunter" not in caplog.text + "".join(str(record.__dict__) for record in caplog.records)


async def test_changed_file_is_read_and_a_replaced_link_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    rig = Rig(tmp_path, "v: 1")
    task = asyncio.create_task(rig.following.run())

    try:
        rig.file.write_text("v: 22")
        assert await rig.changed.get() == (1, 22)
        rig.file.unlink()
        other = tmp_path / "other.yaml"
        other.write_text("v: 333")
        rig.file.symlink_to(other)
        assert await rig.changed.get() == (22, 333)
    finally:
        task.cancel()
