"""docs/backup.md, command by command: a store is backed up while it is served, restored for a drill, lost, and restored."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.controlplane.plane import until
from tests.fixtures.server import DevServer, dev_server
from tests.fixtures.valkey import Server, own_server, packed, reply

__all__ = ["own_server"]

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "backup.md").read_text()
COMMANDS = re.findall(r"^ *\$ (.*)$", PAGE, re.MULTILINE)
GROUP = "resource.sluice.dev"
SLICES = f"/apis/{GROUP}/v1/resourceslices"
CLAIMS = f"/apis/{GROUP}/v1/namespaces/default/resourceclaims"

pytestmark = pytest.mark.timeout(900)
"""A dozen commands, each a start of Python."""

Object = dict[str, Any]


class Operator:
    """The reader of the page, who runs its commands in their order."""

    def __init__(self, folder: pathlib.Path, store: DevStore, drill: Server) -> None:
        self.folder = folder
        self.environ = os.environ | {
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "ADMIN_REDIS_URL": store.url,
            "DRILL_REDIS_URL": drill.url,
        }
        self.left = list(COMMANDS)

    def run(self, part: str, *, code: int = 0) -> str:
        """Run the page's next command, which must contain `part`."""
        command = self.left.pop(0)
        assert part in command
        return self.again(command, code=code)

    def again(self, command: str, *, code: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


class DevStore:
    """The store of a `sluice dev`, as its administrator reaches it."""

    def __init__(self, data: pathlib.Path) -> None:
        self._socket = next((data / "store").glob("*.sock"))
        self._password = (data / "store" / "password").read_text().strip()
        self.url = f"unix://{quote(str(self._socket))}?username=default&password={quote(self._password)}"

    def lose(self) -> None:
        """Make the store as a new one."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket))
            with connection.makefile("rb") as replies:
                connection.sendall(packed("AUTH", self._password) + packed("FLUSHALL") + packed("FUNCTION", "FLUSH"))
                assert [reply(replies) for _ in range(3)] == [b"OK"] * 3


def resource_slice(name: str, driver: str = "gpu.example.com") -> Object:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": driver, "nodeName": name, "pool": pool, "devices": []}}


def claim(name: str) -> Object:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]
    return {"metadata": {"name": name, "labels": {"a": "b"}}, "spec": {"devices": {"requests": requests}}}


def stored(server: DevServer) -> dict[str, Object] | None:
    """All objects without their versions; None while the server does not answer."""
    found = {}
    for path in (SLICES, CLAIMS):
        reply = server.request("GET", path)
        if reply.status != 200:
            return None
        for item in json.loads(reply.body)["items"]:
            del item["metadata"]["resourceVersion"]
            found[f"{path}/{item['metadata']['name']}"] = item
    return found


def version(server: DevServer, path: str) -> int:
    return int(json.loads(server.request("GET", path).body)["metadata"]["resourceVersion"])


@contextlib.contextmanager
def watch(server: DevServer, resource_version: int) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=server.context(), timeout=120)
    connection.request("GET", f"{SLICES}?watch=1&resourceVersion={resource_version}")
    with contextlib.closing(connection):
        yield connection.getresponse()


def test_store_is_backed_up_lost_and_restored(tmp_path: pathlib.Path, own_server: Server) -> None:
    with dev_server(tmp_path) as server:
        for at in range(5):
            assert server.request("POST", SLICES, resource_slice(f"s{at}")).status == 201
        assert server.request("POST", CLAIMS, claim("c")).status == 201
        store = DevStore(server.data)
        page = Operator(tmp_path, store, own_server)
        before = stored(server)
        assert before is not None
        assert before[f"{CLAIMS}/c"]["metadata"]["managedFields"]

        # Back up.
        assert f"{GROUP}/resourceslices: 5 objects at resourceVersion" in page.run("sluice store backup")
        assert "the backup is whole" in page.run("sluice store verify")
        page.run("| gzip -t")
        assert "exists already" in page.again(COMMANDS[0], code=1)

        # Drill.
        page.run("store init")
        assert f"{GROUP}/resourceslices: 5 objects to restore" in page.run("--dry-run")
        assert f"{GROUP}/resourceslices: 5 objects restored" in page.run("store restore")
        page.run("store check")
        assert "5 objects" in page.run("store info")
        for part in ("drill.backup", "> expected", "> restored", "cmp"):
            page.run(part)
        assert len((tmp_path / "expected").read_text().splitlines()) >= 6

        # Loss, while the server runs and clients watch.
        held = version(server, f"{SLICES}/s0")
        changed = resource_slice("s0") | {"metadata": {"name": "s0", "labels": {"l": "l"}}}
        assert server.request("PUT", f"{SLICES}/s0", changed).status == 200
        assert server.request("POST", SLICES, resource_slice("lost")).status == 201
        lost = version(server, SLICES)
        with watch(server, lost) as open_watch:
            store.lose()
            page.run("store init")
            assert f"{GROUP}/resourceslices: 5 objects restored" in page.run("store restore")
            assert page.left == []
            events = [json.loads(line) for line in open_watch.read().splitlines()]
        assert [event for event in events if event["type"] != "ERROR"] == []
        until(lambda: stored(server) == before, "the restored objects are served")
        present = version(server, SLICES)
        assert present > version(server, f"{SLICES}/s0") > lost
        for old in (held, lost):
            with watch(server, old) as refused:
                answer = json.loads(refused.read())
            assert answer.get("code", answer.get("object", {}).get("code")) == 410
        stale = resource_slice("s0") | {"metadata": {"name": "s0", "resourceVersion": str(held)}}
        assert server.request("PUT", f"{SLICES}/s0", stale).status == 409
        assert server.request("POST", SLICES, resource_slice("later")).status == 201
        assert version(server, f"{SLICES}/later") > present
