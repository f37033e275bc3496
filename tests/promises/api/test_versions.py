"""resourceVersion: what uses one, and what two of them say about each other."""

from __future__ import annotations

import pytest

from tests.promises.api.client import Client, claim, device_class, version

OWN_COUNT = "upstream counts all resources of a cluster together, its own leases too"


def test_a_write_of_one_kind_moves_the_versions_of_all(api: Client, mine: str) -> None:
    before = version(api.get(api.classes))

    api.create(api.claims(mine), claim("one"))

    assert version(api.get(api.classes)) > before


@pytest.mark.only("dev", "aggregated", reason=OWN_COUNT)
def test_a_change_uses_one_version_and_nothing_else_uses_any(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    made = api.create(api.claims(mine), claim("one"))

    api.create(api.claims(mine), claim("two"), dryRun="All")
    api.patch(path, {"metadata": {"labels": {"a": "b"}}}, dryRun="All")
    api.delete(path, dryRun="All")
    api.patch(path, {})
    api.put(path, made)
    assert api.refusal("POST", api.claims(mine), claim("one")).code == 409
    assert api.refusal("POST", api.claims(mine), claim("Bad")).code == 422
    assert api.refusal("DELETE", path, uid="other").code == 409
    api.create(api.classes, device_class(mine))
    assert version(api.get(api.claims(mine))) == version(made)

    assert version(api.delete(path)) == version(made) + 1
    assert version(api.get(api.claims(mine))) == version(made) + 1


@pytest.mark.only("dev", "aggregated", reason="those are upstream's versions")
@pytest.mark.parametrize("foreign", [1, 100_000, 4_000_000_000])
def test_a_version_of_etcd_is_too_old_and_never_a_gap(api: Client, mine: str, foreign: int) -> None:
    with api.watch(api.classes, resourceVersion=foreign) as watch:
        ((kind, status),) = watch.rest()

    assert (kind, status["code"]) == ("ERROR", 410)
    assert api.refusal("GET", api.classes, resourceVersion=foreign, resourceVersionMatch="Exact").code == 410
