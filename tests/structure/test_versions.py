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
        ("Boat.young", "since 1.37", "young"),
        ("Boat.old", "until 1.37", "old"),
        ("Boat.changed", "required: `False` until 1.37, then `True`", "changed"),
    ]


def test_a_gate_is_listed_with_its_state_in_each_release(versions: ModuleType) -> None:
    ages = versioned(
        "Sails", Spec(V1_36, default=False, stage=Stage.ALPHA), Spec(V1_37, default=True, stage=Stage.GA, locked=True)
    )
    young = versioned("Oars", Spec(V1_37, default=False, stage=Stage.ALPHA))
    same = Gate("Keel", default=True, stage=Stage.BETA)

    assert list(versions.gates([ages, young, same])) == [
        ("Oars", "1.36: unknown; 1.37: ALPHA, off", "Oars"),
        ("Sails", "1.36: ALPHA, off; 1.37: GA, on, locked", "Sails"),
    ]


def test_a_difference_without_a_test_is_named(versions: ModuleType) -> None:
    _, untested = versions.rendered({})
    assert {row.word for row in untested} >= {"PATCH_LEVEL", "AllowUnsafeMalformedObjectDeletion"}


def test_a_test_of_a_difference_names_it_as_a_word_and_tells_releases_apart(versions: ModuleType) -> None:
    texts = {"a": "PATCH_LEVELS V1_36", "b": "PATCH_LEVEL", "c": "PATCH_LEVEL V1_36"}
    page, untested = versions.rendered({pathlib.Path(f"t/test_{name}.py"): text for name, text in texts.items()})
    assert "PATCH_LEVEL" not in {row.word for row in untested}
    assert "`t/test_c.py`" in page
    assert "`t/test_b.py`" not in page


def test_the_page_is_what_the_declarations_say(versions: ModuleType) -> None:
    assert versions.main(["--check"]) == 0, "python scripts/versions.py"
