"""Images without a registry: built by buildah, kept as archives in the cache, under the names by which manifests and Dockerfiles call them.

`sluice` is the unchanged Dockerfile of the checkout; `valkey` stands in for the Valkey project's own, with the server of the wheel that the
tests use; `pause` is the first process of every pod. Debian's image, from which they are made, comes from debootstrap.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence

import yaml

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import PROJECT
from tests.e2e.node.programs import program
from tests.fixtures.processes import start
from tests.fixtures.valkey import server_binary


def named_by_the_manifests() -> str:
    """Return the name and tag of the store's image. A digest is known only to a registry, so the stand-in has none."""
    store = yaml.safe_load((PROJECT / "manifests" / "base" / "valkey-statefulset.yaml").read_text())
    [container] = store["spec"]["template"]["spec"]["containers"]
    return str(container["image"]).partition("@")[0]


PAUSE = "sluice.invalid/pause:1"
SLUICE = "docker.io/library/sluice:latest"
VALKEY = f"docker.io/{named_by_the_manifests()}"
MIRROR = "http://deb.debian.org/debian"
KEPT = 4
"""How many archives of one image stay in the cache, since checkouts and branches take turns."""
LAYERS = 100
"""How many layers the builder may remember before it begins anew."""
FROM = re.compile(r"^FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.MULTILINE | re.IGNORECASE)
DEBIAN = re.compile(r"(?:docker\.io/)?(?:library/)?debian:([a-z]+)-slim(?:@sha256:[0-9a-f]+)?")
NOT_IN_SLIM = (
    "var/cache/apt",
    "var/lib/apt/lists",
    "var/log",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
)
VALKEY_BUILD = """\
FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends valkey-tools && rm -rf /var/lib/apt/lists/* /etc/valkey
COPY valkey-server valkey-cli /usr/local/bin/
"""
VALKEY_CLI = """\
#!/bin/sh
# Debian's client is older than the server, and knows the variable with the password by another name.
export REDISCLI_AUTH="$VALKEYCLI_AUTH"
exec /usr/bin/valkey-cli "$@"
"""
PAUSE_BUILD = """\
FROM scratch
COPY pause /
USER 65535:65535
ENTRYPOINT ["/pause"]
"""


class ImageError(Exception):
    """An image could not be built; the text says why."""


def sluice() -> pathlib.Path:
    """The image of this checkout."""
    files = sorted(_context(PROJECT))
    names = [str(file.relative_to(PROJECT)).encode() for file in files]
    return _archive(SLUICE, PROJECT, digest=_digest(*names, *(file.read_bytes() for file in files)))


def valkey() -> pathlib.Path:
    files = {"valkey-server": server_binary().read_bytes(), "valkey-cli": VALKEY_CLI.encode()}
    return image(VALKEY, VALKEY_BUILD, files)


def pause() -> pathlib.Path:
    return image(PAUSE, PAUSE_BUILD, {"pause": program("pause").read_bytes()})


def image(name: str, dockerfile: str, files: Mapping[str, bytes]) -> pathlib.Path:
    """The archive of an image that is made of these programs."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "Dockerfile").write_text(dockerfile)
        for file, content in files.items():
            (folder / file).write_bytes(content)
            (folder / file).chmod(0o755)
        texts = [item for file, content in sorted(files.items()) for item in (file.encode(), content)]
        return _archive(name, folder, digest=_digest(dockerfile.encode(), *texts))


def _context(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Inputs of the image: the Dockerfile, and the files that .dockerignore permits."""
    yield folder / "Dockerfile"
    ignored = (folder / ".dockerignore").read_text().splitlines()
    for line in ignored:
        if line.startswith("!"):
            path = folder / line[1:].strip("/")
            found = path.rglob("*") if path.is_dir() else [path]
            yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)


def _archive(name: str, folder: pathlib.Path, *, digest: str) -> pathlib.Path:
    """The archive of an image: a cached one from the same inputs, or a new build."""
    images = cache() / "images"
    images.mkdir(parents=True, exist_ok=True)
    stem = name.rpartition("/")[2].partition(":")[0]
    with binaries.only_one(cache() / f"{stem}.lock", f"waiting for another process that builds {name}"):
        bases = {base: _debian(suite) for base, suite in debians(folder / "Dockerfile").items()}
        recipe = _digest(digest.encode(), name.encode(), *(_identity(base).encode() for base in bases.values()))
        archive = images / f"{stem}-{recipe[:16]}.tar"
        if archive.exists():
            archive.touch()
            return archive
        started = time.monotonic()
        say(f"building the image {name}")
        with binaries.only_one(cache() / "storage.lock", "waiting for another process that builds an image"):
            _build(name, folder, bases, archive)
        say(f"built in {time.monotonic() - started:.0f} s: {archive.stat().st_size >> 20} MiB")
        for old in sorted(images.glob(f"{stem}-*.tar"), key=lambda file: file.stat().st_mtime)[:-KEPT]:
            old.unlink()
    return archive


