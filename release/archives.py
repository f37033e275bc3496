"""Archives and checksums that are the same bytes for the same files."""

from __future__ import annotations

import gzip
import hashlib
import pathlib
import tarfile


def pack(folder: pathlib.Path, archive: pathlib.Path, *, root: str, time: int) -> None:
    """Write `folder` into a .tar.gz under the name `root`: sorted, without owners, with one time (seconds since 1970) for all files."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = time
        return member

    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=time) as compressed,
        tarfile.open(mode="w", fileobj=compressed, format=tarfile.PAX_FORMAT) as packed,
    ):
        for path in sorted(folder.rglob("*")):
            if not path.is_dir():
                packed.add(path, f"{root}/{path.relative_to(folder).as_posix()}", recursive=False, filter=plain)


def digest(file: pathlib.Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def checksums(folder: pathlib.Path) -> str:
    """Return the lines that `sha256sum --check` reads, for all files of a folder."""
    return "".join(f"{digest(file)}  {file.name}\n" for file in sorted(folder.iterdir()))
