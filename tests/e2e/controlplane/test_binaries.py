"""The cache of test binaries, with a shell script in place of Go."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import subprocess

import pytest

from tests.e2e.controlplane import binaries

# Stands in for `go build ... -o OUT PACKAGE`: counts its runs, takes a moment, writes OUT.
GO = """#!/bin/sh
echo run >>"$RUNS"
while [ "$1" != -o ]; do shift; done
sleep 0.2
printf '#!/bin/sh\\necho built\\n' >"$2"
chmod +x "$2"
"""


@pytest.fixture
def go(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    script = tmp_path / "go"
    script.write_text(GO)
    script.chmod(0o755)
    monkeypatch.setattr(binaries, "_go", lambda: str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.delenv("KUBECTL", raising=False)
    return script


def test_many_callers_at_once_build_once(go: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        [kubectl] = {future.result() for future in [pool.submit(binaries.kubectl) for _ in range(4)]}
    assert subprocess.run([kubectl], capture_output=True, text=True, check=True).stdout == "built\n"
    assert pathlib.Path(os.environ["RUNS"]).read_text().count("run") == 1
    assert f"building kubectl {binaries.version()}" in capsys.readouterr().err


def test_a_failed_build_says_why_and_leaves_nothing_that_looks_finished(go: pathlib.Path) -> None:
    go.write_text("#!/bin/sh\necho no network\nexit 3\n")
    with pytest.raises(binaries.BuildError, match=r"exit code 3(.|\n)*no network"):
        binaries.kubectl()
    assert list(pathlib.Path(os.environ["XDG_CACHE_HOME"]).rglob("kubectl")) == []


def test_another_version_is_another_place(go: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = binaries.kubectl()
    monkeypatch.setattr(binaries, "version", lambda: "v1.99.0")
    assert binaries.kubectl().parent != first.parent


def test_kubectl_of_the_environment_wins(go: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL", str(go))
    assert binaries.kubectl() == go
    assert not pathlib.Path(os.environ["RUNS"]).exists()


def test_a_wrong_kubectl_of_the_environment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL", "/does/not/exist")
    with pytest.raises(binaries.BuildError, match="KUBECTL=/does/not/exist"):
        binaries.kubectl()
