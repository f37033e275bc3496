"""Messages of a real kube-apiserver about wrong and odd policy files, recorded in `kube_apiserver_policies.yaml`."""

from __future__ import annotations

import logging
import pathlib
from typing import Any

import pytest
import yaml

from apiserver.audit import policy

HEAD = b"apiVersion: audit.k8s.io/v1\nkind: Policy\n"
LENIENT = "Audit policy contains errors, falling back to lenient decoding: "
RECORDED = yaml.safe_load((pathlib.Path(__file__).parent / "kube_apiserver_policies.yaml").read_text())


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["name"])
def test_a_file_is_judged_in_kube_apiservers_words(
    recorded: dict[str, Any], tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    text, warning, refusal = recorded["file"], recorded.get("warning"), recorded.get("refusal")
    file = tmp_path / "policy.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    said = ""
    with caplog.at_level(logging.WARNING):
        try:
            policy.load(str(file))
        except policy.InvalidPolicy as error:
            said = str(error)
    assert said == (f"{refusal}: from file {file}" if refusal else "")
    assert caplog.messages == ([f"{LENIENT}{warning}"] if warning else [])


def test_a_folder_is_no_file(tmp_path: pathlib.Path) -> None:
    with pytest.raises(policy.InvalidPolicy) as caught:
        policy.load(str(tmp_path))
    assert str(caught.value) == f'failed to read file path "{tmp_path}": read {tmp_path}: is a directory'


def test_document_with_a_foreign_group_and_no_version_is_reported(tmp_path: pathlib.Path) -> None:
    with pytest.raises(policy.InvalidPolicy) as caught:
        policy.read(b"apiVersion: foo/\nkind: Policy\n")
    assert str(caught.value) == "failed decoding: Object 'apiVersion' is missing in 'apiVersion: foo/\nkind: Policy\n'"


def test_text_about_many_errors_stays_short() -> None:
    rules = b"- {level: Foo, nonResourceURLs: [bar, baz]}\n" * 9_000
    with pytest.raises(policy.InvalidPolicy) as caught:
        policy.read(HEAD + b"rules:\n" + rules)
    assert len(str(caught.value)) < 1 << 20
