"""JavaScript clients (Headlamp, Grafana) read a resourceVersion as a double, and drop what does not seem newer."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.promises.api.client import TABLE, Client, claim, opened, version

NODE = """
const versions = JSON.parse(require("fs").readFileSync(0));
const numbers = versions.map(Number);
console.log(JSON.stringify({
  exact: versions.every((text, at) => String(numbers[at]) === text && BigInt(text) === BigInt(numbers[at])),
  rising: numbers.every((number, at) => at === 0 || number > numbers[at - 1]),
  integers: versions.every(text => Number.isSafeInteger(parseInt(text, 10))),
}));
"""


@pytest.fixture
def met(api: Client, mine: str) -> list[str]:
    """The versions that a client meets, in the order of the changes: of answers, events, bookmarks, lists and continue tokens."""
    where = api.claims(mine)
    found = [api.create(where, claim(name))["metadata"]["resourceVersion"] for name in "ab"]
    with api.watch(where, resourceVersion=found[-1], allowWatchBookmarks="true") as watch:
        for number in range(20):
            changed = api.patch(f"{where}/a", {"metadata": {"labels": {"n": str(number)}}})
            found.append(changed["metadata"]["resourceVersion"])
        events = watch.up_to(int(found[-1]))
    told = [obj["metadata"]["resourceVersion"] for kind, obj in events if kind != "BOOKMARK"]
    assert told == found[2:]
    deleted = api.delete(f"{where}/b")
    if "resourceVersion" in deleted["metadata"]:
        found.append(deleted["metadata"]["resourceVersion"])
    found.append(api.create(where, claim("c"))["metadata"]["resourceVersion"])
    return found


def test_order_of_versions_as_doubles_is_their_order(met: list[str]) -> None:
    numbers = [float(text) for text in met]
    assert [str(int(number)) for number in numbers] == met
    assert numbers == sorted(set(numbers))


def test_versions_of_lists_and_tokens_are_exact_as_doubles(api: Client, mine: str, met: list[str]) -> None:
    last = int(met[-1])
    page = api.get(api.claims(mine), limit=1)
    assert float(opened(page["metadata"]["continue"])["rv"]) == opened(page["metadata"]["continue"])["rv"]
    rest = api.get(api.claims(mine), limit=1, **{"continue": page["metadata"]["continue"]})
    table = api.ask("GET", api.claims(mine), headers={"Accept": TABLE}).json
    for listed in (page, rest, api.get(api.claims(mine)), table):
        assert int(float(listed["metadata"]["resourceVersion"])) == version(listed) >= last


def test_node_reads_versions_exactly_and_in_order(met: list[str]) -> None:
    if shutil.which("node") is None:
        pytest.skip("needs node")
    ran = subprocess.run(["node", "-e", NODE], input=json.dumps(met), check=True, capture_output=True, text=True)
    assert json.loads(ran.stdout) == {"exact": True, "rising": True, "integers": True}
