"""The primaries of a store with the resources that each holds, for one command of an administrator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from apiserver.config.store_address import Node
from apiserver.storage.functions import Commands
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Rejected
from apiserver.storage.primaries import cluster, sentinel


class Part(NamedTuple):
    """A primary, and some resources that it holds. `where` names the node of a cluster; it is empty otherwise."""

    where: str
    options: StoreOptions
    resources: list[str]

    @property
    def commands(self) -> dict[str, Commands]:
        return {resource: Commands(resource) for resource in self.resources}

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Let refusals that are raised inside name the node."""
        try:
            yield
        except Rejected as rejected:
            if not self.where:
                raise
            raise Rejected(f"{self.where}: {rejected}") from None

    def told(self, lines: Iterable[str]) -> list[str]:
        """Return lines that name the node."""
        return [f"{self.where}: {line}" if self.where else line for line in lines]


async def parts(options: StoreOptions, resources: Iterable[str]) -> list[Part]:
    """Return all primaries of a store: one, unless it is a cluster. A primary of a cluster may hold no resource. Raises Rejected."""
    found = cluster.of(options)
    if found is None:
        return [Part("", await sentinel.located(options), list(resources))]
    try:
        held: dict[Node, list[str]] = {node: [] for node in await found.primaries()}
        for resource in resources:
            held.setdefault(await found.owner(cluster.slot_of(resource)), []).append(resource)
        return [Part(str(node), found.options_of(node), names) for node, names in held.items()]
    finally:
        await found.close()
