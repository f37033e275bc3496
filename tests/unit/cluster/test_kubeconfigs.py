"""Kubeconfigs as kubectl finds and merges them."""

from __future__ import annotations

import os
import pathlib

import pytest
import yaml

from apiserver.cluster import kubeconfigs
from apiserver.cluster.credentials import Elsewhere, Kubeconfig
from apiserver.cluster.errors import ClusterError


def written(file: pathlib.Path, name: str, *, current: str = "", ca: str = "ca.crt") -> pathlib.Path:
    file.parent.mkdir(exist_ok=True)
    document = {
        "current-context": current,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example", "certificate-authority": ca}}],
        "users": [{"name": name, "user": {"token": f"token of {name} in {file.parent.name}"}}],
    }
    file.write_text(yaml.safe_dump(document))
    return file


def test_files_are_merged_and_the_first_entry_of_a_name_counts(tmp_path: pathlib.Path) -> None:
    one = written(tmp_path / "a" / "config", "one")
    two = written(tmp_path / "b" / "config", "one", current="two", ca="/etc/ca.crt")
    found = kubeconfigs.merged(f"{one}{os.pathsep}{two}")
    assert found["current-context"] == "two"
    assert [entry["user"]["token"] for entry in found["users"]] == ["token of one in a"]
    assert found["clusters"][0]["cluster"]["certificate-authority"] == str(tmp_path / "a" / "ca.crt")


def test_the_variable_comes_before_the_home_folder(tmp_path: pathlib.Path) -> None:
    home = written(tmp_path / ".kube" / "config", "home")
    other = written(tmp_path / "other", "other")
    assert kubeconfigs.usual({"HOME": str(tmp_path)}) == str(home)
    named = f"{tmp_path / 'missing'}{os.pathsep}{other}"
    assert kubeconfigs.usual({"HOME": str(tmp_path), "KUBECONFIG": named}) == str(other)
    assert kubeconfigs.usual({"HOME": str(tmp_path / "nowhere")}) == ""


async def test_a_context_is_chosen_by_its_name(tmp_path: pathlib.Path) -> None:
    one = written(tmp_path / "a" / "config", "one", current="one", ca="")
    two = written(tmp_path / "b" / "config", "two", ca="")
    source = Kubeconfig(f"{one}{os.pathsep}{two}", {}, context="two")
    identity = await source.load(anew=False)
    assert (identity.server, identity.authorization) == ("https://two.example", "Bearer token of two in b")
    with pytest.raises(ClusterError, match="it has no context 'three'"):
        Kubeconfig(str(one), {}, context="three").check()


async def test_an_identity_can_be_used_elsewhere(tmp_path: pathlib.Path) -> None:
    one = written(tmp_path / "config", "one", current="one", ca="")
    with pytest.raises(ClusterError, match="CA bundle holds no certificate"):
        await Kubeconfig(str(one), {}, elsewhere=Elsewhere("https://10.0.0.1:10250", b"none", "sluice.x.svc")).load(
            anew=False
        )
    identity = await Kubeconfig(str(one), {}, elsewhere=Elsewhere("https://10.0.0.1:10250", b"", "sluice.x.svc")).load(
        anew=False
    )
    assert (identity.server, identity.server_name, identity.proxy) == ("https://10.0.0.1:10250", "sluice.x.svc", "")
    assert identity.authorization
