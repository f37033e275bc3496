"""Make or renew a virtual environment from a lock file: `python3 scripts/venv.py .venv -r requirements-dev.lock --editable`.

Nothing happens if the environment is up to date. It is made anew if another Python runs this program, or if the checkout has moved.
A progress bar shows on a terminal; elsewhere there is a line every ten seconds, as for programs that read logs.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import pathlib
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

PROJECT = pathlib.Path(__file__).resolve().parents[1]
SECONDS = 10.0
"""Between two lines about an installation."""
WIDTH = 40
"""Characters of the bar."""
# Wheels only: a fresh machine has no compiler.
LOCKED = ("--only-binary", ":all:", "--require-hashes")
# No build isolation: the build backend comes from the lock like everything else.
EDITABLE = ("--no-deps", "--no-build-isolation", "--editable", str(PROJECT))
NO_VENV = (
    "this Python cannot make virtual environments: {} has no ensurepip (on Debian and Ubuntu: apt install python3-venv)"
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Make or renew a virtual environment from a lock file.")
    parser.add_argument("folder", type=pathlib.Path, help="the environment")
    parser.add_argument("-r", dest="lock", type=pathlib.Path, required=True, help="the lock file")
    parser.add_argument("--editable", action="store_true", help="install the checkout as well")
    given = parser.parse_args(arguments)
    folder, lock = given.folder.absolute(), given.lock
    python = folder / "bin" / "python"
    whose, installed = folder / ".made-by", folder / f".installed-{lock.stem}"
    maker = f"{sys.version}\n{sys.base_prefix}\n{folder}\n"
    content = digest(lock, *([PROJECT / "pyproject.toml"] if given.editable else []))

    made = python.exists() and read(whose) == maker
    if made and read(installed) == content:
        return 0
    if importlib.util.find_spec("ensurepip") is None:
        return fail(NO_VENV.format(sys.executable))
    version = sys.version.split()[0]
    if not made:
        print(f"{given.folder}: a virtual environment of Python {version} ({sys.executable})", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        whose.write_text(maker)
    installed.unlink(missing_ok=True)
    locked = pins(lock)
    code = pip(python, [*LOCKED, "-r", str(lock)], len(locked))
    if given.editable and not code:
        code = pip(python, EDITABLE, 1)
    if not code:
        for other in lock.parent.glob("*.lock"):
            if pins(other) <= locked:
                (folder / f".installed-{other.stem}").write_text(digest(other))
        installed.write_text(content)
    return code


def pins(lock: pathlib.Path) -> set[str]:
    """The packages of a lock file with their versions."""
    return set(re.findall("^[a-zA-Z0-9][^ ]*==[^ ]+", lock.read_text(), re.MULTILINE))


def digest(*files: pathlib.Path) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def read(file: pathlib.Path) -> str:
    return file.read_text() if file.exists() else ""


def fail(message: str) -> int:
    print(f"{pathlib.Path(__file__).name}: {message}", file=sys.stderr)
    return 1


def pip(python: pathlib.Path, arguments: Sequence[str], packages: int) -> int:
    """Run `pip install` and report its progress. pip's own output shows only if it fails."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    said: list[str] = []
    with (
        Progress(packages) as progress,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            progress.follow(line)
    if process.returncode:
        sys.stderr.writelines(said)
    return process.returncode


class Progress:
    """Say how many packages pip has found so far: in a bar on a terminal, otherwise in a line every ten seconds."""

    def __init__(self, packages: int) -> None:
        self._packages, self._found, self._now = packages, 0, ""
        self._ended = threading.Event()
        self._bar = sys.stdout.isatty()
        self._teller = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Progress:
        self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._teller.join()
        if self._bar:
            print("\r\x1b[K", end="", flush=True)

    def follow(self, line: str) -> None:
        """Read a line of pip's output."""
        word, _, rest = line.strip().partition(" ")
        if word == "Collecting":
            self._found += 1
            self._now = rest.split(" ")[0]
        elif word == "Installing":
            self._found, self._now = self._packages, "installing"
        if self._bar:
            filled = WIDTH * min(self._found, self._packages) // max(self._packages, 1)
            print(f"\r\x1b[K[{'#' * filled:<{WIDTH}}] {self._now}", end="", flush=True)

    def _tell(self) -> None:
        while not self._ended.wait(SECONDS):
            if not self._bar:
                print(f"pip: {min(self._found, self._packages)} of {self._packages} packages, {self._now}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
