"""Upstream is asked again about a promise that is no longer what it was asked about."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from tests.promises.oracle import KUBERNETES, ROOT, Oracle

FILES = {
    KUBERNETES: "module x",
    "tests/promises/api/test_a.py": "from tests.promises.api import client\n",
    "tests/promises/api/test_b.py": "import tests.fuzz.samples\n",
    "tests/promises/api/client.py": "from tests.promises.api.target import Target\nfrom tests.fixtures import server\n",
    "tests/promises/api/target.py": "",
    "tests/promises/api/conftest.py": "",
    "tests/promises/api/differences.yaml": "[]",
    "tests/fuzz/samples.py": "",
    "tests/fixtures/server.py": "",
}
A, B = "tests/promises/api/test_a.py", "tests/promises/api/test_b.py"


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    Oracle(tmp_path).note([tmp_path / A, tmp_path / B])
    return tmp_path


@pytest.fixture
def known(root: pathlib.Path) -> Callable[[], set[str]]:
    def now() -> set[str]:
        oracle = Oracle(root)
        return {name for name in (A, B) if (root / name).exists() and oracle.knows(root / name)}

    assert now() == {A, B}
    return now


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        (A, {B}),
        (B, {A}),
        ("tests/promises/api/client.py", {B}),
        ("tests/promises/api/target.py", {B}),
        ("tests/fuzz/samples.py", {A}),
        ("tests/promises/api/conftest.py", set()),
        ("tests/promises/api/differences.yaml", set()),
        (KUBERNETES, set()),
        ("tests/fixtures/server.py", {A, B}),
    ],
)
def test_changed_promise_file_is_not_known(
    root: pathlib.Path, known: Callable[[], set[str]], changed: str, left: set[str]
) -> None:
    (root / changed).write_text(FILES[changed] + "# changed\n")

    assert known() == left


def test_record_keeps_other_files_and_drops_deleted_ones(root: pathlib.Path, known: Callable[[], set[str]]) -> None:
    (root / A).write_text("# changed")
    (root / B).rename(root / "tests/promises/api/test_c.py")
    Oracle(root).note([root / A])

    assert known() == {A}
    assert B not in Oracle(root).file.read_text()


def test_file_that_upstream_was_never_asked_about_is_not_known() -> None:
    assert not Oracle().knows(ROOT / "tests/promises/test_oracle.py")
