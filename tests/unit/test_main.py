"""Exit codes, and errors that are reported at once."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import socket
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from apiserver import __main__ as program
from apiserver.serving import listener
from tests.fixtures.authorities import issue

pytestmark = pytest.mark.usefixtures("configured_process")


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(capsys)


class Told:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, environ: Mapping[str, str] | None = None) -> list[str]:
        """The errors of a command, without the texts around each, and without the remedies after the last."""
        assert program.run([*map(str, words)], environ or {}) == 2
        *lines, last = self._capsys.readouterr().err.splitlines()
        assert re.fullmatch("sluice: see `sluice .*--help`", last)
        return [line.removeprefix("sluice: ") for line in lines if not line.startswith("sluice: use ")]


def test_misconfiguration_exits_with_two_and_names_every_error(told: Told) -> None:
    lines = told("dev", "--secure-port", "x", "--nonsense")
    assert [line.partition(":")[0] for line in lines] == ["unknown argument --nonsense", "--secure-port"]


def test_inconsistent_feature_gates_are_reported_before_the_start(tmp_path: pathlib.Path, told: Told) -> None:
    words = ["dev", "--data-dir", str(tmp_path / "data"), "--feature-gates=WatchList=true,DRAAdminAccess=false"]
    assert told(*words) == [
        "--feature-gates: unrecognized feature gate: WatchList",
        "--feature-gates: cannot set feature gate DRAAdminAccess to false, feature is locked to true",
    ]
    assert not (tmp_path / "data").exists()


def test_errors_of_flags_kinds_versions_gates_and_files_come_at_once(tmp_path: pathlib.Path, told: Told) -> None:
    rules, control, taken = tmp_path / "rules.yaml", tmp_path / "control.yaml", tmp_path / "taken"
    rules.write_text("a: [")
    control.write_text("kind: No")
    taken.touch()
    lines = told(
        "dev",
        "--bind-address=foo",
        "--feature-gates=Foo=true,DRAResourceClaimDeviceStatus",
        "--runtime-config=bar/v1=true",
        "--admission",
        rules,
        "--admission",
        tmp_path / "gone",
        "--admission-control-config-file",
        control,
        "--data-dir",
        taken,
        "--kubeconfig",
        tmp_path,
        environ={"LISTEN_FDS": "x"},
    )
    assert lines == [
        f"--admission: there is no file or folder {tmp_path / 'gone'}",
        "--bind-address: 'foo' is not an IP address",
        "--feature-gates: missing bool value for DRAResourceClaimDeviceStatus",
        "--runtime-config: unknown api groups bar/v1",
        "--feature-gates: unrecognized feature gate: Foo",
        "LISTEN_FDS: 'x' is not a whole number",
        lines[6],
        lines[7],
        f"--data-dir: {taken} cannot be used: it is a file: name a folder",
        f"--kubeconfig: {tmp_path} is a folder: name a file",
    ]
    assert lines[6].startswith(f"--admission: {rules}: while parsing a flow node")
    assert lines[7].startswith("--admission-control-config-file: failed to read plugin config: ")


def test_error_that_follows_from_another_is_not_reported(told: Told) -> None:
    """Versions, groups and gates may be those of a package that is missing, and groups are named by the flag that is wrong."""
    later = ["--runtime-config=harbour.example.com/v1=true", "--feature-gates=Ships=true"]
    assert told("dev", "--kinds=no_such_module", *later) == ["--kinds: there is no module no_such_module"]
    assert told("dev", "--kinds=tests.no_such_module", *later) == [
        "--kinds: tests.no_such_module: there is no such module"
    ]
    assert told("dev", "--group=G", "--runtime-config=g.io/v1=true", "--feature-gates=No=true") == [
        "--group: 'G' is not an API group: a lower-case DNS name with at least one dot",
        "--feature-gates: unrecognized feature gate: No",
    ]
    # DRADeviceTaintRules may be unreadable together with the gate that it needs.
    assert told("dev", "--feature-gates=DRADeviceTaints=false,DRADeviceTaintRules=maybe") == [
        '--feature-gates: invalid value of DRADeviceTaintRules=maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax'
    ]


def test_files_of_serve_that_hold_something_else_are_reported_at_once(tmp_path: pathlib.Path, told: Told) -> None:
    other, users = tmp_path / "other", tmp_path / "users"
    other.write_text("{}")
    users.write_bytes(issue("users", ca=True).pem)
    words = [
        "serve",
        "--redis-url=redis://h",
        "--tls-cert-file",
        other,
        "--tls-private-key-file",
        other,
        "--client-ca-file",
        other,
        "--requestheader-client-ca-file",
    ]
    pair_told, *others = told(*words, other, "--authorization-kubeconfig", other)
    assert pair_told.startswith(f"{other} and {other} are no certificate with its key: ")
    assert others == [
        f"--client-ca-file: {other}: no certificates in PEM form",
        f"--requestheader-client-ca-file: {other}: no certificates in PEM form",
        f"{other} cannot be used: current-context is not set",
    ]
    assert len(told(*words, users, "--standalone")) == 2


def test_a_kubeconfig_that_the_store_is_moved_with_is_looked_at_first(tmp_path: pathlib.Path, told: Told) -> None:
    (tmp_path / "k").write_text("{}")
    assert told("store", "export", "--redis-url=redis://h", "--to-kubeconfig", tmp_path / "k", "--group=G") == [
        "--group: 'G' is not an API group: a lower-case DNS name with at least one dot",
        f"{tmp_path / 'k'} cannot be used: current-context is not set",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="a place where nobody can write")
def test_unwritable_places_are_reported_before_the_port_opens(tmp_path: pathlib.Path, told: Told) -> None:
    data = tmp_path / "a" / "data"
    assert told("dev", "--data-dir=/proc/x", "--kubeconfig=/proc/y/z") == [
        "--data-dir: /proc/x cannot be used: No such file or directory: name another folder, or let this user write there",
        "--kubeconfig: /proc/y/z cannot be written: No such file or directory: name another folder, or let this user write there",
    ]
    assert told("dev", "--data-dir", data, "--kubeconfig=/proc/y/z") == [
        "--kubeconfig: /proc/y/z cannot be written: No such file or directory: name another folder, or let this user write there"
    ]
    assert not data.parent.exists()


def test_inherited_descriptor_that_is_no_socket_is_an_error(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "file").open("w") as file, socket.create_server(("127.0.0.1", 0)) as handed:
        monkeypatch.setattr(listener, "HANDED_OVER", file.fileno())
        words = ["dev", "--data-dir", tmp_path / "data", "--secure-port=x"]
        assert told(*words, environ={"LISTEN_FDS": "1"}) == [
            "--secure-port: 'x' is not a whole number",
            f"LISTEN_FDS: descriptor {file.fileno()} is not a socket",
        ]
        monkeypatch.setattr(listener, "HANDED_OVER", handed.fileno())
        assert len(told(*words, environ={"LISTEN_FDS": "1"})) == 1
        assert os.fstat(handed.fileno())


def test_without_its_store_dev_says_in_one_line_what_to_install(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert program.run(["dev", "--data-dir", str(tmp_path / "data"), "--secure-port", "0"], {}) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "sluice: `sluice dev` needs its own store: pip install 'sluice-apiserver[dev]'"
    )


DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "lamps.example.test"},
    "spec": {
        "group": "example.test",
        "scope": "Cluster",
        "names": {"plural": "lamps", "kind": "Lamp", "shortNames": ["lp"]},
        "versions": [
            {
                "name": name,
                "served": name != "v1alpha1",
                "storage": name == "v1",
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {"status": {}},
            }
            for name in ("v1", "v1beta1", "v1alpha1")
        ],
    },
}


def test_kinds_check_prints_what_definitions_serve(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text(json.dumps({**DEFINITION, "zz": 1}))
    assert program.run(["kinds", "check", str(tmp_path)], {}) == 0
    output, errors = capsys.readouterr()
    assert output.splitlines() == [
        "example.test/v1 lamps: Lamp, cluster-scoped, short names lp, subresources status, stored",
        "example.test/v1beta1 lamps: Lamp, cluster-scoped, short names lp, subresources status, stored as v1",
        "example.test/v1alpha1 lamps: not served",
    ]
    assert errors == f'warning: {tmp_path}/a.json: lamps.example.test: unknown field "zz"\n'


def test_kinds_check_takes_versions_that_a_webhook_converts(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://convert.example.test"}}
    spec = {**DEFINITION["spec"], "conversion": {"strategy": "Webhook", "webhook": webhook}}
    (tmp_path / "a.json").write_text(json.dumps({**DEFINITION, "spec": spec}))
    assert program.run(["kinds", "check", str(tmp_path)], {}) == 0
    assert capsys.readouterr().err == ""


def test_kinds_check_prints_every_error_of_definitions_and_exits_with_two(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {**DEFINITION["spec"], "group": "test", "scope": "Global"}
    (tmp_path / "a.json").write_text(json.dumps({**DEFINITION, "spec": spec}))
    (tmp_path / "b.yaml").write_text(json.dumps(DEFINITION))
    assert program.run(["kinds", "check", f"{tmp_path}/a.json", f"{tmp_path}/b.yaml"], {}) == 2
    output, errors = capsys.readouterr()
    assert len(output.splitlines()) == 3
    about = f"sluice: {tmp_path}/a.json: lamps.example.test"
    assert errors.splitlines() == [
        f'{about}: metadata.name: Invalid value: "lamps.example.test": must be spec.names.plural+"."+spec.group',
        f'{about}: spec.group: Invalid value: "test": should be a domain with at least one dot',
        f'{about}: spec.scope: Unsupported value: "Global": supported values: "Cluster", "Namespaced"',
    ]


def test_kinds_check_refuses_definitions_that_share_a_name(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"plural": "lights", "kind": "Light", "shortNames": ["lp"]}
    other = {**DEFINITION, "metadata": {"name": "lights.example.test"}, "spec": {**DEFINITION["spec"], "names": names}}
    (tmp_path / "a.json").write_text(json.dumps(DEFINITION) + json.dumps(other))
    assert program.run(["kinds", "check", f"{tmp_path}/a.json"], {}) == 2
    assert "lp" in capsys.readouterr().err


def test_kinds_check_refuses_files_without_a_definition(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text('{"apiVersion": "v1", "kind": "Secret"}')
    assert program.run(["kinds", "check", f"{tmp_path}/a.json"], {}) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {tmp_path}/a.json: v1 Secret is ignored",
        f"sluice: no CustomResourceDefinition is in {tmp_path}/a.json",
    ]