def cache() -> pathlib.Path:
    return binaries.cache_folder() / "node"


def _digest(*texts: bytes) -> str:
    """The digest of the digests of each text."""
    return hashlib.sha256(b"".join(hashlib.sha256(text).digest() for text in texts)).hexdigest()


# Where images come from


def debians(dockerfile: pathlib.Path) -> dict[str, str]:
    """The images that a Dockerfile begins with, and the suite that each of them is."""
    found, stages = {}, {"scratch"}
    for base, stage in FROM.findall(dockerfile.read_text()):
        if base not in stages:
            debian = DEBIAN.fullmatch(base)
            if debian is None:
                raise ImageError(
                    f"{dockerfile} begins with {base}, and without a registry there is only debian:SUITE-slim"
                )
            found[base] = debian[1]
        stages.add(stage)
    return found


def _debian(suite: str) -> pathlib.Path:
    """An archive of its files, much as in Debian's own slim image."""
    archive = cache() / f"debian-{suite}.tar"
    with binaries.only_one(cache() / f"debian-{suite}.lock", "waiting for another process that makes Debian's image"):
        if not archive.exists():
            say(f"making debian:{suite}-slim from {MIRROR}: once, about a minute")
            _bootstrap(suite, archive)
    return archive


def _bootstrap(suite: str, archive: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache()) as temporary:
        root, unfinished = pathlib.Path(temporary, "root"), pathlib.Path(temporary, "unfinished.tar")
        _run(["debootstrap", "--variant=minbase", suite, str(root), MIRROR])
        for name in NOT_IN_SLIM:
            for item in (root / name).iterdir():
                if item.is_dir() and not item.is_symlink():
                    shutil.rmtree(item)
                else:
                    item.unlink()
        _run(["tar", "--create", f"--file={unfinished}", f"--directory={root}", "--exclude=./dev/*", "."])
        unfinished.rename(archive)


def _identity(file: pathlib.Path) -> str:
    return f"{file.name} {file.stat().st_mtime_ns}"


# buildah


def _build(name: str, folder: pathlib.Path, bases: Mapping[str, pathlib.Path], archive: pathlib.Path) -> None:
    storage = cache() / "storage"
    if storage.exists() and len(list((storage / "overlay").iterdir())) > LAYERS:
        shutil.rmtree(storage)
    with tempfile.TemporaryDirectory(dir=cache()) as temporary:
        work = pathlib.Path(temporary)
        buildah = ["buildah", "--storage-driver=overlay", f"--root={storage}", f"--runroot={work / 'run'}"]
        build = [*buildah, "bud", "--isolation=chroot", "--network=host", "--layers", "--pull-never"]
        contexts = []
        for number, (base, files) in enumerate(bases.items()):
            local = f"localhost/{files.stem}:{files.stat().st_mtime_ns}"
            if _fails([*buildah, "inspect", "--type=image", local]):
                rootfs = work / f"base-{number}"
                rootfs.mkdir()
                (rootfs / "Dockerfile").write_text('FROM scratch\nADD rootfs.tar /\nCMD ["bash"]\n')
                (rootfs / "rootfs.tar").hardlink_to(files)
                _run([*build, f"--tag={local}", str(rootfs)])
            contexts.append(f"--build-context={base}=container-image://{local}")
        _run([*build, *contexts, *_package_index(), f"--tag={name}", str(folder)])
        unfinished = work / "image.tar"
        _run([*buildah, "push", name, f"docker-archive:{unfinished}:{name}"])
        unfinished.rename(archive)


def _package_index() -> list[str]:
    """The build believes and asks whom pip believes and asks on this machine."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    known = {}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in {"global", ":env:"}:
            known[option] = "".join(shlex.split(value))
    certificates = [f"--secret=id=ca,src={known['cert']}"] if "cert" in known else []
    return certificates + ([f"--build-arg=PIP_INDEX_URL={known['index-url']}"] if "index-url" in known else [])


def _run(command: Sequence[str]) -> None:
    code, output = _output(command)
    if code != 0:
        raise ImageError(f"{shlex.join(command)} failed, exit code {code}; its end:\n{output[-3000:]}")


def _fails(command: Sequence[str]) -> bool:
    return _output(command)[0] != 0


def _output(command: Sequence[str]) -> tuple[int, str]:
    """Mounts and processes of the command are its own, and go with it and with us."""
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
    process = start(
        [*apart, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(cache())},
    )
    try:
        output, _ = process.communicate()
    finally:
        process.kill()
        process.wait()
    return process.returncode, output.decode(errors="replace")


def say(text: str) -> None:
    sys.stderr.write(f"node: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    for made in (pause(), valkey(), sluice()):
        print(made)
