"""Say which version of Sluice runs, from which commit, and when it was built.

`make release` writes these facts into `_build.json` beside this module. A checkout has no such file and is a development version.
pyproject.toml evaluates `version()` while a package is built, so this module imports nothing of the project.
"""

from __future__ import annotations

import functools
import json
import pathlib
from datetime import UTC, datetime

FILE = "_build.json"
"""`{"version": "0.2.0", "commit": "<40 hex digits>", "built": <seconds since 1970>}`."""
DEVELOPMENT = "0.2.0.dev0"
"""The version of a checkout, in the form of PEP 440: the next release, which is not made yet."""
UNKNOWN = "unknown"


@functools.cache
def _facts() -> dict[str, str | int]:
    try:
        facts: dict[str, str | int] = json.loads(pathlib.Path(__file__).with_name(FILE).read_bytes())
    except FileNotFoundError:
        return {}
    return facts


def version() -> str:
    """Return the version, as in `0.2.0`, or that of a checkout."""
    return str(_facts().get("version", DEVELOPMENT))


def commit() -> str:
    """Return the commit of a release. A checkout does not know it: `unknown`."""
    return str(_facts().get("commit", UNKNOWN))


def built() -> int:
    """Return the build time of a release in seconds since 1970: the time of its commit. Zero for a checkout."""
    return int(_facts().get("built", 0))


def build_date() -> str:
    """Return the build time as `/version` writes it. A checkout has the date of upstream's builds without one, the beginning of 1970."""
    return datetime.fromtimestamp(built(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def tree_state() -> str:
    """Return `clean` for a release, which is made of a commit and nothing else."""
    return "clean" if built() else UNKNOWN
