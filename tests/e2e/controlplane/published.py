"""`python -m tests.e2e.controlplane.published`: records what the chosen kube-apiserver publishes of its own `resource.k8s.io`, all versions
of it."""

from __future__ import annotations

import json
import pathlib
import tempfile
from typing import Any

import yaml

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import ControlPlane
from tests.fixtures import openapi
from tests.fixtures.openapi import GROUP

VERSIONS = ("v1", "v1beta1", "v1beta2")
FLAGS = [f"--runtime-config={','.join(f'{GROUP}/{version}=true' for version in VERSIONS)}"]
REPEATED = 80
"""From how many characters on a value that was written already is referred to."""


def documents(asking: Connection, *, versions: tuple[str, ...] = VERSIONS) -> dict[str, Any]:
    """The reduced documents as `openapi.recorded` has them."""
    keys = [f"apis/{GROUP}", *(f"apis/{GROUP}/{version}" for version in versions)]
    found = {f"v3/{key}": openapi.reduced(asking.ask("GET", f"/openapi/v3/{key}").json) for key in keys}
    whole = asking.ask("GET", "/openapi/v2").json
    return found | {"v2": openapi.reduced_v2(whole, versions)}


def _shared(value: Any, known: dict[str, Any]) -> Any:
    """The same value, in which equal long parts are one object, which YAML writes once."""
    if isinstance(value, dict):
        value = {name: _shared(member, known) for name, member in value.items()}
    elif isinstance(value, list):
        value = [_shared(item, known) for item in value]
    else:
        return value
    text = json.dumps(value, sort_keys=True)
    return known.setdefault(text, value) if len(text) >= REPEATED else value


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane(pathlib.Path(folder), flags=FLAGS) as plane,
        plane.connect() as admin,
    ):
        found = documents(admin)
    written = yaml.dump(_shared(found, {}), Dumper=yaml.CSafeDumper, width=140, default_flow_style=None)
    openapi.file_of(binaries.minor()).write_text(written)


if __name__ == "__main__":
    main()
