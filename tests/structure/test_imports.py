"""Every module of the package stands on its own, says what it is for, and is bound by the import contracts."""

from __future__ import annotations

import ast
import json
import pathlib
import subprocess
import sys
import tomllib

import grimp
import pytest

from tests.fixtures.cases import each_case

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = PROJECT / "apiserver"
PACKAGES = ("apiserver", "kubecel", "kubetext", "sluice", "structuredmerge")
FILES = sorted(file for package in PACKAGES for file in (PROJECT / package).rglob("*.py"))
LEVEL_5 = ("wire", "patching", "fieldmanager", "storage", "cluster", "resources", "apiextensions")

# Forks one child per module, so that each meets ours as fresh as a new interpreter does. The parent imports nothing of ours, and what ours
# needs of third parties once, after a first child has told what that is. Ours is compiled anew, once, which is when syntax is warned of.
# A child that has imported a module forks those that import it and most else: all that they find is what they would import first.
IMPORT_EACH = """
import contextlib, gc, importlib, json, os, sys, traceback
gc.disable()
bytecode, *ours = sys.argv[1:]

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
        file.write(" ".join(name for name in sys.modules if name.partition(".")[0] not in ours))

def below(name):
    for each in tree.get(name, ()):
        fork(lambda: alone(each))

def alone(name):
    try:
        importlib.import_module(name)
    except BaseException:
        sys.stderr.write(name + " does not import alone\\n")
        raise
    with open(os.path.join(bytecode, "imported"), "a") as file:
        file.write(name + "\\n")
    below(name)

if not fork(tell):
    sys.exit("the program does not import")
with open(os.path.join(bytecode, "needed")) as file:
    for name in file.read().split():
        with contextlib.suppress(ImportError):  # part of another, without a file
            importlib.import_module(name)
sys.pycache_prefix, sys.dont_write_bytecode = bytecode, False
with open(os.path.join(bytecode, "tree")) as file:
    tree = json.load(file)
below("")
"""


def _name(file: pathlib.Path) -> str:
    parts = file.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _tree() -> dict[str, list[str]]:
    """Modules by the one that is imported before them: of all that they import, the one that imports most. "" is before the others."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    needs: dict[str, set[str]] = {}

    def found(module: str) -> set[str]:
        """All that importing a module imports, packages around modules included."""
        if module not in needs:
            needs[module] = set()
            package = {module.rpartition(".")[0]} - {""}
            for each in package | graph.find_modules_directly_imported_by(module):
                needs[module] |= {each} | found(each)
        return needs[module]

    tree: dict[str, list[str]] = {}
    for name in map(_name, FILES):
        before = [each for each in found(name) if name not in found(each)]
        tree.setdefault(max(before, key=lambda each: (len(found(each)), each), default=""), []).append(name)
    return tree


def test_every_module_imports_alone_and_without_warnings(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tree").write_text(json.dumps(_tree()))
    command = [sys.executable, "-W", "error", "-c", IMPORT_EACH, str(tmp_path), *PACKAGES]
    complaints = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False).stderr
    if complaints:
        pytest.fail(complaints, pytrace=False)
    assert sorted((tmp_path / "imported").read_text().split()) == sorted(map(_name, FILES))


@each_case("file", FILES, ids=_name)
def test_every_module_says_what_it_is_for(file: pathlib.Path) -> None:
    assert ast.get_docstring(ast.parse(file.read_text()))


def test_every_package_of_level_5_has_joined_its_contract() -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(contract for contract in settings["contracts"] if contract["id"] == "level-5")
    existing = {f"apiserver.{package}" for package in LEVEL_5 if (PACKAGE / package / "__init__.py").exists()}
    assert set(contract["modules"]) == existing
