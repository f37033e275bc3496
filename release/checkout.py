"""Read the checkout from git, and copy its files for one release."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime

from apiserver import buildinfo

VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
IMAGE = re.compile(r"^ *(?:- )?(?:image: |FROM )([^\s@]+[/:][^\s@]+)(@sha256:[0-9a-f]{64})?(?: AS \S+)?$", re.MULTILINE)
"""An image of a registry. `sluice` and `scratch` have neither registry nor tag."""


class Refused(Exception):
    """The checkout cannot become this release; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Release:
    """A version, the commit that it is made of, and that commit's time in seconds since 1970."""

    version: str
    commit: str
    built: int

    @property
    def date(self) -> str:
        return datetime.fromtimestamp(self.built, UTC).strftime("%Y-%m-%d")


def git(project: pathlib.Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(project), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def described(project: pathlib.Path, version: str) -> Release:
    """Describe the release that the current commit would be."""
    commit, built = git(project, "log", "-1", "--format=%H %ct").split()
    return Release(version, commit, int(built))


def check(project: pathlib.Path, release: Release) -> None:
    """Raise `Refused` unless the checkout is clean, prepared for this version, and free of a tag of it elsewhere."""
    version = release.version
    if not VERSION.fullmatch(version):
        raise Refused(f"{version!r} is not a version: write MAJOR.MINOR.PATCH")
    if f"{version}.dev0" != buildinfo.DEVELOPMENT:
        raise Refused(
            f"this checkout prepares {buildinfo.DEVELOPMENT}: set DEVELOPMENT to {version}.dev0 in apiserver/buildinfo.py, "
            "then run `make chart`"
        )
    if changes := git(project, "status", "--porcelain"):
        raise Refused(f"the checkout has changes; commit or remove them first:\n{changes}")
    tag = f"v{version}"
    # A tag of this very commit is fine: so anybody can build a release again and compare the bytes.
    if git(project, "tag", "--list", tag) and git(project, "rev-list", "-1", tag) != release.commit:
        raise Refused(f"the tag {tag} names another commit: a version is released once")
    notes(project, release)


def images_without_digest(project: pathlib.Path) -> list[str]:
    """Return the images that the Dockerfile, the manifests and the chart name by a tag alone, which others can move."""
    files = [
        project / "Dockerfile",
        *(file for part in ("manifests", "charts") for file in (project / part).rglob("*.yaml")),
    ]
    named = [match for file in files for match in IMAGE.findall(file.read_text())]
    return sorted({image for image, digest in named if not digest})


def notes(project: pathlib.Path, release: Release) -> str:
    """Return the version's section of the changelog, without its heading."""
    changelog = (project / "CHANGELOG.md").read_text()
    for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        if heading.startswith(f"[{release.version}] - "):
            return body.strip() + "\n"
    raise Refused(f"CHANGELOG.md has no section `## [{release.version}] - {release.date}`")


def stage(project: pathlib.Path, release: Release, folder: pathlib.Path) -> None:
    """Copy the files that git knows, and write the facts of the release into the copy.

    Modes are 0644 and 0755, and times are that of the commit, whatever the umask and the checkout say.
    """
    for name in git(project, "ls-files", "-z").split("\0"):
        source = project / name
        if name and source.is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
    facts = {"version": release.version, "commit": release.commit, "built": release.built}
    generated = folder / "apiserver" / buildinfo.FILE
    generated.write_text(json.dumps(facts) + "\n")
    generated.chmod(0o644)
    changelog = folder / "CHANGELOG.md"
    unreleased = f"## [{release.version}] - Unreleased\n"
    changelog.write_text(changelog.read_text().replace(unreleased, f"## [{release.version}] - {release.date}\n"))
    chart = folder / "charts" / "sluice" / "Chart.yaml"
    written = re.sub(r"(?m)^(version|appVersion): .*$", rf"\1: {release.version}", chart.read_text())
    chart.write_text(written)
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            os.utime(file, (release.built, release.built))
