"""A store as managed services offer it, without the administrator's commands: everything works, and what cannot be asked is named."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator

import pytest

from apiserver.runtime.progress import Silent
from apiserver.storage import preflight
from apiserver.storage.backup import snapshot
from apiserver.storage.backup.restoring import Restore
from apiserver.storage.operations import administration
from apiserver.storage.store import Write
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.valkey import Open, Server, forget, patient, value

FORBIDDEN = (
    "CONFIG",
    "DEBUG",
    "ACL",
    "BGREWRITEAOF",
    "BGSAVE",
    "SAVE",
    "MIGRATE",
    "MODULE",
    "REPLICAOF",
    "SLAVEOF",
    "SHUTDOWN",
)
"""The commands that MemoryDB and ElastiCache refuse; ACL is more than they refuse."""


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("v")
    (folder / "service.conf").write_text("".join(f'rename-command {name} ""\n' for name in FORBIDDEN))
    server = Server(folder, include=str(folder / "service.conf"))
    server.start()
    for name in FORBIDDEN:
        with pytest.raises(RuntimeError, match="unknown command"):
            server(name)
    yield server
    server.stop()


async def test_everything_works_without_commands_of_administrators(
    service: Server, resource: str, opening: Open
) -> None:
    options = patient(service.url)
    unknown = [
        "warning: may not ask: appendfsync and no-appendfsync-on-rewrite unknown",
        "warning: may not ask: the rights of the user sluice unknown",
    ]
    assert (await administration.init(options, [resource]))[1:] == [f"{resource}: created", unknown[0]]
    assert await administration.check(options, [resource]) == unknown
    store = (await opening(service, resource))[resource]
    made = await store.commit(Write(Key("a"), value("a"), Revision(0), "uid"), dry_run=False)
    forget(service)  # another server takes over, as after a failover
    later = (await opening(service, resource))[resource]
    await later.commit(Write(Key("a"), value("a", "again"), made.revision, "uid"), dry_run=False)
    assert len(await administration.info(options, [resource])) == 2
    out = io.BytesIO()
    await snapshot.backup(options, out, sluice="test", only=(), progress=Silent())
    service("FLUSHALL")
    await Restore(options, out, (), Silent()).run(dry_run=False)
    assert await administration.check(options, [resource]) == unknown


def test_setting_that_the_answer_leaves_out_is_unknown() -> None:
    assert preflight.durability_warnings([]) == ["may not ask: appendfsync and no-appendfsync-on-rewrite unknown"]
    [warning] = preflight.durability_warnings([b"appendfsync", b"always"])
    assert warning == "may not ask: no-appendfsync-on-rewrite unknown"


async def test_store_that_reports_no_append_only_file_is_accepted_if_the_operator_vouches_for_it(
    own_server: Server, resource: str
) -> None:
    """MemoryDB keeps its log elsewhere, and reports `aof_enabled:0`."""
    options = patient(own_server.url)
    await administration.init(options, [resource])
    own_server("CONFIG", "SET", "appendonly", "no")
    [refusal] = await administration.check(options, [resource])
    assert "MemoryDB" in refusal
    assert "give --allow-volatile" in refusal
    assert await administration.check(dataclasses.replace(options, allow_volatile=True), [resource]) == []
