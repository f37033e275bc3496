"""sbom.py ROOT: what lies in the root of an image, as CycloneDX 1.6: Debian's packages by their status, Python's by their metadata.

Standard library alone: it runs while the image is built.
"""

from __future__ import annotations

import email.parser
import json
import pathlib
import sys
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

PROGRAM = "sluice-apiserver"


def document(root: pathlib.Path) -> dict[str, Any]:
    """The same root gives the same document."""
    libraries = list(_python(root))
    [program] = [item for item in libraries if item["name"] == PROGRAM]
    libraries.remove(program)
    components = sorted([*_debian(root), *libraries], key=lambda item: item["bom-ref"])
    known = json.dumps([program, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, known).urn,
        "version": 1,
        "metadata": {"component": {**program, "type": "application"}},
        "components": components,
        "dependencies": [
            {"ref": program["bom-ref"], "dependsOn": [item["bom-ref"] for item in components]},
            *({"ref": item["bom-ref"]} for item in components),
        ],
    }


def _debian(root: pathlib.Path) -> Iterator[dict[str, Any]]:
    release = dict(line.split("=", 1) for line in (root / "usr/lib/os-release").read_text().splitlines() if "=" in line)
    distribution = f"{release['ID']}-{release['VERSION_ID'].strip(chr(34))}"
    for file in sorted((root / "var/lib/dpkg/status.d").iterdir()):
        fields = email.parser.Parser().parsestr(file.read_text())
        name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
        purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}&distro={distribution}"
        yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _python(root: pathlib.Path) -> Iterator[dict[str, Any]]:
    for file in sorted(root.glob("opt/sluice/lib/python3*/site-packages/*.dist-info/METADATA")):
        fields = email.parser.Parser().parsestr(file.read_text(), headersonly=True)
        name, version = fields["Name"].lower().replace("_", "-").replace(".", "-"), fields["Version"]
        purl = f"pkg:pypi/{quote(name)}@{quote(version)}"
        found = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
        if expression := fields["License-Expression"]:
            found["licenses"] = [{"expression": expression}]
        yield found


if __name__ == "__main__":
    json.dump(document(pathlib.Path(sys.argv[1])), sys.stdout, indent=1)
