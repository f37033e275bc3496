"""Import every module of the program in the image's own root. A library may be missing that only an extra of the program brings.

Standard library alone, as sbom.py: it runs while the image is built.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator

PROGRAM = "sluice-apiserver"
PACKAGES = ("apiserver", "kubecel", "kubetext", "sluice", "structuredmerge")


def missing(packages: Iterable[str] = PACKAGES, program: str = PROGRAM) -> list[str]:
    """Return a line for each module that cannot be imported, and should be."""
    optional = extras(program)
    return [
        f"{name}: {e}"
        for package in packages
        for name in _modules(package)
        if (e := _failure(name)) is not None and not _is_optional(e, optional)
    ]


def extras(program: str) -> list[str]:
    """Return the names of the distributions that only extras of the program require."""
    required = importlib.metadata.requires(program) or ()
    return [re.split(r"[^A-Za-z0-9._-]", line)[0].lower() for line in required if "extra ==" in line]


def _modules(package: str) -> Iterator[str]:
    path = importlib.import_module(package).__path__
    names = (info.name for info in pkgutil.walk_packages(path, f"{package}."))
    return (name for name in names if not name.endswith("__main__"))


def _failure(name: str) -> ImportError | None:
    try:
        importlib.import_module(name)
    except ImportError as e:
        return e
    return None


def _is_optional(e: ImportError, distributions: Iterable[str]) -> bool:
    """Whether an extra brings what is missing. A distribution has the name of its package, or that and more words."""
    package = (e.name or "").partition(".")[0].lower()
    return isinstance(e, ModuleNotFoundError) and any(
        name == package or name.startswith(f"{package}-") for name in distributions
    )


if __name__ == "__main__":
    sys.exit("\n".join(missing()) or 0)
