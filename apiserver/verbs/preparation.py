"""Compile what the first write to a custom resource needs, in a thread: a large schema takes from a tenth of a second to seconds."""

from __future__ import annotations

import functools

from apiserver.apimachinery.releases import Release
from apiserver.fieldmanager import typedefs
from apiserver.kinds.served import Kinds
from apiserver.runtime import workers
from apiserver.schema.resource import Resource
from apiserver.verbs.context import Services


async def finish(services: Services, resource: Resource) -> None:
    """Return when everything that a write to the resource needs is compiled. Writes that come meanwhile share the work."""
    custom, release = resource.custom, services.gates.release
    if custom is not None and not custom.ready(release):
        prepare = functools.partial(_prepare, services.kinds, resource, release)
        await workers.EXPRESSIONS.once((custom, release), prepare)


def _prepare(kinds: Kinds, resource: Resource, release: Release) -> None:
    assert resource.custom is not None
    for version in kinds:
        # The managers of an object may have written it in any version.
        if version.stored is resource.stored:
            typedefs.type_of(version)
    for each in {resource.custom, resource.stored.custom}:
        assert each is not None
        each.prepare(release)
