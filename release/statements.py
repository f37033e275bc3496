"""Documents about a release: the bill of materials (CycloneDX 1.6), and the provenance (SLSA 1.0 as an in-toto statement, unsigned)."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import platform
import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from release import archives
from release.checkout import Release
from release.distributions import PREFIX, PRODUCT

LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
"""A package of a lock file: name and version."""
BUILD_TYPE = "https://sluice.dev/make-release/v1"
BUILDER = "https://sluice.dev/make-release/v1#unsigned-on-any-machine"
"""The statement is not signed. It says what the files were made of, and rebuilding them shows whether that is true."""


def bill(lock: str, engines: Iterable[str], release: Release) -> str:
    """Return the bill of materials: the product, its engines, and every library of the lock file."""
    product = _component(PRODUCT, release.version, kind=ComponentType.APPLICATION)
    own = [_component(f"{PREFIX}{engine}", release.version) for engine in engines]
    libraries = [_component(name, version) for name, version in LOCKED.findall(lock)]
    document = Bom(components=[*own, *libraries])
    document.metadata.component = product
    document.metadata.timestamp = datetime.fromtimestamp(release.built, UTC)
    document.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, f"{PRODUCT} {release.version} {release.commit}\n{lock}")
    document.register_dependency(product, [*own, *libraries])
    text: str = make_outputter(document, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    return text + "\n"


def _component(name: str, version: str, *, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    purl = PackageURL("pypi", None, name.lower().replace("_", "-"), version)
    return Component(name=name, version=version, type=kind, purl=purl, bom_ref=purl.to_string())


def provenance(folder: pathlib.Path, tree: pathlib.Path, release: Release) -> str:
    """Return the statement about all files of `folder`. `tree` has the lock files that the build used.

    It names no time but that of the commit: two builds of a release give one statement.
    """
    dependencies = [{"name": "source", "digest": {"gitCommit": release.commit}}]
    dependencies += [
        {"name": file.name, "digest": {"sha256": archives.digest(file)}}
        for file in sorted(tree.glob("requirements*.lock"))
    ]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": file.name, "digest": {"sha256": archives.digest(file)}} for file in sorted(folder.iterdir())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": release.version},
                "internalParameters": {"SOURCE_DATE_EPOCH": release.built},
                "resolvedDependencies": dependencies,
            },
            "runDetails": {
                "builder": {
                    "id": BUILDER,
                    "version": {
                        "python": platform.python_version(),
                        "hatchling": importlib.metadata.version("hatchling"),
                    },
                },
            },
        },
    }
    return json.dumps(statement, indent=2) + "\n"
