"""Each text of `sluice store check` leads to its code."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from apiserver.doctor.checks.stores import TEXTS, classified
from apiserver.doctor.findings import State
from apiserver.storage import preflight
from apiserver.storage.functions import Head, Lost
from apiserver.storage.options import StoreOptions
from apiserver.storage.preflight import Server
from apiserver.watchcache.entry import Revision

OPTIONS = StoreOptions(url="redis://store")
FIT = Server(
    run_id="r", role="master", name="Valkey", version=(9, 1), policy="noeviction", aof=True, aof_broken=False, cluster=False,
    used_memory=1, max_memory=100, loading=False,
)  # fmt: skip


def texts() -> Iterator[tuple[str, str]]:
    """Texts as the code of the store writes them, with the code of each."""

    def of(code: str, **changed: object) -> Iterator[tuple[str, str]]:
        server = dataclasses.replace(FIT, **changed)  # type: ignore[arg-type]
        misnamed = [server.misnamed(OPTIONS)] if server.misnamed(OPTIONS) else []
        yield from ((text, code) for text in [*server.refusals(OPTIONS), *server.warnings(), *misnamed])

    yield from of("store-loading", loading=True)
    yield from of("store-replica", role="slave")
    yield from of("store-eviction", policy="allkeys-lru")
    yield from of("store-volatile", aof=False)
    yield from of("store-version", version=(7, 0))
    yield from of("store-memory", used_memory=95)
    yield from of("store-address", sentinel=True)
    yield from of("store-address", cluster=True)
    yield preflight.NO_CLUSTER, "store-address"
    for listing, code in (([], "store-library-missing"), ([[b"library_code", b"other"]], "store-library-differs")):
        yield from ((text, code) for text in preflight.library_refusals(listing))
    yield from ((text, "store-resource-missing") for text in preflight.head_refusals("a/b", Lost("epoch")))
    yield from ((text, "store-clock") for text in preflight.clock_refusals(7.0))
    yield preflight.unknown(["appendfsync"]), "store-unknown"
    for settings in ([b"appendfsync", b"no"], [b"no-appendfsync-on-rewrite", b"yes"]):
        full = [b"appendfsync", b"always", b"no-appendfsync-on-rewrite", b"no", *settings]
        yield from ((text, "store-fsync") for text in preflight.durability_warnings(full))
    coverage = [b"cluster-require-full-coverage", b"yes"]
    yield from ((text, "store-coverage") for text in preflight.coverage_warnings(coverage))


@pytest.mark.parametrize(("text", "code"), list(texts()))
def test_each_text_of_the_check_leads_to_its_code(text: str, code: str) -> None:
    assert classified(text, "somewhere").code == code


def test_store_of_another_schema_leads_to_its_code() -> None:
    head = Head(
        epoch=1, last=Revision(0), floor=Revision(0), own=True, objects=0, size=0, now_ms=0, fenced=None, marker="", schema="99"
    )  # fmt: skip
    [text] = preflight.head_refusals("a/b", head)
    assert classified(text, "somewhere").code == "store-schema"


def test_refusal_as_a_warning_is_a_warning_and_an_unknown_text_keeps_its_words() -> None:
    assert classified("this cannot be", "x", warning=True).state is State.WARN
    assert classified("this cannot be", "x").state is State.FAIL
    assert classified("this cannot be", "x").text == "this cannot be"


def test_commands_name_the_namespace() -> None:
    assert "-n somewhere " in classified("no connection to the store: refused", "somewhere").do
    assert not [remedy for _, _, remedy in TEXTS if "{" in remedy.replace("{ns}", "").replace("{sl:*", "")]
