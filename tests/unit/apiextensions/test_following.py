"""Files of definitions, followed: what counts when they change, and what stays when they cannot be served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from apiserver.apiextensions import following
from apiserver.apiextensions.definition import Definition
from apiserver.apiextensions.following import Definitions
from apiserver.kinds.served import InvalidKinds, Kinds
from apiserver.schema.resource import Resource
from tests.fixtures.definitions import GROUP, definition, write
from tests.fixtures.mounts import Mount
from tests.fixtures.valkey import eventually
from tests.fixtures.varying_kind import LAMP

WIDGETS, GADGETS, GIZMOS = f"{GROUP}/widgets", f"{GROUP}/gadgets", f"{GROUP}/gizmos"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "POLL_SECONDS", 0.02)


def kind_of(found: Definition) -> Sequence[Resource]:
    kind = Resource(
        group=found.group,
        kind=found.kind,
        plural=found.plural,
        singular=found.singular,
        namespaced=found.namespaced,
        shape=LAMP.shape,
    )
    return (kind,)


def clashes(kinds: Sequence[Resource]) -> Sequence[str]:
    try:
        Kinds(kinds)
    except InvalidKinds as e:
        return e.errors
    return ()


def reading(*paths: Path) -> Definitions:
    return Definitions(paths, make=kind_of, judge=clashes)


def names(definitions: Definitions) -> list[str]:
    return sorted(kind.storage_name for kind in definitions.kinds)


@asynccontextmanager
async def followed(*paths: Path) -> AsyncIterator[Definitions]:
    definitions = reading(*paths)
    assert definitions.load() == []
    task = asyncio.create_task(definitions.run())
    try:
        yield definitions
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def other_than(definitions: Definitions, kinds: Sequence[Resource]) -> Sequence[Resource]:
    async with asyncio.timeout(60):
        return await definitions.other_than(kinds)


async def test_added_changed_and_removed_file_each_take_effect(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", definition("widgets"))
    async with followed(tmp_path) as definitions:
        first = definitions.kinds
        write(tmp_path / "b.json", definition("gadgets"))
        second = await other_than(definitions, first)
        assert names(definitions) == [GADGETS, WIDGETS]
        assert first[0] in second, "the kind of an unchanged definition is the same"
        write(tmp_path / "b.json", definition("gadgets", weight="integer"))
        third = await other_than(definitions, second)
        assert following.differing(second, third) == {GADGETS}
        (tmp_path / "a.yaml").unlink()
        await other_than(definitions, third)
        assert names(definitions) == [GADGETS]


async def test_definition_that_moves_to_another_file_keeps_its_kind(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", definition("widgets"), definition("gadgets"))
    async with followed(tmp_path) as definitions:
        before = {kind.storage_name: kind for kind in definitions.kinds}
        write(tmp_path / "b.yaml", definition("gadgets"))
        write(tmp_path / "a.yaml", definition("widgets"), definition("gizmos"))
        await eventually(lambda: len(definitions.kinds) == 3)
        after = {kind.storage_name: kind for kind in definitions.kinds}
        assert (after[WIDGETS], after[GADGETS]) == (before[WIDGETS], before[GADGETS])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "a.yaml: yaml: line 1: did not find expected node content"),
        ('{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition"}', "no matches for kind"),
    ],
)
async def test_unfit_file_keeps_its_former_kinds_while_others_take_effect(tmp_path: Path, text: str, why: str) -> None:
    write(tmp_path / "a.yaml", definition("widgets"))
    async with followed(tmp_path) as definitions:
        first = definitions.kinds
        (tmp_path / "a.yaml").write_text(text)
        write(tmp_path / "b.yaml", definition("gadgets"))
        await other_than(definitions, first)
        await eventually(lambda: definitions.refused == 1)
        assert names(definitions) == [GADGETS, WIDGETS]
        assert why in str(definitions.problem())
        write(tmp_path / "a.yaml", definition("widgets"))
        await eventually(lambda: definitions.problem() is None)
        assert definitions.refused == 0


async def test_scope_and_kind_of_a_followed_definition_are_immutable(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", definition("widgets"))
    async with followed(tmp_path) as definitions:
        changed = definition("widgets", scope="Cluster")
        changed["spec"]["names"]["kind"] = "Thing"
        write(tmp_path / "a.yaml", changed)
        await eventually(lambda: definitions.refused == 1)
        assert definitions.errors == [
            f'{tmp_path}/a.yaml: widgets.{GROUP}: spec.scope: Invalid value: "Cluster": field is immutable',
            f'{tmp_path}/a.yaml: widgets.{GROUP}: spec.names.kind: Invalid value: "Thing": field is immutable',
        ]
        assert names(definitions) == [WIDGETS]


async def test_only_the_file_that_clashes_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", definition("widgets"))
    async with followed(tmp_path) as definitions:
        write(tmp_path / "b.yaml", definition("widgets"))
        write(tmp_path / "c.yaml", definition("gadgets"))
        await eventually(lambda: definitions.refused == 1 and len(definitions.kinds) == 2)
        assert names(definitions) == [GADGETS, WIDGETS]
        assert str(definitions.problem()).startswith(f"{tmp_path}/b.yaml: two kinds of the group {GROUP}")
        (tmp_path / "b.yaml").unlink()
        await eventually(lambda: definitions.problem() is None)


async def test_file_is_read_only_when_it_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is not finished changes the file at every look."""
    write(tmp_path / "a.yaml", definition("widgets"))
    async with followed(tmp_path) as definitions:
        states = iter(range(1, 1_000_000))
        unsteady = True

        def state(path: Path) -> tuple[int, int, int]:
            return (next(states) if unsteady else 0, 0, 1)

        monkeypatch.setattr(following, "state", state)
        write(tmp_path / "b.yaml", definition("gadgets"))
        start = next(states)
        await eventually(lambda: next(states) - start > 30)
        assert names(definitions) == [WIDGETS]
        unsteady = False
        await eventually(lambda: len(definitions.kinds) == 2)


