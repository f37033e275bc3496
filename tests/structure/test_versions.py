"""`scripts/versions.py` lists what differs between releases, and demands a test of each difference."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from types import ModuleType

import pytest

from apiserver.apimachinery.releases import V1_36, V1_37, since, until
from apiserver.schema.featuregate import Gate, Spec, Stage, versioned
from apiserver.schema.resource import Resource
from apiserver.schema.types import Boolean, Field, Struct

SHAPE = Struct(
    name="Boat",
    fields=(
        Field(name="still", number=1, type=Boolean()),
        since(V1_37, Field(name="young", number=2, type=Boolean())),
        until(V1_37, Field(name="old", number=3, type=Boolean())),
        Field(name="changed", number=4, type=Boolean(), required=since(V1_37, value=True, before=False)),
    ),
)
PROJECT = pathlib.Path(__file__).resolve().parents[2]
BOAT = Resource(kind="Boat", plural="boats", singular="boat", namespaced=True, shape=SHAPE)


@pytest.fixture(scope="module")
def versions() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scripts.versions", PROJECT / "scripts" / "versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_member_is_listed_with_the_release_of_its_change(versions: ModuleType) -> None:
    assert list(versions.kinds([BOAT])) == [
        ("Boat.young", "since 1.37", "Boat.young:"),
        ("Boat.old", "until 1.37", "Boat.old:"),
        ("Boat.changed", "required: `False` until 1.37, then `True`", "Boat.changed:required"),
    ]


def test_a_gate_is_listed_with_its_state_in_each_release(versions: ModuleType) -> None:
    ages = versioned(
        "Sails", Spec(V1_36, default=False, stage=Stage.ALPHA), Spec(V1_37, default=True, stage=Stage.GA, locked=True)
    )
    young = versioned("Oars", Spec(V1_37, default=False, stage=Stage.ALPHA))
    same = Gate("Keel", default=True, stage=Stage.BETA)

    assert list(versions.gates([ages, young, same])) == [
        ("Oars", "1.36: unknown; 1.37: ALPHA, off", "gate Oars"),
        ("Sails", "1.36: ALPHA, off; 1.37: GA, on, locked", "gate Sails"),
    ]


def test_a_difference_without_a_test_is_named(versions: ModuleType, tmp_path: pathlib.Path) -> None:
    _, untested = versions.rendered(versions.Tests(tmp_path, ["tests"]))
    assert {row.key for row in untested} >= {
        "discovery.groups.PATCH_LEVEL",
        "gate AllowUnsafeMalformedObjectDeletion",
    }


@pytest.mark.parametrize(
    ("source", "counts"),
    [
        ("V1_36\ndef test_the_version_document_has_gos_members_in_order(): ...", True),
        ("def test_the_version_document_has_gos_members_in_order(): ...", False),
        ("V1_36\ndef test_another_promise(): ...", False),
    ],
    ids=["exists and tells releases apart", "tells no releases apart", "is gone"],
)
def test_a_test_of_a_difference_exists_and_tells_releases_apart(
    versions: ModuleType, tmp_path: pathlib.Path, source: str, counts: bool
) -> None:
    path = tmp_path / "tests/unit/discovery/test_groups.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)

    page, untested = versions.rendered(versions.Tests(tmp_path, ["tests"]))

    assert ("discovery.groups.PATCH_LEVEL" not in {row.key for row in untested}) is counts
    assert (f"`tests/unit/discovery/test_groups.py::{source.rpartition('def ')[2][:-7]}`" in page) is counts


def test_a_test_that_is_named_for_no_difference_fails_the_check(versions: ModuleType, tmp_path: pathlib.Path) -> None:
    tests = versions.Tests(tmp_path, ["tests"])
    versions.rendered(tests)
    assert not tests.unused
    assert versions.Tests(tmp_path, ["tests"]).unused


def test_the_page_is_what_the_declarations_say(versions: ModuleType) -> None:
    assert versions.main(["--check"]) == 0, "python scripts/versions.py"
