"""Audit events of Sluice equal those that a real kube-apiserver records."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tests.e2e import audited
from tests.e2e.controlplane.plane import ControlPlane
from tests.fixtures.server import dev_server

Events = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("audit") / "policy.yaml"
    file.write_text(audited.POLICY)
    return file


@pytest.fixture(scope="module")
def ours(policy: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Events:
    folder = tmp_path_factory.mktemp("ours")
    log = folder / "audit.log"
    flags = (f"--group={audited.GROUP}", f"--audit-policy-file={policy}", f"--audit-log-path={log}")
    with dev_server(folder, *flags) as server:
        audited.play(server.kubeconfig)
    return audited.recorded(log)


@pytest.fixture(scope="module")
def theirs(our_own: None, policy: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Events:
    folder = tmp_path_factory.mktemp("theirs")
    log = folder / "audit.log"
    with ControlPlane(folder / "plane", flags=[f"--audit-policy-file={policy}", f"--audit-log-path={log}"]) as plane:
        audited.play(plane.admin)
    return audited.recorded(log)


@pytest.mark.parametrize("step", audited.STEPS)
def test_a_request_is_recorded_as_kube_apiserver_records_it(ours: Events, theirs: Events, step: str) -> None:
    found, expected = (list(map(audited.comparable, events[step])) for events in (ours, theirs))
    assert found == expected
    assert json.dumps(found) == json.dumps(expected), "members stand in another order"
