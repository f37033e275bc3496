"""Shards: lists, watches and deletions of the objects whose hash lies in a range; the gate ShardedListAndWatch is on."""

from __future__ import annotations

import pytest

from apiserver.apimachinery import shards
from apiserver.apimachinery.releases import V1_37, Release
from tests.e2e.controlplane.plane import until
from tests.promises.api.client import PARTIAL_LIST, TABLE, Client, Object, claim, names, opened, version
from tests.promises.api.watching import changes

LOWER = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
UPPER = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
MIDDLE = 1 << 63
NONSENSE = "invalid shard selector: unexpected expression kind 3; expected shardRange() call or || operator"


def is_lower(obj: Object) -> bool:
    return shards.hash_of(obj["metadata"]["uid"].encode()) < MIDDLE


@pytest.fixture
def objects(api: Client, mine: str) -> list[Object]:
    """Claims in the order of their names, at least two in either half."""
    made: list[Object] = []
    while not 2 <= sum(map(is_lower, made)) <= len(made) - 2:
        made.append(api.create(api.claims(mine), claim(f"c{len(made):03}")))
    return made


def lower(objects: list[Object]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects if is_lower(obj)]


def upper(objects: list[Object]) -> list[str]:
    return [obj["metadata"]["name"] for obj in objects if not is_lower(obj)]


def test_shards_part_a_list_and_say_which_part_it_is(api: Client, mine: str, objects: list[Object]) -> None:
    for selector, expected in ((LOWER, lower(objects)), (UPPER, upper(objects))):
        for query in ({}, {"resourceVersion": "0"}, {"labelSelector": "!none"}):
            listed = api.get(api.claims(mine), shardSelector=selector.replace(" ", ""), **query)
            assert names(listed) == expected
            assert listed["metadata"]["shardInfo"] == {"selector": selector}
    both = api.get(api.claims(mine), shardSelector=f"{UPPER}||({LOWER})")
    assert len(both["items"]) == len(objects)
    assert both["metadata"]["shardInfo"] == {"selector": f"{UPPER} || {LOWER}"}
    assert "shardInfo" not in api.get(api.claims(mine), shardSelector="")["metadata"]


def test_a_shard_of_namespaces_holds_them_whole(api: Client, mine: str, objects: list[Object]) -> None:
    hashed = shards.hash_of(mine.encode())
    inside = f"shardRange(object.metadata.namespace, '{shards.bound(hashed)}', '{shards.bound(hashed + 1)}')"
    outside = f"shardRange(object.metadata.namespace, '0x0000000000000000', '{shards.bound(hashed)}')"

    assert names(api.get(api.all_claims, shardSelector=inside)) == [obj["metadata"]["name"] for obj in objects]
    assert api.get(api.claims(mine), shardSelector=outside)["items"] == []


@pytest.mark.parametrize("accept", [TABLE, PARTIAL_LIST])
def test_other_forms_of_a_list_hold_the_shard_and_do_not_say_so(
    api: Client, mine: str, objects: list[Object], accept: str
) -> None:
    listed = api.ask("GET", api.claims(mine), headers={"Accept": accept}, shardSelector=UPPER).json

    assert len(listed.get("rows", listed.get("items"))) == len(upper(objects))
    assert listed["metadata"].keys() == {"resourceVersion"}


def test_a_list_in_protobuf_says_it_too(api: Client, mine: str, objects: list[Object]) -> None:
    listed = api.ask(
        "GET", api.claims(mine), headers={"Accept": "application/vnd.kubernetes.protobuf"}, shardSelector=LOWER
    )
    # shardInfo is number 5 of the list's metadata, and selector number 1 of it.
    selector = b"\n%c%b" % (len(LOWER), LOWER.encode())
    assert b"*%c%b" % (len(selector), selector) in listed.body


def test_a_list_of_a_shard_comes_in_chunks(api: Client, mine: str, objects: list[Object], release: Release) -> None:
    """COUNTS_SHARDS: since 1.37 they do not tell how many objects remain."""
    first = api.get(api.claims(mine), shardSelector=LOWER, limit=1)
    assert names(first) == lower(objects)[:1]
    assert first["metadata"].get("remainingItemCount") == (None if release >= V1_37 else len(objects) - 1)
    assert opened(first["metadata"]["continue"])["start"] == f"/{lower(objects)[0]}\0"
    rest = api.get(api.claims(mine), shardSelector=LOWER, continue_=first["metadata"]["continue"])
    assert names(rest) == lower(objects)[1:]
    assert rest["metadata"]["shardInfo"] == {"selector": LOWER}


def test_one_object_is_in_its_shard_only(api: Client, mine: str, objects: list[Object]) -> None:
    name = lower(objects)[0]
    for selector, expected in ((LOWER, [name]), (UPPER, [])):
        listed = api.get(api.claims(mine), fieldSelector=f"metadata.name={name}", shardSelector=selector)
        assert names(listed) == expected


