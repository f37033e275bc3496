"""`python -m release VERSION`: check the checkout, and write the files of a release into dist/VERSION/."""

from __future__ import annotations

import argparse
import pathlib
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Sequence

from release import archives, checkout, distributions, statements
from release.checkout import Refused, Release

PROJECT = pathlib.Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description="Write the files of a release.")
    parser.add_argument("version", help="as in 0.2.0")
    parser.add_argument("--output", type=pathlib.Path, help="the folder to replace (default: dist/VERSION)")
    given = parser.parse_args(arguments)
    try:
        release = checkout.described(PROJECT, given.version)
        checkout.check(PROJECT, release)
    except Refused as e:
        print(f"release: {e}", file=sys.stderr)
        return 1
    out = given.output or PROJECT / "dist" / given.version
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".release-") as temporary:
        made = pathlib.Path(temporary, "files")
        make(PROJECT, release, pathlib.Path(temporary, "work"), made)
        shutil.rmtree(out, ignore_errors=True)
        made.rename(out)
    print((out / "SHA256SUMS").read_text(), end="")
    print(f"{out}: version {release.version}, commit {release.commit}, {release.date}")
    for image in checkout.images_without_digest(PROJECT):
        print(f"release: {image} has no digest: see docs/releasing.md, Images", file=sys.stderr)
    return 0


def make(project: pathlib.Path, release: Release, work: pathlib.Path, out: pathlib.Path) -> None:
    """Make all files of a release in `out` from the files of a checkout. Both folders are created."""
    tree = work / "tree"
    tree.mkdir(parents=True)
    out.mkdir(parents=True)
    checkout.stage(project, release, tree)
    engines = tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["sluice"]["engines"]
    name = f"sluice-{release.version}"

    distributions.build(tree, release, work / "projects", out)
    archives.pack(tree, out / f"{name}-source.tar.gz", root=name, time=release.built)
    archives.pack(tree / "charts" / "sluice", out / f"{name}.tgz", root="sluice", time=release.built)
    lock = (tree / "requirements.lock").read_text()
    (out / f"{name}.cdx.json").write_text(statements.bill(lock, engines, release))
    (out / "RELEASE-NOTES.md").write_text(checkout.notes(tree, release))
    # The last two cover the files before them.
    (out / f"{name}.intoto.json").write_text(statements.provenance(out, tree, release))
    (out / "SHA256SUMS").write_text(archives.checksums(out))


if __name__ == "__main__":
    sys.exit(main())
