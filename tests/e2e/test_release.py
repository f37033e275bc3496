"""The files of `make release`: the same bytes each time, and installed where the checkout is out of reach."""

from __future__ import annotations

import ast
import gzip
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator

import pytest
import yaml

from apiserver import buildinfo
from release import __main__ as command
from release import archives, checkout, distributions, statements
from release.checkout import Refused, Release
from tests.fixtures import example_kind
from tests.fixtures.server import DevServer

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())
VERSION = buildinfo.DEVELOPMENT.removesuffix(".dev0")
ENGINES = sorted(SETTINGS["tool"]["sluice"]["engines"])
SHIPS = f"/apis/{example_kind.GROUP}/v1/namespaces/default/ships"


@pytest.fixture(scope="module")
def facts() -> Release:
    return checkout.described(PROJECT, VERSION)


@pytest.fixture(scope="module")
def files(facts: Release, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The files of the release that this checkout would be."""
    folder = tmp_path_factory.mktemp("release")
    command.make(PROJECT, facts, folder / "work", folder / "files")
    return folder / "files"


@pytest.fixture(scope="module")
def installed(files: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The program in an environment of the wheels. Libraries are those of this environment, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("installed")
    uv = pathlib.Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--offline", "--python", sys.executable, folder / "venv"], check=True)
    wheels = sorted(files.glob("*.whl"))
    install: list[pathlib.Path | str] = [uv, "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*install, "--python", folder / "venv", *wheels], check=True)
    [site] = (folder / "venv/lib").glob("python*/site-packages")
    # A plain path: the link to this checkout, which lies there as well, is not followed.
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"])
    return folder / "venv/bin/sluice"


@pytest.fixture(scope="module")
def running(installed: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """`sluice dev` of the installed wheels, with the package of docs/kinds.md."""
    folder = tmp_path_factory.mktemp("dev")
    environ = {"PYTHONPATH": str(example_kind.installed(folder))}
    with DevServer(folder / "data", "--kinds", "harbour", environ=environ, program=installed) as server:
        yield server


def test_second_build_elsewhere_has_the_same_bytes(facts: Release, files: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Other folders, other times of files, another umask: a copy of the checkout as `git clone` would make it."""
    copy = tmp_path / "elsewhere"
    for name in checkout.git(PROJECT, "ls-files", "-z").split("\0"):
        if name and (PROJECT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT / name, copy / name)
    (copy / ".git").symlink_to(checkout.git(PROJECT, "rev-parse", "--absolute-git-dir"))
    umask = os.umask(0o077)
    try:
        command.make(copy, facts, tmp_path / "work", tmp_path / "files")
    finally:
        os.umask(umask)
    made = {file.name: archives.digest(file) for file in (tmp_path / "files").iterdir()}
    assert made == {file.name: archives.digest(file) for file in files.iterdir()}


def test_release_has_wheels_and_sources_chart_and_statements(files: pathlib.Path) -> None:
    stems = [name.replace("-", "_") for name in ("sluice-apiserver", *(f"sluice-{engine}" for engine in ENGINES))]
    wanted = {f"{stem}-{VERSION}{end}" for stem in stems for end in ("-py3-none-any.whl", ".tar.gz")}
    wanted |= {f"sluice-{VERSION}{end}" for end in ("-source.tar.gz", ".tgz", ".cdx.json", ".intoto.json")}
    assert {file.name for file in files.iterdir()} == wanted | {"RELEASE-NOTES.md", "SHA256SUMS"}


def test_checksums_are_those_that_sha256sum_finds(files: pathlib.Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=files, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(b": OK\n") == len(list(files.iterdir())) - 1


def test_wheels_share_no_file_and_require_each_other_in_one_version(files: pathlib.Path) -> None:
    seen: set[str] = set()
    required = {}
    for wheel in files.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            names = set(packed.namelist())
            [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
            required[wheel.name.partition("-")[0]] = set(
                re.findall(r"^Requires-Dist: (sluice-.*)$", packed.read(metadata).decode(), re.MULTILINE)
            )
        assert not names & seen
        seen |= names
    assert "apiserver/_build.json" in seen
    assert required["sluice_apiserver"] == {f"sluice-{engine}=={VERSION}" for engine in ENGINES}
    assert required["sluice_kubecel"] == {f"sluice-kubetext=={VERSION}"}
    assert {file.relative_to(PROJECT).as_posix() for file in (PROJECT / "kubecel").rglob("*.py")} <= seen


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_declares_each_library_that_it_imports(engine: str) -> None:
    imported = set()
    for file in (PROJECT / engine).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.partition(".")[0] for name in names}
    known = importlib.metadata.packages_distributions()
    needed = {name if name in ENGINES else known[name][0] for name in imported - sys.stdlib_module_names - {engine}}
    assert needed == set(SETTINGS["tool"]["sluice"]["engines"][engine]["dependencies"])


def test_installed_program_reports_the_release(running: DevServer, facts: Release, installed: pathlib.Path) -> None:
    shown = subprocess.run([installed, "--version"], capture_output=True, text=True, check=True, cwd="/").stdout
    assert VERSION in shown
    version = running.request("GET", "/version").json
    assert version["gitVersion"].endswith(f"+sluice-{VERSION}")
    assert (version["gitCommit"], version["gitTreeState"]) == (facts.commit, "clean")
    assert version["buildDate"].startswith(facts.date)
    assert f'git_commit="{facts.commit}"' in running.request("GET", "/metrics").text
    assert f"sluice-{VERSION}" in running.request("GET", "/statusz").text


def test_openapi_documents_of_a_release_are_as_old_as_its_commit(running: DevServer, facts: Release) -> None:
    """All replicas agree, and a second start does not make clients load them again."""
    modified = running.request("GET", "/openapi/v2").headers["Last-Modified"]
    assert subprocess.run(["date", "-d", modified, "+%s"], capture_output=True, check=True).stdout == (
        b"%d\n" % facts.built
    )


def test_installed_program_serves_the_kinds_of_a_package(running: DevServer) -> None:
    ship = {"metadata": {"name": "argo"}, "spec": {"captain": "jason"}}
    assert running.request("POST", SHIPS, ship).status == 201
    assert running.request("GET", f"{SHIPS}/argo").json["spec"]["captain"] == "jason"


def test_source_archive_and_chart_have_the_version_and_the_date(files: pathlib.Path, facts: Release) -> None:
    with tarfile.open(files / f"sluice-{VERSION}-source.tar.gz") as source:
        root = f"sluice-{VERSION}"
        written = source.extractfile(f"{root}/apiserver/_build.json")
        assert written is not None
        assert json.load(written) == {"version": VERSION, "commit": facts.commit, "built": facts.built}
        assert {f"{root}/Dockerfile", f"{root}/requirements.lock"} <= set(source.getnames())
        changelog = source.extractfile(f"{root}/CHANGELOG.md")
        assert changelog is not None
        assert re.search(rf"^## \[{re.escape(VERSION)}\] - \d{{4}}-", changelog.read().decode(), re.MULTILINE)
    with tarfile.open(files / f"sluice-{VERSION}.tgz") as chart:
        described = chart.extractfile("sluice/Chart.yaml")
        assert described is not None
        document = yaml.safe_load(described)
        assert (document["version"], document["appVersion"]) == (VERSION, VERSION)
        assert {member.mtime for member in chart} == {facts.built}


def test_bill_of_materials_names_the_locked_libraries_and_the_engines(files: pathlib.Path) -> None:
    bill = json.loads((files / f"sluice-{VERSION}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    locked = statements.LOCKED.findall((PROJECT / "requirements.lock").read_text())
    assert len(locked) > 10
    engines = [(f"sluice-{engine}", VERSION) for engine in ENGINES]
    assert {(item["name"], item["version"]) for item in bill["components"]} == {*locked, *engines}
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/sluice-apiserver@{VERSION}"


def test_provenance_names_every_other_file_and_the_commit(files: pathlib.Path, facts: Release) -> None:
    statement = json.loads((files / f"sluice-{VERSION}.intoto.json").read_text())
    subjects = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
    others = [file for file in files.iterdir() if file.name not in ("SHA256SUMS", f"sluice-{VERSION}.intoto.json")]
    assert subjects == {file.name: archives.digest(file) for file in others}
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    predicate = statement["predicate"]
    assert predicate["buildDefinition"]["resolvedDependencies"][0]["digest"] == {"gitCommit": facts.commit}
    assert "unsigned" in predicate["runDetails"]["builder"]["id"]


def test_release_notes_are_the_section_of_the_changelog(files: pathlib.Path) -> None:
    notes = (files / "RELEASE-NOTES.md").read_text()
    assert notes.startswith("The first version")
    assert "## [" not in notes


def test_archives_of_the_same_files_are_equal_whatever_their_times(tmp_path: pathlib.Path) -> None:
    packed = []
    for name, time in (("a", 1), ("b", 2_000_000_000)):
        folder = tmp_path / name
        folder.mkdir()
        for file in ("x", "y") if time == 1 else ("y", "x"):
            (folder / file).write_text(file)
            os.utime(folder / file, (time, time))
        archive = tmp_path / f"{name}.tgz"
        archives.pack(folder, archive, root="r", time=7)
        packed.append(archive.read_bytes())
    assert packed[0] == packed[1]
    assert gzip.decompress(packed[0]).startswith(b"r/x\0")


@pytest.fixture
def clean(tmp_path: pathlib.Path) -> pathlib.Path:
    """A checkout of one commit, prepared for the version."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## [{VERSION}] - Unreleased\n\nNews.\n\n## [0.0.1] - 2020-01-01\n"
    )
    checkout.git(tmp_path, "init", "--quiet", str(project))
    commit(project)
    return project


def commit(project: pathlib.Path) -> None:
    checkout.git(project, "add", "--all")
    who = ["-c", "user.name=Anybody", "-c", "user.email=anybody@example.com"]
    checkout.git(project, *who, "commit", "--quiet", "--message=Change")


def test_prepared_checkout_can_be_released_and_built_again(clean: pathlib.Path) -> None:
    checkout.check(clean, checkout.described(clean, VERSION))
    checkout.git(clean, "tag", f"v{VERSION}")
    checkout.check(clean, checkout.described(clean, VERSION))
    assert checkout.notes(clean, checkout.described(clean, VERSION)) == "News.\n"


@pytest.mark.parametrize(
    ("version", "words", "why"),
    [
        ("0.2", [], "is not a version"),
        ("v0.2.0", [], "is not a version"),
        ("99.0.0", [], "set DEVELOPMENT to 99.0.0.dev0"),
        (VERSION, ["changed"], "has changes"),
        (VERSION, ["tagged"], "names another commit"),
        (VERSION, ["unwritten"], "has no section"),
    ],
)
def test_checkout_that_is_not_prepared_is_refused(
    clean: pathlib.Path, version: str, words: list[str], why: str
) -> None:
    if "tagged" in words:
        checkout.git(clean, "tag", f"v{VERSION}")
        (clean / "more").touch()
        commit(clean)
    if "unwritten" in words:
        (clean / "CHANGELOG.md").write_text("# Changelog\n")
        commit(clean)
    if "changed" in words:
        (clean / "new").touch()
    with pytest.raises(Refused, match=why):
        checkout.check(clean, checkout.described(clean, version))


def test_images_that_only_a_tag_names_are_listed(tmp_path: pathlib.Path) -> None:
    pinned = f"docker.io/library/debian:trixie@sha256:{'0' * 64}"
    (tmp_path / "Dockerfile").write_text(f"FROM {pinned} AS build\nFROM debian:trixie\nFROM scratch\n")
    for part, image in {"manifests": "registry.example/store:1", "charts": pinned}.items():
        (tmp_path / part).mkdir()
        (tmp_path / part / "one.yaml").write_text(f"spec:\n- image: {image}\nother:\n  image: sluice\n")
    assert checkout.images_without_digest(tmp_path) == ["debian:trixie", "registry.example/store:1"]


def test_lines_of_toml_mean_the_tables_that_they_were_made_of() -> None:
    table = {"a": 1, "b-c": ["ä", 'quo"te\\'], "d.e": {"f": True, "g": {"h": []}}}
    assert tomllib.loads("\n".join(distributions.toml({"top": table}))) == {"top": table}
