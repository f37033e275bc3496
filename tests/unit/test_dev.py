"""Files that `sluice dev` writes: a kubeconfig and samples, and nothing in the wrong place."""

from __future__ import annotations

import base64
import shlex
from pathlib import Path

import pytest

from apiserver import dev, resources
from apiserver.config import config
from apiserver.kinds.served import Kinds
from apiserver.serving import pki
from tests.fixtures.authorities import NOW


def test_the_kubeconfig_is_complete_in_itself(tmp_path: Path) -> None:
    kit = pki.kit(tmp_path, hosts=["localhost"], user="me", groups=["system:masters"], now=NOW)
    document = dev.kubeconfig("https://127.0.0.1:1", kit)
    [cluster], [user], [context] = document["clusters"], document["users"], document["contexts"]
    assert cluster["cluster"]["server"] == "https://127.0.0.1:1"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == kit.ca_pem
    assert base64.b64decode(user["user"]["client-certificate-data"]) == kit.client.cert_pem
    assert base64.b64decode(user["user"]["client-key-data"]) == kit.client.key_pem
    assert document["current-context"] == context["name"]
    assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}


def test_the_samples_are_of_served_kinds_in_the_served_group() -> None:
    found = list(dev.samples("other.example.com"))
    assert {sample["kind"] for sample in found} >= {"DeviceClass", "ResourceClaim", "ResourceSlice"}
    kinds = Kinds(resources.RESOURCES, group="other.example.com")
    assert all(kinds.named("other.example.com", "v1", sample["kind"]) is not None for sample in found)
    assert {sample["apiVersion"] for sample in found} == {"other.example.com/v1"}
    assert "GROUP" not in str(found)


@pytest.mark.parametrize(
    ("plural", "namespace", "path"),
    [
        ("resourceslices", "", "/apis/g.example.com/v1/resourceslices"),
        ("resourceclaims", "n", "/apis/g.example.com/v1/namespaces/n/resourceclaims"),
    ],
)
def test_a_collection_has_its_path(plural: str, namespace: str, path: str) -> None:
    kind = Kinds(resources.RESOURCES, group="g.example.com").at("g.example.com", "v1", plural)
    assert kind is not None
    assert dev.collection(kind, namespace) == path


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "127.0.0.1"),
        ("::1", "[::1]"),
        ("10.1.2.3", "10.1.2.3"),
    ],
)
def test_clients_are_sent_to_an_address_that_the_certificate_names(address: str, host: str) -> None:
    c = config.parse(["dev", "--bind-address", address], {})
    assert dev._host(c) == host
    assert host.strip("[]") in dev._hosts(c)


@pytest.mark.parametrize(("group", "hinted"), [("resource.sluice.dev", True), ("resource.k8s.io", False)])
def test_the_banner_says_how_manifests_of_drivers_apply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], group: str, *, hinted: bool
) -> None:
    folder = tmp_path / "a b'c"
    dev._announce(config.parse(["dev", "--data-dir", str(folder), "--group", group], {}))

    first, *others = capsys.readouterr().out.splitlines()

    assert first == f"ready: export KUBECONFIG={shlex.quote(str(folder / 'kubeconfig'))}"
    assert any('`make run ARGS="--group resource.k8s.io"`' in line for line in others) == hinted
