"""Every module of the package stands on its own, says what it is for, and is bound by the import contracts."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
import tomllib

import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "apiserver"
PACKAGES = ("apiserver", "kubecel", "kubetext", "sluice", "structuredmerge")
FILES = sorted(file for package in PACKAGES for file in (PROJECT / package).rglob("*.py"))
LEVEL_5 = ("wire", "patching", "fieldmanager", "storage", "cluster", "resources")

# Forks one child per module, so that each meets ours as fresh as a new interpreter does. The parent imports nothing of ours, and what ours
# needs of third parties once, after a first child has told what that is. Ours is compiled anew, once, which is when syntax is warned of.
IMPORT_EACH = """
import contextlib, gc, importlib, os, sys, traceback
gc.disable()
bytecode, ours, *names = sys.argv[1:]

def fork(task):
    child = os.fork()
    if child == 0:
        try:
            task()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

def tell():
    importlib.import_module("apiserver.__main__")
    with open(os.path.join(bytecode, "needed"), "w") as file:
        file.write(" ".join(name for name in sys.modules if name.partition(".")[0] not in ours.split()))

if not fork(tell):
    sys.exit("the program does not import")
with open(os.path.join(bytecode, "needed")) as file:
    for name in file.read().split():
        with contextlib.suppress(ImportError):  # part of another, without a file
            importlib.import_module(name)
sys.pycache_prefix, sys.dont_write_bytecode = bytecode, False
for name in names:
    if not fork(lambda: importlib.import_module(name)):
        sys.stderr.write(name + " does not import alone\\n")
"""


def _name(file: pathlib.Path) -> str:
    parts = file.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_module_imports_alone_and_without_warnings(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-W", "error", "-c", IMPORT_EACH, str(tmp_path), " ".join(PACKAGES), *map(_name, FILES)]
    complaints = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False).stderr
    if complaints:
        pytest.fail(complaints, pytrace=False)


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_every_module_says_what_it_is_for(file: pathlib.Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text()))


def test_every_package_of_level_5_has_joined_its_contract() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(contract for contract in settings["contracts"] if contract["id"] == "level-5")
    existing = {f"apiserver.{package}" for package in LEVEL_5 if (PACKAGE / package / "__init__.py").exists()}
    assert set(contract["modules"]) == existing
