"""Sets of installed packages: the image has what serving needs, `make run` a store in addition, and only `make test` all the tools."""

from __future__ import annotations

import pathlib
import re
import subprocess
import tomllib

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())


def locked(name: str) -> dict[str, str]:
    """The version of each package."""
    text = (PROJECT / name).read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", text, re.MULTILINE))


def named(requirements: list[object]) -> set[str]:
    words = [re.match(r"[A-Za-z0-9._-]+", item) for item in requirements if isinstance(item, str)]
    return {word[0].lower().replace("_", "-") for word in words if word}


IMAGE, RUN, DEV = map(locked, ("requirements.lock", "requirements-run.lock", "requirements-dev.lock"))
NEEDED = named(SETTINGS["project"]["dependencies"])
STORE = named(SETTINGS["project"]["optional-dependencies"]["dev"])
TOOLS = named(SETTINGS["dependency-groups"]["dev"])


def test_each_lock_holds_what_its_users_need_and_no_more() -> None:
    assert IMAGE.keys() >= NEEDED
    assert not IMAGE.keys() & (STORE | TOOLS)
    assert RUN.keys() >= NEEDED | STORE
    assert not RUN.keys() & TOOLS
    assert DEV.keys() >= NEEDED | STORE | TOOLS


def test_one_package_has_one_version_in_all_locks() -> None:
    assert IMAGE.items() <= RUN.items() <= DEV.items()
    assert locked("requirements-build.lock").items() <= DEV.items()


def test_the_image_is_installed_from_the_lock_without_a_store() -> None:
    lines = (PROJECT / "Dockerfile").read_text()
    assert set(re.findall(r"-r (\S+)", lines)) == {"requirements.lock", "requirements-build.lock"}
    runtime = lines.rpartition("FROM ")[2]
    assert runtime.startswith("scratch\n")
    assert re.findall(r"COPY --from=build (\S+)", runtime) == ["/root-of-image"]
    assert not re.search(r"valkey|redis", lines)


def commands(target: str, folder: pathlib.Path) -> str:
    """Commands that make would run on a fresh checkout."""
    command = ["make", "--dry-run", "--no-print-directory", f"VENV={folder}/venv", "ARGS=", target]
    return subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout


def test_running_installs_nothing_of_the_tests(tmp_path: pathlib.Path) -> None:
    told = commands("run", tmp_path)
    assert re.findall(r"-r (\S+)", told) == ["requirements-run.lock"]
    assert "binaries" not in told
    assert told.splitlines()[-1].endswith("-m apiserver dev ")
    assert re.findall(r"-r (\S+)", commands("test", tmp_path)) == ["requirements-dev.lock"]


@pytest.mark.parametrize("words", [["help"], []], ids=["help", "nothing"])
def test_make_help_lists_every_target(words: list[str]) -> None:
    command = ["make", "--no-print-directory", *words]
    told = subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    makefile = (PROJECT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert sorted(line.split()[0] for line in told.splitlines()) == sorted(phony[1].split())
