"""docs/dependencies.md lists every private attribute of aiohttp and yarl that is used, and each exists."""

from __future__ import annotations

import ast
import importlib
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

PROJECT = pathlib.Path(__file__).resolve().parents[2]
LISTED = re.findall(
    r"^\| `((?:aiohttp|yarl)\.[\w.]+)` \|", (PROJECT / "docs/dependencies.md").read_text(), re.MULTILINE
)
IMPORTS = re.compile(r"^(?:from|import) (?:aiohttp|yarl)\b", re.MULTILINE)
USERS = sorted(path for path in (PROJECT / "apiserver").rglob("*.py") if IMPORTS.search(path.read_text()))
OTHERS = {"_replace", "_lru_cache_wrapper"}
"""Attributes of named tuples and of `functools`, which belong to Python."""


def _found(name: str) -> Any:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if part.startswith("_") and isinstance(found, type) and part not in dir(found):
                found = _assigned(found, part)
            else:
                found = getattr(found, part)
        return found
    raise LookupError(name)


def _assigned(owner: type, name: str) -> str:
    """An attribute that methods of a class without slots assign."""
    for base in owner.__mro__:
        if base.__module__.startswith("aiohttp"):
            source = pathlib.Path(sys.modules[base.__module__].__file__ or "").read_text()
            if f"self.{name} " in source:
                return name
    raise AttributeError(name)


@pytest.mark.parametrize("name", LISTED)
def test_listed_private_attribute_exists(name: str) -> None:
    assert _found(name) is not None


def _private(node: ast.AST) -> str:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "name", "")
    return name if name.startswith("_") and not name.startswith("__") else ""


def _uses(tree: ast.AST) -> Iterator[str]:
    """Private attributes that a module reads and does not define, and private methods of aiohttp that it overrides."""
    defined = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    defined |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    defined |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := _private(node)) and name not in defined:
            yield name
        if isinstance(node, ast.ClassDef):
            bases = [getattr(web, b.attr, None) for b in node.bases if isinstance(b, ast.Attribute)]
            for part in node.body:
                named = getattr(part, "name", "") or (
                    ast.unparse(part.targets[0]) if isinstance(part, ast.Assign) else ""
                )
                if named.startswith("_") and not named.startswith("__") and any(hasattr(b, named) for b in bases):
                    yield named


@pytest.mark.parametrize("user", USERS, ids=lambda path: path.stem)
def test_used_private_attribute_is_listed(user: pathlib.Path) -> None:
    used = set(_uses(ast.parse(user.read_text())))
    assert used - OTHERS <= {name.rpartition(".")[2] for name in LISTED}


def test_no_cache_of_yarl_keeps_request_targets() -> None:
    program = (
        "import functools, yarl\n"
        "from apiserver.serving import connections\n"
        "def caches():\n"
        "    found = [f for f in vars(yarl._url).values() if isinstance(f, functools._lru_cache_wrapper)]\n"
        "    return [f for f in found if f.cache_parameters()['maxsize']]\n"
        "before = len(caches())\n"
        "connections.remember_no_targets()\n"
        "url = yarl.URL('http://example.com/a?b=c')\n"
        "print(before > 0, [f.__name__ for f in caches()], str(url))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "True [] http://example.com/a?b=c\n"
