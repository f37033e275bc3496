"""The version, commit and build time that a release and a checkout report."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from types import ModuleType

from apiserver import buildinfo

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def loaded(folder: pathlib.Path) -> ModuleType:
    """The module in another folder, loaded from its file as the build backend does."""
    file = folder / "buildinfo.py"
    file.write_bytes(pathlib.Path(buildinfo.__file__).read_bytes())
    spec = importlib.util.spec_from_file_location("buildinfo_copy", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_release_reports_the_facts_of_its_file(tmp_path: pathlib.Path) -> None:
    facts = {"version": "0.2.0", "commit": COMMIT, "built": 1795792742}
    (tmp_path / buildinfo.FILE).write_text(json.dumps(facts))
    module = loaded(tmp_path)
    assert (module.version(), module.commit(), module.built()) == ("0.2.0", COMMIT, 1795792742)
    assert (module.build_date(), module.tree_state()) == ("2026-11-27T15:19:02Z", "clean")


def test_checkout_reports_a_development_version(tmp_path: pathlib.Path) -> None:
    module = loaded(tmp_path)
    assert ".dev" in module.version()
    assert (module.commit(), module.tree_state()) == ("unknown", "unknown")
    assert (module.built(), module.build_date()) == (0, "1970-01-01T00:00:00Z")
