"""The auditor of a configuration, and its policy when settings change."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from apiserver.apimachinery.request import RequestInfo
from apiserver.audit import opening
from apiserver.audit.record import Auditor
from apiserver.config import config
from apiserver.config.config import Audit, ConfigError

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: {}\n"


def audit(folder: Path, level: str) -> Audit:
    file = folder / f"{level}.yaml"
    file.write_text(POLICY.format(level))
    words = ["dev", f"--audit-policy-file={file}", f"--audit-log-path={folder / 'log'}"]
    return config.parse(words, {}).audit


def records(auditor: Auditor) -> bool:
    """Whether a request is recorded."""
    info = RequestInfo(method="GET", path="/x", verb="get")

    def origin() -> None:
        raise AssertionError

    try:
        return auditor.record(info, None, origin, {}) is not None  # type: ignore[arg-type]
    except AssertionError:
        return True


def test_changed_policy_applies_when_the_change_is_made(tmp_path: Path) -> None:
    nothing, all_ = audit(tmp_path, "None"), audit(tmp_path, "Metadata")
    auditor = opening.open_auditor(nothing, {})
    assert auditor is not None
    change = opening.changed(auditor, nothing, all_)
    assert not records(auditor)
    change()
    assert records(auditor)


def test_invalid_policy_is_refused(tmp_path: Path) -> None:
    old = audit(tmp_path, "None")
    auditor = opening.open_auditor(old, {})
    for file in ("", str(tmp_path / "gone"), str(tmp_path)):
        with pytest.raises(ConfigError, match="--audit-policy-file: loading audit policy file"):
            opening.changed(auditor, old, dataclasses.replace(old, policy_file=file))
