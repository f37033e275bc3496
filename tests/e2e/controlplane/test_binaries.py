"""The cache of test binaries, with a shell script in place of Go."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import pathlib
import subprocess

import pytest

from apiserver.apimachinery.releases import NEWEST, SUPPORTED
from tests.e2e.controlplane import binaries
from tests.e2e.node import programs

# Stands in for `go build ... -o DIR/ PACKAGE...` (and answers `go list` with nothing): counts its runs, takes a moment, writes DIR/<name>.
GO = """#!/bin/sh
[ "$1" = build ] || exit 0
echo run >>"$RUNS"
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
sleep 0.2
for package; do
    name=$(basename "$package"); [ "$name" = v3 ] && name=server
    printf '#!/bin/sh\\necho built %s\\n' "$name" >"$out$name"
    chmod +x "$out$name"
done
"""


@pytest.fixture
def go(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    script = tmp_path / "go"
    script.write_text(GO)
    script.chmod(0o755)
    monkeypatch.setattr(binaries, "_go", lambda: str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    for name in ("KUBECTL", *binaries.FOLDERS, binaries.CHOICE):
        monkeypatch.delenv(name, raising=False)
    return script


def runs() -> int:
    return pathlib.Path(os.environ["RUNS"]).read_text().count("run")


def said(program: pathlib.Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def test_many_callers_at_once_build_everything_once(go: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        names = ["kubectl", "etcd", "kubectl", "kube-apiserver"]
        found = dict(zip(names, pool.map(binaries.binary, names), strict=True))
    assert said(found["kubectl"]) == "built kubectl\n"
    assert said(found["etcd"]) == "built server\n"
    assert runs() == 1
    assert binaries.version() in capsys.readouterr().err


def test_a_failed_build_says_why_and_leaves_nothing_that_looks_finished(go: pathlib.Path) -> None:
    go.write_text("#!/bin/sh\necho no network\nexit 3\n")
    with pytest.raises(binaries.BuildError, match=r"exit code 3(.|\n)*no network"):
        binaries.kubectl()
    assert list(pathlib.Path(os.environ["XDG_CACHE_HOME"]).rglob("kubectl")) == []


def test_progress_counts_compiled_packages_and_no_downloads(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(
        "go: downloading k8s.io/api v0.37.2\ngo: downloading go.etcd.io/etcd/server/v3 v3.7.0\nk8s.io/api/core/v1\n"
    )
    assert binaries.compiled(log) == 1


def test_another_version_is_another_place(go: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = binaries.kubectl()
    monkeypatch.setattr(binaries, "version", lambda: "v1.99.0")
    assert binaries.kubectl().parent != first.parent


def test_the_environment_chooses_the_release(go: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = binaries.kubectl()
    assert binaries.minor() == str(NEWEST)
    for version in binaries.versions()[1:]:
        monkeypatch.setenv(binaries.CHOICE, version)
        assert binaries.version() == f"v{version}"
        assert binaries.kubectl().parent != newest.parent


def test_every_supported_release_can_be_chosen() -> None:
    assert {version.rpartition(".")[0] for version in binaries.versions()} == set(map(str, SUPPORTED))


@pytest.mark.parametrize("version", ["1.36.3", "v1.36.3"])
def test_a_version_can_be_named_with_its_letter(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv(binaries.CHOICE, version)
    assert binaries.version() == "v1.36.3"
    assert binaries.MODULE.modfile.name == "go-1.36.3.mod"


def test_a_version_that_was_generated_can_be_chosen(go: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = binaries.MODULE.generated
    folder.mkdir(parents=True)
    (folder / "go-1.99.0-alpha.2.mod").write_text("require k8s.io/kubernetes v1.99.0-alpha.2\n")
    (folder / "go-1.99.0-alpha.2.sum").write_text("")
    before = binaries.versions()
    with binaries.choosing("1.99.0-alpha.2"):
        assert (binaries.version(), binaries.minor()) == ("v1.99.0-alpha.2", "1.99")
        assert said(binaries.kubectl()) == "built kubectl\n"
        with pytest.raises(binaries.BuildError, match=r"1\.99\.0-alpha\.2 is not one of .* \(kubernetes\)"):
            programs.program("kubelet")
    assert binaries.versions() == before


def test_programs_without_kubernetes_are_the_same_for_every_version(go: pathlib.Path) -> None:
    built = set()
    for version in binaries.versions():
        with binaries.choosing(version):
            built.add(programs.program("helm"))
    assert len(built) == 1


def test_an_unknown_release_is_refused_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(binaries.CHOICE, "1.20.1")
    with pytest.raises(binaries.BuildError, match=f"KUBERNETES=1.20.1 is not one of {', '.join(binaries.versions())}"):
        binaries.version()


def test_a_change_of_our_own_program_builds_only_that(
    go: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    module = tmp_path / "module"
    (module / "informers").mkdir(parents=True)
    for name in ("go.mod", "go.sum"):
        (module / name).write_text((binaries.MODULE.folder / name).read_text())
    source = module / "informers" / "main.go"
    source.write_text("package main // one\n")
    monkeypatch.setattr(binaries, "MODULE", dataclasses.replace(binaries.MODULE, folder=module))
    before, kubectl = binaries.binary("informers"), binaries.kubectl()
    kubectl.write_text("kept")
    source.write_text("package main // two\n")
    assert binaries.binary("informers") != before
    assert binaries.kubectl().read_text() == "kept"
    assert runs() == 2


def test_kubectl_of_the_environment_wins(go: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL", str(go))
    assert binaries.kubectl() == go
    assert not pathlib.Path(os.environ["RUNS"]).exists()


def test_a_wrong_kubectl_of_the_environment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL", "/does/not/exist")
    with pytest.raises(binaries.BuildError, match="KUBECTL=/does/not/exist"):
        binaries.kubectl()


@pytest.mark.parametrize("variable", binaries.FOLDERS)
def test_folder_of_the_environment_is_used_and_missing_binaries_are_built(
    go: pathlib.Path, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, variable: str
) -> None:
    folder = tmp_path / "assets"
    folder.mkdir()
    given = folder / "kube-apiserver"
    given.write_text("#!/bin/sh\necho given\n")
    given.chmod(0o755)
    monkeypatch.setenv(variable, str(folder))
    assert binaries.binary("kube-apiserver") == given
    assert said(binaries.binary("kube-scheduler")) == "built kube-scheduler\n"
    assert list(pathlib.Path(os.environ["XDG_CACHE_HOME"]).rglob("kube-apiserver")) == []
