"""Every module of the package stands on its own, says what it is for, and is bound by the import contracts."""

from __future__ import annotations

import ast
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tomllib

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "apiserver"
FILES = sorted(PACKAGE.rglob("*.py"))
LEVEL_3 = ("wire", "patching", "storage", "cluster", "resources")

# Forks one child per module, so that each starts as fresh as a new interpreter without paying for the interpreter's own
# start. The parent imports nothing of ours and nothing of third parties.
IMPORT_EACH = """
import importlib, os, sys, traceback
failed = []
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            sys.stderr.write(name + " does not import alone:\\n" + traceback.format_exc())
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        failed.append(name)
sys.exit(1 if failed else 0)
"""


def _name(file: pathlib.Path) -> str:
    parts = file.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _import_each(names: list[str], bytecode: pathlib.Path) -> str:
    command = [sys.executable, "-W", "error", "-c", IMPORT_EACH, *names]
    # Compile each module once, not once per child, whatever the surroundings say about bytecode.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode)}
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=environment).stderr


def test_every_module_imports_alone_and_without_warnings(tmp_path: pathlib.Path) -> None:
    names = [_name(file) for file in FILES]
    workers = os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        complaints = "".join(
            pool.map(lambda part: _import_each(part, tmp_path), [names[i::workers] for i in range(workers)])
        )
    if complaints:
        pytest.fail(complaints, pytrace=False)


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_every_module_says_what_it_is_for(file: pathlib.Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text()))


def test_every_room_of_level_3_has_joined_its_contract() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(contract for contract in settings["contracts"] if contract["id"] == "level-3")
    existing = {f"apiserver.{room}" for room in LEVEL_3 if (PACKAGE / room / "__init__.py").exists()}
    assert set(contract["modules"]) == existing