async def test_files_of_a_mounted_configmap_change_together(tmp_path: Path) -> None:
    mount = Mount(tmp_path)

    def hold(**files: dict[str, Any]) -> None:
        mount.write({f"{name}.yaml": json.dumps(content) for name, content in files.items()})

    hold(a=definition("widgets"), b=definition("gizmos"))
    async with followed(tmp_path) as definitions:
        assert names(definitions) == sorted([WIDGETS, GIZMOS]), "each is read once, or they would clash"
        first = definitions.kinds
        hold(b=definition("gizmos"), c=definition("gadgets"))
        second = await other_than(definitions, first)
        assert names(definitions) == sorted([GADGETS, GIZMOS])
        assert following.differing(first, second) == {WIDGETS, GADGETS}
        hold(b=definition("gizmos", weight="integer"), c=definition("gadgets"))
        third = await other_than(definitions, second)
        assert following.differing(second, third) == {GIZMOS}
        assert definitions.problem() is None


async def test_missing_folder_keeps_its_kinds_and_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "crds"
    folder.mkdir()
    write(folder / "a.yaml", definition("widgets"))
    async with followed(folder) as definitions:
        folder.rename(tmp_path / "elsewhere")
        await eventually(lambda: definitions.refused == 1)
        assert definitions.problem() == f"{folder}: there is no such file or folder"
        assert names(definitions) == [WIDGETS]
        (tmp_path / "elsewhere").rename(folder)
        await eventually(lambda: definitions.problem() is None)
        (folder / "a.yaml").unlink()
        await eventually(lambda: not definitions.kinds)


def test_first_reading_returns_every_error_of_every_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    (tmp_path / "b.yaml").write_text("[]")
    write(tmp_path / "c.yaml", definition("widgets"))
    write(tmp_path / "d.yaml", definition("widgets"))
    errors = reading(tmp_path).load()
    assert [Path(error.partition(":")[0]).name for error in errors] == [
        "a.yaml",
        "b.yaml",
        "d.yaml",
        "d.yaml",
        "d.yaml",
        "d.yaml",
    ]