def test_watch_of_a_shard_gets_no_other_events(api: Client, mine: str, objects: list[Object]) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with api.watch(api.claims(mine), shardSelector=LOWER, **query) as watch:
        initial, _ = watch.initial()
        for obj in objects:
            name = obj["metadata"]["name"]
            api.patch(f"{api.claims(mine)}/{name}", {"metadata": {"labels": {"a": "b"}}})
            api.delete(f"{api.claims(mine)}/{name}")
        told = [next_ for name in lower(objects) for next_ in (("MODIFIED", name), ("DELETED", name))]

        assert [obj["metadata"]["name"] for _, obj in initial] == lower(objects)
        assert [(kind, obj["metadata"]["name"]) for kind, obj in changes(watch, len(told))] == told


@pytest.mark.only("dev", reason="the metrics of the others are those of kube-apiserver")
def test_running_watches_of_shards_are_counted(api: Client, mine: str, objects: list[Object]) -> None:
    labels = f'{{group="{api.group}",resource="resourceclaims"}}'

    def measured(name: str) -> float:
        text = api.ask("GET", "/metrics").text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name}{labels}"))

    before = measured("apiserver_watch_filtered_events_total")
    with api.watch(api.claims(mine), shardSelector=LOWER, resourceVersion=version(objects[0]) - 1) as watch:
        watch.take(len(lower(objects)))
        until(lambda: measured("apiserver_watch_shards_total") == 1, "the watch is counted")
        filtered = len(upper(objects))
        until(lambda: measured("apiserver_watch_filtered_events_total") >= before + filtered, "events are counted")
    until(lambda: measured("apiserver_watch_shards_total") == 0, "no watch is counted")


def test_a_watch_goes_on_in_a_shard_from_a_version(api: Client, mine: str, objects: list[Object]) -> None:
    before = version(objects[0]) - 1
    with api.watch(api.claims(mine), shardSelector=UPPER, resourceVersion=before) as watch:
        seen = watch.take(len(upper(objects)))

    assert [(kind, obj["metadata"]["name"]) for kind, obj in seen] == [("ADDED", name) for name in upper(objects)]


def test_a_collection_is_deleted_within_a_shard(api: Client, mine: str, objects: list[Object]) -> None:
    tried = api.delete(api.claims(mine), shardSelector=UPPER, dryRun="All")
    gone = api.delete(api.claims(mine), shardSelector=UPPER)

    assert names(tried) == names(gone) == upper(objects)
    assert gone["metadata"]["shardInfo"] == {"selector": UPPER}
    assert names(api.get(api.claims(mine))) == lower(objects)


@pytest.mark.parametrize(
    "query", [{}, {"resourceVersion": "x"}, {"continue_": "x"}, {"watch": "1", "resourceVersion": "x"}]
)
def test_a_bad_shard_selector_is_reported_before_the_storage_is_asked(api: Client, mine: str, query: Object) -> None:
    assert api.refusal("GET", api.claims(mine), shardSelector="nonsense", **query) == (500, "", NONSENSE)


def test_a_bad_shard_selector_is_reported_after_the_other_options(api: Client, mine: str) -> None:
    path = api.claims(mine)
    assert api.refusal("GET", path, shardSelector="nonsense", limit="x").code == 400
    assert api.refusal("GET", path, shardSelector="nonsense", fieldSelector="a=b").code == 400
    assert api.refusal("GET", path, shardSelector="nonsense", resourceVersionMatch="x").code == 422
    assert api.refusal("DELETE", path, shardSelector="nonsense", propagationPolicy="x").code == 422
    assert api.refusal("DELETE", path, shardSelector="nonsense") == (500, "", NONSENSE)


def test_blank_shard_selector_selects_everything(api: Client, mine: str) -> None:
    text = "empty shard selector is not allowed; omit the parameter for unfiltered lists"
    assert api.refusal("GET", api.claims(mine), shardSelector=" ") == (500, "", f"invalid shard selector: {text}")


def test_a_long_shard_selector_is_read_as_a_short_one(api: Client, mine: str, objects: list[Object]) -> None:
    terms = " || ".join([LOWER] * 300)
    assert names(api.get(api.claims(mine), shardSelector=terms)) == lower(objects)
    said = api.refusal("GET", api.claims(mine), shardSelector=f"{terms} && a").message
    assert said == 'invalid shard selector: unsupported function "_&&_"; only shardRange() and || are allowed'


def test_one_object_is_read_whatever_the_shard_selector_says(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))
    assert api.get(f"{api.claims(mine)}/one", shardSelector="nonsense")["metadata"]["name"] == "one"
