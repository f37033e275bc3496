"""Values in a form that two runs, and two targets, have in common: variable parts are replaced."""

from __future__ import annotations

import re
from typing import Any

GROUPS = re.compile(r"resource\.(k8s\.io|sluice\.dev)")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
SCHEME = re.compile(r'in scheme "[^"]*"')
"""kube-apiserver names the place in its sources where it made the registry of its kinds."""
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Normaliser:
    """The normal form of one test. uids and resourceVersions are numbered as they appear, so that equal ones stay equal."""

    def __init__(self, mine: str) -> None:
        self._mine = mine
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def value(self, value: Any) -> Any:
        """Any JSON: the group is GROUP, what the test has for itself is MINE, times are TIME."""
        if isinstance(value, dict):
            return {self._text(name): self._member(name, member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _member(self, name: str, value: Any) -> Any:
        if name == "resourceVersion" and isinstance(value, str):
            return self._versions.setdefault(value, f"VERSION-{len(self._versions) + 1}")
        return self.value(value)

    def _text(self, text: str) -> str:
        text = GROUPS.sub("GROUP", text).replace(self._mine, "MINE")
        text = UID.sub(lambda found: self._uids.setdefault(found[0], f"UID-{len(self._uids) + 1}"), text)
        return TIME.sub("TIME", SCHEME.sub('in scheme "SCHEME"', text))
