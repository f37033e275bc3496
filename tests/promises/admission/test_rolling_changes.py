"""While a configuration changes, each write is judged by the old one or by the new one: never by none, and never by the old one again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.controlplane.plane import until
from tests.fixtures.server import Reply
from tests.fixtures.steady import Steady
from tests.promises.admission.hooks import add, patch
from tests.promises.admission.rig import POLICIES, REGISTRATION, WEBHOOKS, Rig
from tests.promises.api.client import Client, claim

VERSIONS = 6
WRITERS, WRITES_PER_SECOND = 5, 50.0
AFTER = 10
"""Writes that are judged by each version before it is replaced."""


class Writers(Steady):
    """Create claims, each on a connection of its own, and remember which version judged each of them."""

    def __init__(self, rig: Rig, judged_by: Callable[[Reply], int]) -> None:
        super().__init__(self._write, clients=WRITERS, per_second=WRITES_PER_SECOND)
        self.rig = rig
        self.verdicts: list[list[int]] = [[] for _ in range(WRITERS)]
        self._judged_by = judged_by

    def judged(self, version: int) -> int:
        """How many writes this version has judged."""
        return sum(verdicts.count(version) for verdicts in self.verdicts)

    def _write(self, number: int, turns: Iterator[None]) -> None:
        verdicts = self.verdicts[number]
        with contextlib.closing(Client(self.rig.target)) as client:
            for _ in turns:
                reply = client.ask("POST", self.rig.claims, claim(f"c-{number}-{len(verdicts)}"))
                verdicts.append(self._judged_by(reply))


def _by_label(reply: Reply) -> int:
    """A write that no version has judged is a 0."""
    return int(reply.json["metadata"].get("labels", {}).get("version", 0)) if reply.status == 201 else 0


def _by_message(reply: Reply) -> int:
    return int(reply.json["message"].rpartition(": version ")[2]) if reply.status == 422 else 0


def _webhook(rig: Rig) -> tuple[Callable[[int], None], Callable[[Reply], int]]:
    """Marks what it sees with the version of its configuration."""

    def hook(version: int) -> dict[str, object]:
        return rig.hook(patch(add("/metadata/labels", {"version": str(version)})), name=f"v{version}")

    name = rig.webhooks("mutating", hook(1))
    path = f"{REGISTRATION}/{WEBHOOKS['mutating'][1]}/{name}"
    return lambda version: _change(rig, path, webhooks=[hook(version)]), _by_label


def _policy(rig: Rig) -> tuple[Callable[[int], None], Callable[[Reply], int]]:
    """Refuses whatever it sees in the words of its version."""

    def validations(version: int) -> list[dict[str, str]]:
        return [{"expression": "false", "message": f"version {version}"}]

    name = rig.policy("validating", {"validations": validations(1)})
    path = f"{REGISTRATION}/{POLICIES['validating'][1]}/{name}"

    def change(version: int) -> None:
        spec = rig.api.get(path)["spec"]
        _change(rig, path, spec={**spec, "validations": validations(version)})

    return change, _by_message


def _change(rig: Rig, path: str, **members: object) -> None:
    rig.api.put(path, {**rig.api.get(path), **members})


@pytest.mark.parametrize("configured", [_webhook, _policy], ids=["webhook", "policy"])
def test_each_write_is_judged_by_the_old_configuration_or_by_the_new_one(
    rig: Rig, configured: Callable[[Rig], tuple[Callable[[int], None], Callable[[Reply], int]]]
) -> None:
    change, judged_by = configured(rig)
    with Writers(rig, judged_by) as writers:
        for version in range(1, VERSIONS + 1):
            if version > 1:
                change(version)
            seen = f"version {version} has judged {AFTER} writes"
            until(lambda version=version: writers.judged(version) >= AFTER, seen, seconds=60)  # type: ignore[misc]

    assert all(verdicts == sorted(verdicts) for verdicts in writers.verdicts), writers.verdicts
    assert {verdict for verdicts in writers.verdicts for verdict in verdicts} == set(range(1, VERSIONS + 1))
