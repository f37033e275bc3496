"""How `make` and continuous integration choose a Python, and make its environment."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tomllib
from types import ModuleType, SimpleNamespace

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
LOCK = "one==1 \\\n    --hash=sha256:00\ntwo==2.5 ; python_full_version < '4' \\\n    --hash=sha256:00\n"


@pytest.fixture(name="venv")
def loaded(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("venv_script", PROJECT / "scripts" / "venv.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def without_pip(command: list[str], *, check: bool) -> None:
        subprocess.run([*command, "--without-pip"], check=check)

    monkeypatch.setattr(module, "subprocess", SimpleNamespace(**vars(subprocess) | {"run": without_pip}))
    return module


def executable(file: pathlib.Path, text: str) -> pathlib.Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def make(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *words]
    # Variables of a `make` that runs the tests would change this one.
    outside = {name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")}
    return subprocess.run(command, cwd=PROJECT, env={**outside, **environ}, capture_output=True, text=True, check=False)


def test_each_supported_python_has_a_classifier() -> None:
    supported = [f"3.{minor}" for minor in range(11, 15)]
    assert SETTINGS["requires-python"] == ">=3.11"
    prefix = "Programming Language :: Python :: "
    assert [name.removeprefix(prefix) for name in SETTINGS["classifiers"] if name.startswith(prefix)] == supported
    assert f"for version in {' '.join(supported)}; do" in (PROJECT / "Makefile").read_text()


@pytest.mark.parametrize("target", ["run", "venv", "test", "test-unit"])
def test_an_older_python_gets_one_line_before_anything_is_installed(target: str, tmp_path: pathlib.Path) -> None:
    # Runs the check as an older Python would.
    pretend = 'import sys; sys.version_info = (3, 10, 13); sys.version = "3.10.13 (x)"; exec(sys.argv[1])'
    old = executable(tmp_path / "an old python", f"#!/bin/sh\nexec {sys.executable} -c '{pretend}' \"$2\"\n")
    told = make(target, f"PYTHON={old}", f"VENV={tmp_path}/venv")
    assert told.returncode
    assert told.stdout == ""
    line, end = told.stderr.splitlines()
    assert line == "Sluice needs Python 3.11 or newer, and this is 3.10.13. Name another one: make PYTHON=python3.12"
    assert end.startswith("make: ***")
    assert not (tmp_path / "venv").exists()


def test_unit_tests_leave_out_exactly_the_files_that_run_kubernetes_programs() -> None:
    """`make test-unit` needs nothing that `make binaries` builds."""
    runs = re.compile(r"binaries\.(?:kubectl|binary)\b|^from charts import generate$", re.MULTILINE)
    files = [file for folder in ("unit", "structure") for file in (PROJECT / "tests" / folder).rglob("test_*.py")]
    running = [file for file in files if file != pathlib.Path(__file__) and runs.search(file.read_text())]
    told = make("--dry-run", "test-unit")
    ignored = re.findall(r"--ignore=(\S+)", told.stdout)
    assert sorted(ignored) == sorted(file.relative_to(PROJECT).as_posix() for file in running) != []


def test_the_package_refuses_an_older_python_in_one_line() -> None:
    pretend = "import sys; sys.version_info = (3, 9, 2); sys.version = '3.9.2 (x)'; import apiserver"
    told = subprocess.run([sys.executable, "-c", pretend], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (1, "Sluice needs Python 3.11 or newer, and this is 3.9.2.\n")


def test_an_environment_is_made_anew_for_another_python_or_folder(
    venv: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "requirements-dev.lock"
    lock.write_text(LOCK)
    (tmp_path / "requirements-run.lock").write_text(LOCK.partition("two")[0])
    (tmp_path / "requirements-other.lock").write_text("one==3\n")
    installed: list[int] = []

    def pip(_python: pathlib.Path, _arguments: list[str], packages: int) -> int:
        installed.append(packages)
        return 0

    monkeypatch.setattr(venv, "pip", pip)
    folder = tmp_path / "with a blank"
    words = [str(folder), "-r", str(lock)]
    mark = folder / "mark"

    assert venv.main(words) == 0
    assert installed == [2]
    mark.touch()
    assert venv.main(words) == 0
    assert venv.main([str(folder), "-r", str(tmp_path / "requirements-run.lock")]) == 0
    assert installed == [2]

    lock.write_text(LOCK.replace("2.5", "2.6"))
    assert venv.main(words) == 0
    assert installed == [2, 2]
    assert mark.exists()
    assert venv.main([str(folder), "-r", str(tmp_path / "requirements-other.lock")]) == 0
    assert installed == [2, 2, 1]

    with monkeypatch.context() as patch:
        patch.setattr(sys, "version", sys.version.replace(".", ".9", 1))
        assert venv.main(words) == 0
    assert not mark.exists()
    mark.touch()
    assert venv.main(words) == 0
    assert not mark.exists()


def test_an_installation_that_fails_is_tried_again(
    venv: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "a.lock"
    lock.write_text(LOCK)
    codes = [1, 0]
    monkeypatch.setattr(venv, "pip", lambda *_: codes.pop(0))
    assert venv.main([str(tmp_path / "venv"), "-r", str(lock)]) == 1
    assert venv.main([str(tmp_path / "venv"), "-r", str(lock)]) == 0
    assert codes == []


def test_python_without_ensurepip_is_named_with_the_missing_package(
    venv: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.lock").write_text(LOCK)
    monkeypatch.setattr(venv.importlib.util, "find_spec", lambda name: None)
    assert venv.main([str(tmp_path / "venv"), "-r", str(tmp_path / "a.lock")]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert sys.executable in line
    assert "apt install python3-venv" in line
    assert not (tmp_path / "venv").exists()


PIP = """#!/bin/sh
echo "Collecting one==1 (from -r x)"
echo "Collecting two==2.5 (from -r x)"
while [ ! -e "{go}" ]; do sleep 0.01; done
echo "Installing collected packages: one, two"
exit {code}
"""


@pytest.mark.parametrize("code", [0, 2])
def test_line_shows_the_progress_of_pip_and_its_output_only_on_failure(
    code: int,
    venv: ModuleType,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    go = tmp_path / "go"
    python = executable(tmp_path / "python", PIP.format(go=go, code=code))
    monkeypatch.setattr(venv, "SECONDS", 0.05)
    told: list[str] = []

    def note(text: str, **_: object) -> None:
        told.append(text)
        if "2 of 2" in text:
            go.touch()

    monkeypatch.setattr(venv, "print", note, raising=False)
    assert venv.pip(python, ["-r", "x"], 2) == code
    assert "pip: 2 of 2 packages, two==2.5" in told
    assert ("Installing collected packages" in capfd.readouterr().err) == bool(code)


def test_continuous_integration_runs_the_oldest_python_then_the_newest(tmp_path: pathlib.Path) -> None:
    """Runs a copy of the script whose Pythons, and whose make, only say who they are."""
    script = (PROJECT / ".ci" / "run").read_text().replace("/usr/bin/python3 ", f'"{tmp_path}/usr/bin/python3" ')
    executable(tmp_path / "a b" / ".ci" / "run", script)
    executable(tmp_path / "a b" / ".venv" / "bin" / "python", "#!/bin/sh\nexit 77\n")
    executable(tmp_path / "bin" / "make", '#!/bin/sh\nfor word; do echo "[$word]"; done\n')
    for minor in (11, 12, 13, 14):
        executable(tmp_path / "bin" / f"python3.{minor}", "#!/bin/sh\nexit 127\n")
    executable(tmp_path / "bin" / "python3", "#!/bin/sh\nexit 127\n")

    def run() -> str:
        environ = {
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "PYENV_ROOT": f"{tmp_path}/p y",
        }
        command = [str(tmp_path / "a b" / ".ci" / "run")]
        told = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        return told.stdout if told.returncode == 0 else f"{told.returncode}: {told.stderr}"

    def at_hand(path: str, version: str) -> pathlib.Path:
        return executable(tmp_path / path, f'#!/bin/sh\necho "{version} $0"\n')

    assert re.fullmatch(r"1: ci: no Python from 3\.11 to 3\.14 with venv is at hand .*\n", run())
    system = at_hand("usr/bin/python3", "3.11.2")
    docs = ["[docs]", f"[PYTHON={system}]"]
    older = ["ci: what depends on the Kubernetes release, on the older ones", "[test-releases]", f"[PYTHON={system}]"]
    assert run().splitlines()[1:] == [
        "[test]",
        f"[PYTHON={system}]",
        *docs,
        *older,
        "ci: no other Python is at hand, so nothing runs a second time",
    ]
    at_hand("p y/versions/3.11.10/bin/python3", "3.11.10")
    newest = at_hand("p y/versions/3.13.0/bin/python3", "3.13.0")
    assert run().splitlines() == [
        f"ci: Python 3.11.2 ({system}) is the oldest at hand: every check",
        "[test]",
        f"[PYTHON={system}]",
        *docs,
        *older,
        f"ci: Python 3.13.0 ({newest}) is the newest at hand: unit tests and CEL",
        "[test-python]",
        f"[PYTHON={newest}]",
        "[VENV=.venv-newest]",
    ]
