"""Say which build of Sluice this is, and on what it runs."""

from __future__ import annotations

import json
import platform

from apiserver import buildinfo


def facts() -> dict[str, str]:
    """Return the facts of /version about the build, the version of Python, and the platform in Go's form."""
    return {
        "version": buildinfo.version(),
        "gitCommit": buildinfo.commit(),
        "gitTreeState": buildinfo.tree_state(),
        "buildDate": buildinfo.build_date(),
        "python": platform.python_version(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def text() -> str:
    """Return the facts for people, in one line."""
    known = facts()
    build = f"commit {known['gitCommit'][:12]}, built {known['buildDate']}" if buildinfo.built() else "a checkout"
    return f"sluice {known['version']} ({build}, Python {known['python']}, {known['platform']})\n"


def document() -> str:
    """Return the facts as JSON."""
    return json.dumps(facts(), indent=2) + "\n"
