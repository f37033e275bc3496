"""Requirements of a machine that is to be a node."""

from __future__ import annotations

import os
import pathlib
import shutil

PACKAGES = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "nft": "nftables",
    "conntrack": "conntrack",
    "runc": "runc",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "openssl": "openssl",
}
"""Programs, and the Debian packages that they come in."""
CNI = pathlib.Path("/usr/lib/cni")
MEMORY_MIB = 4096
DISK_MIB = 6144
UNABLE = 77
"""The exit code of a machine that cannot run this, which is no failure (as automake has it)."""


class Unable(Exception):
    """The machine is not fit; one line says what is missing."""


def check(state: pathlib.Path, cache: pathlib.Path) -> None:
    problems = [
        text for text in (_root(), _packages(), _memory(MEMORY_MIB), _disk(state), _disk(cache), _cgroups()) if text
    ]
    if problems:
        raise Unable("a node cannot run here: " + "; ".join(dict.fromkeys(problems)))


def has_room_for(nodes: int) -> bool:
    """At the same time."""
    return not _memory(nodes * MEMORY_MIB)


def _root() -> str:
    return "" if os.geteuid() == 0 else "needs root"


def _packages() -> str:
    missing = {package for name, package in PACKAGES.items() if shutil.which(name) is None}
    if not (CNI / "ptp").exists():
        missing.add("containernetworking-plugins")
    return f"needs `apt-get install --no-install-recommends {' '.join(sorted(missing))}`" if missing else ""


def _memory(needed: int) -> str:
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:"))
    return f"needs {needed} MiB of memory, {available} MiB are available" if available < needed else ""


def _disk(folder: pathlib.Path) -> str:
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free >> 20
    return f"needs {DISK_MIB} MiB in {folder}, {free} MiB are free" if free < DISK_MIB else ""


def _cgroups() -> str:
    root = pathlib.Path("/sys/fs/cgroup")
    if (root / "cgroup.controllers").exists() or (root / "memory").is_dir():
        return ""
    return f"needs control groups in {root}"
