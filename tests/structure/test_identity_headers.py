"""Headers that say who somebody is are read in one place each (traps T2 and T3): aiohttp's headers cannot be changed, so they cannot be
taken out of a request as upstream does, and nothing else may look."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import apiserver
from tests.fixtures.cases import each_case

ROOT = pathlib.Path(apiserver.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

READERS: dict[str, set[str]] = {
    "x-remote-": {"config/config.py", "filters/authenticate.py"},
    # In `acting` it is a verb.
    "impersonate-": {"filters/impersonate.py", "filters/acting.py", "admission/webhooks/credentials.py"},
    # Recorded there, and believed by nobody.
    "x-forwarded-": {"filters/audit.py", "tracing/requests.py"},
}
"""Beginnings of header names, and who may name them."""
NAMES: dict[str, set[str]] = {
    # OpenAPI says where a token goes, a metric has a label of that name, to kube-apiserver and webhooks we show tokens of our own, and a
    # group of flags and a span have that name.
    "authorization": {
        "filters/authenticate.py",
        "discovery/openapi_docs.py",
        "filters/authorize.py",
        "cluster/client.py",
        "admission/webhooks/credentials.py",
        "config/topics.py",
        "filters/tracing.py",
    },
    "cookie": set(),
    "x-real-ip": {"filters/audit.py"},
}


def room(file: pathlib.Path) -> str:
    return file.relative_to(ROOT).as_posix()


def named_headers(tree: ast.AST) -> Iterator[str]:
    """Every text in the code that is no docstring."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value.lower()


@each_case("file", FILES, ids=room)
def test_identity_headers_are_named_only_where_trusted_or_refused(file: pathlib.Path) -> None:
    tree = ast.parse(file.read_text())
    texts = set(named_headers(tree))
    for prefix, readers in READERS.items():
        found = sorted(text for text in texts if text.startswith(prefix))
        assert not found or room(file) in readers, found
    for name, readers in NAMES.items():
        assert name not in texts or room(file) in readers, name


def walks(tree: ast.AST) -> Iterator[int]:
    """Lines that go through all headers of something, instead of asking for one by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "raw_headers":
            yield node.lineno
        elif isinstance(node, ast.Attribute) and node.attr in ("items", "keys", "values"):
            if ast.unparse(node.value).endswith("request.headers"):
                yield node.lineno
        elif isinstance(node, ast.For | ast.comprehension) and ast.unparse(node.iter).endswith("request.headers"):
            yield node.iter.lineno


@each_case("file", FILES, ids=room)
def test_no_other_package_iterates_over_a_requests_headers(file: pathlib.Path) -> None:
    text = file.read_text()
    lines = list(walks(ast.parse(text))) if "headers" in text else []
    # `fairness` adds up their lengths.
    assert not lines or room(file) in {"filters/authenticate.py", "filters/impersonate.py", "filters/fairness.py"}, (
        lines
    )
