"""Find the kubeconfig files that apply, and merge several of them into one document. Reads files, sends nothing.

Upstream: kubernetes/client-go `tools/clientcmd/loader.go` ClientConfigLoadingRules.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from apiserver.cluster.errors import ClusterError

VARIABLE = "KUBECONFIG"
_PATHS = (
    ("clusters", "cluster", ("certificate-authority",)),
    ("users", "user", ("client-certificate", "client-key", "tokenFile")),
)
"""The lists of a kubeconfig, the object in each of their entries, and its members that are paths beside the file."""


def usual(environ: Mapping[str, str]) -> str:
    """Return what kubectl reads without flags: the files of KUBECONFIG, else ~/.kube/config. Empty if no such file exists."""
    named = environ.get(VARIABLE, "")
    if named:
        return os.pathsep.join(path for path in files(named) if Path(path).is_file())
    home = environ.get("HOME", "")
    file = Path(home, ".kube", "config")
    return str(file) if home and file.is_file() else ""


def files(path: str) -> list[str]:
    """Split a list of files, each once."""
    return list(dict.fromkeys(filter(None, path.split(os.pathsep))))


def merged(path: str) -> dict[str, Any]:
    """Merge the files of a list: the first entry of a name counts, and the first current-context. Raises ClusterError, ValueError."""
    found: dict[str, Any] = {"clusters": [], "users": [], "contexts": []}
    for name in files(path):
        file = Path(name)
        try:
            part = document(file.read_bytes())
        except OSError as error:
            raise ClusterError(f"{file} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ClusterError(f"{file} is no kubeconfig: {error}") from None
        _find_beside(part, file.resolve().parent)
        found.setdefault("current-context", part.get("current-context") or "")
        found["current-context"] = found["current-context"] or part.get("current-context") or ""
        for kind in ("clusters", "users", "contexts"):
            have = {entry.get("name") for entry in found[kind]}
            found[kind] += [entry for entry in _entries(part, kind) if entry.get("name") not in have]
    return found


def _find_beside(part: Mapping[str, Any], folder: Path) -> None:
    """Make the paths in a document absolute: they begin at its own folder."""
    for kind, member, names in _PATHS:
        for entry in _entries(part, kind):
            inner = entry.get(member)
            for name in names:
                if isinstance(inner, dict) and isinstance(inner.get(name), str) and inner[name]:
                    inner[name] = str(folder / inner[name])
            plugin = inner.get("exec") if isinstance(inner, dict) else None
            if isinstance(plugin, dict) and "/" in str(plugin.get("command")):
                plugin["command"] = str(folder / str(plugin["command"]))


def _entries(part: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    listed = part.get(kind)
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []


def document(text: bytes) -> dict[str, Any]:
    """Parse a kubeconfig. Raises ValueError."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f"line {mark.line + 1}: "
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ValueError(f"it is no YAML: {where}{problem}") from None
    if not isinstance(document, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - what is in a file is a value
    return document
