"""LIST: which state is answered, in which order, in which chunks, and to what a continue token can lead."""

from __future__ import annotations

import base64
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.promises.api.client import (
    SECONDS,
    Client,
    Object,
    claim,
    device_class,
    names,
    opened,
    resource_slice,
    token,
    version,
)
from tests.promises.api.target import Target

LIST_TOO_OLD = "The resourceVersion for the provided list is too old."
TOKEN_TOO_OLD = "The provided continue parameter is too old to display a consistent list result. "
BAD_TOKEN = "invalid continue token: continue key is not valid: "
FUTURE = "9000000000000000000"


@pytest.fixture
def then(api: Client, mine: str) -> int:
    """The version at which a, b and c were there as they were made; b has changed and d has come since."""
    for name in "abc":
        last = api.create(api.claims(mine), claim(name))
    api.patch(f"{api.claims(mine)}/b", {"metadata": {"labels": {"changed": "yes"}}})
    api.create(api.claims(mine), claim("d"))
    return version(last)


def walk(api: Client, path: str, limit: int, **query: Any) -> Iterator[Object]:
    """The chunks of a list."""
    page = api.get(path, limit=limit, **query)
    yield page
    query.pop("resourceVersion", None)
    query.pop("resourceVersionMatch", None)
    while further := page["metadata"].get("continue"):
        page = api.get(path, limit=limit, continue_=further, **query)
        yield page


# States


# Changes of `then`, step by step: the names, and whether b has changed.
HISTORY = [("", False), ("a", False), ("ab", False), ("abc", False), ("abc", True), ("abcd", True)]
THEN, NOW = 3, 5


def state(listed: Object, *, limited: bool) -> tuple[str, bool]:
    """State of a list, or of its first chunk of two."""
    items, metadata = listed["items"], listed["metadata"]
    found = "".join(names(listed))
    changed = any("changed" in item["metadata"].get("labels", {}) for item in items)
    if limited:
        assert opened(metadata["continue"]) == {"v": "meta.k8s.io/v1", "rv": version(listed), "start": "/b\0"}
        return found + "cd"[: metadata["remainingItemCount"]], changed
    assert not {"continue", "remainingItemCount"} & metadata.keys()
    return found, changed


@pytest.mark.parametrize(
    ("stated", "match", "limit", "step"),
    [
        (None, None, None, NOW),
        (None, None, 2, NOW),
        ("N", None, 2, THEN),
        ("N", "Exact", None, THEN),
        ("N", "Exact", 2, THEN),
    ],
)
def test_version_match_and_limit_say_which_state_is_listed(
    api: Client, mine: str, then: int, stated: str | None, match: str | None, limit: int | None, step: int
) -> None:
    stated = str(then) if stated == "N" else stated

    listed = api.get(api.claims(mine), resourceVersion=stated, resourceVersionMatch=match, limit=limit)

    assert state(listed, limited=limit is not None) == HISTORY[step]
    assert (version(listed) == then) is (step == THEN)


@pytest.mark.parametrize(
    ("stated", "match", "limit", "limited"),
    [
        ("0", None, None, False),
        ("0", None, 2, False),
        ("0", "NotOlderThan", 2, False),
        ("0", "NotOlderThan", None, False),
        ("N", None, None, False),
        ("N", "NotOlderThan", None, False),
        ("N", "NotOlderThan", 2, True),
    ],
)
def test_state_not_older_than_a_version_is_that_one_or_any_later_one(
    api: Client, mine: str, then: int, stated: str, match: str | None, limit: int | None, limited: bool
) -> None:
    """Upstream's cache may not have seen the last change yet."""
    possible = HISTORY if stated == "0" else HISTORY[THEN:]
    stated = str(then) if stated == "N" else stated
    end = time.monotonic() + SECONDS
    while True:
        listed = api.get(api.claims(mine), resourceVersion=stated, resourceVersionMatch=match, limit=limit)

        found = state(listed, limited=limited)
        assert found in possible
        assert version(listed) >= int(stated)
        if found == HISTORY[NOW]:
            return
        assert time.monotonic() < end, "the newest state is never listed"


def test_every_version_that_was_answered_can_be_listed_again(api: Client, mine: str) -> None:
    states: list[Object] = []
    for step in range(6):
        api.create(api.claims(mine), claim(f"c{step}"))
        if step % 2:
            api.delete(f"{api.claims(mine)}/c{step - 1}")
        states.append(api.get(api.claims(mine)))

    for state in states:
        assert api.get(api.claims(mine), resourceVersion=version(state), resourceVersionMatch="Exact") == state


def test_past_version_is_410_and_a_future_one_504_after_three_seconds(target: Target, mine: str) -> None:
    def refused(query: dict[str, Any]) -> tuple[Any, float]:
        client, begin = Client(target), time.monotonic()
        try:
            path = f"{client.classes}/x" if query.pop("one", False) else client.classes
            return client.refusal("GET", path, **query), time.monotonic() - begin
        finally:
            client.close()

    future: list[dict[str, Any]] = [
        {"resourceVersion": FUTURE},
        {"resourceVersion": FUTURE, "resourceVersionMatch": "NotOlderThan", "limit": 1},
        {"resourceVersion": FUTURE, "resourceVersionMatch": "Exact"},
        {"resourceVersion": FUTURE, "limit": 1},
        {"resourceVersion": FUTURE, "fieldSelector": "metadata.name=x"},
        {"continue_": token(int(FUTURE), "/x")},
        {"resourceVersion": FUTURE, "one": True},
    ]
    past: list[dict[str, Any]] = [
        {"resourceVersion": "1", "resourceVersionMatch": "Exact"},
        {"resourceVersion": "1", "limit": 1},
        {"resourceVersion": "1", "resourceVersionMatch": "Exact", "fieldSelector": "metadata.name=x"},
    ]

    with ThreadPoolExecutor(len(future)) as pool:
        answers = list(pool.map(refused, future))

    for refusal, seconds in answers:
        assert (refusal.code, refusal.reason) == (504, "Timeout")
        assert refusal.message.startswith(f"Timeout: Too large resource version: {FUTURE}, current: ")
        assert refusal.details["causes"] == [
            {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        ]
        assert refusal.reply.headers["Retry-After"] == "1"
        assert seconds > 2.9
    for query in past:
        assert refused(query)[0] == (410, "Expired", LIST_TOO_OLD)


def test_a_list_without_a_version_misses_nothing_that_was_acknowledged(target: Target, mine: str) -> None:
    def write_and_list(name: str) -> bool:
        client = Client(target)
        try:
            for i in range(8):
                client.create(client.claims(mine), claim(f"{name}-{i}"))
                if f"{name}-{i}" not in names(client.get(client.claims(mine))):
                    return False
            return True
        finally:
            client.close()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(write_and_list, "abcd"))


def test_unrelated_writes_advance_the_version_of_an_empty_list(api: Client, mine: str) -> None:
    before = api.get(api.claims(mine))
    made = api.create(api.claims(api.namespace(f"{mine}-other")), claim("one"))

    after = api.get(api.claims(mine))

    assert before["items"] == after["items"] == []
    assert version(before) < version(made) <= version(after)


# Order and chunks


def test_objects_come_in_the_order_of_namespace_slash_name(api: Client, mine: str) -> None:
    namespaces = [mine, api.namespace(f"{mine}-x"), api.namespace(f"{mine}0")]
    for namespace, name in itertools.product(namespaces, ["b", "a.b", "a-b", "a", "a0", "10", "9"]):
        api.create(api.claims(namespace), claim(name, labels={"test": mine}))

    listed = api.get(api.all_claims, labelSelector=f"test={mine}")
    chunks = list(walk(api, api.all_claims, 4, labelSelector=f"test={mine}"))

    keys = [f"{i['metadata']['namespace']}/{i['metadata']['name']}" for i in listed["items"]]
    assert keys == sorted(keys)
    assert len(keys) == 21
    assert [item for chunk in chunks for item in chunk["items"]] == listed["items"]


def test_a_walk_shows_one_snapshot_whatever_is_written_meanwhile(api: Client, mine: str) -> None:
    path = api.claims(mine)
    for i in range(40):
        api.create(path, claim(f"c{i:02}"))
    snapshot = api.get(path)

    pages = []
    for number, page in enumerate(walk(api, path, 7)):
        pages.append(page)
        api.create(path, claim(f"c{number * 7 + 3:02}-new"))
        api.delete(f"{path}/c{39 - number:02}")
        api.patch(f"{path}/c{number * 5:02}", {"metadata": {"labels": {"changed": "yes"}}})

    assert {version(page) for page in pages} == {version(snapshot)}
    assert [item for page in pages for item in page["items"]] == snapshot["items"]
    assert [page["metadata"].get("remainingItemCount") for page in pages] == [33, 26, 19, 12, 5, None]
    assert "continue" not in pages[-1]["metadata"]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 1000, -1, 0, 9223372036854775807])
def test_a_limit_that_reaches_the_end_gives_no_token(api: Client, mine: str, limit: int) -> None:
    for name in "abcd":
        api.create(api.claims(mine), claim(name))

    pages = list(walk(api, api.claims(mine), limit))

    assert [name for page in pages for name in names(page)] == list("abcd")
    assert len(pages) == (-(-4 // limit) if limit > 0 else 1)


def test_chunks_of_a_selection_are_full_and_count_nothing(api: Client, mine: str) -> None:
    for i in range(9):
        api.create(api.claims(mine), claim(f"c{i}", labels={"even": str(i % 2 == 0)}))

    for query in ({"labelSelector": "even=True"}, {"labelSelector": "even=True", "fieldSelector": "metadata.name!=c3"}):
        pages = list(walk(api, api.claims(mine), 2, **query))
        assert [names(page) for page in pages] == [["c0", "c2"], ["c4", "c6"], ["c8"]]
        assert not any("remainingItemCount" in page["metadata"] for page in pages)


def test_the_last_chunk_of_a_selection_may_be_empty(api: Client, mine: str) -> None:
    for name in "abc":
        api.create(api.claims(mine), claim(name, labels={"x": name}))

    pages = list(walk(api, api.claims(mine), 2, labelSelector="x in (a,b)"))

    assert [names(page) for page in pages] == [["a", "b"], []]


def test_a_chunk_without_a_limit_is_all_the_rest(api: Client, mine: str, then: int) -> None:
    first = api.get(api.claims(mine), limit=1, resourceVersion=then)
    onward = first["metadata"]["continue"]

    rest = api.get(api.claims(mine), continue_=onward)
    assert (names(rest), version(rest)) == (["b", "c"], then)
    assert names(api.get(api.claims(mine), continue_=onward, resourceVersion="0", limit=1)) == ["b", "c"]
    assert names(api.get(api.claims(mine), continue_=onward, limit=1)) == ["b"]


# Tokens


def test_token_of_a_forgotten_snapshot_gets_410_and_an_inconsistent_token(api: Client, mine: str, then: int) -> None:
    refusal = api.refusal("GET", api.claims(mine), continue_=token(1, "/b\0"), limit=1)

    assert (refusal.code, refusal.reason, refusal.message[: len(TOKEN_TOO_OLD)]) == (410, "Expired", TOKEN_TOO_OLD)
    onward = refusal.metadata["continue"]
    inconsistent = opened(onward)
    assert (inconsistent["rv"], inconsistent["start"].lstrip("/")) == (-1, "b\0")
    page = api.get(api.claims(mine), continue_=onward, limit=1)
    assert (names(page), version(page) > then) == (["c"], True)
    assert opened(page["metadata"]["continue"]) == {"v": "meta.k8s.io/v1", "rv": version(page), "start": "/c\0"}
    assert page["metadata"]["remainingItemCount"] == 1


def test_a_token_is_bound_to_nothing_but_the_scope_of_its_request(api: Client, mine: str) -> None:
    other = api.namespace(f"{mine}-b")
    for namespace, name in itertools.product((mine, other), "abc"):
        api.create(api.claims(namespace), claim(name))
    now = version(api.get(api.claims(mine)))

    def listed(start: str, path: str = api.claims(mine), **more: Any) -> list[str]:
        items = api.get(path, continue_=token(now, start, **more), labelSelector="!none")["items"]
        assert {item["metadata"]["namespace"] for item in items} <= {mine} or path == api.all_claims
        return [item["metadata"]["name"] for item in items]

    assert listed("/b\0") == listed("b\0") == listed("/b\0", surplus=[1]) == ["c"]
    assert listed("/b") == ["b", "c"]
    assert listed(f"/{other}/a") == [], "a token of all namespaces, in one"
    assert listed("/a\0", resource="x") == ["b", "c"]
    everything = [f"{i['metadata']['namespace']}/{i['metadata']['name']}" for i in api.get(api.all_claims)["items"]]
    behind = [key for key in everything if key > f"{other}/a"]
    assert listed(f"/{other}/a\0", api.all_claims) == [key.rpartition("/")[2] for key in behind]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ab!c", "illegal base64 data at input byte 2"),
        ("abcde", "illegal base64 data at input byte 4"),
        ("a+/b", "illegal base64 data at input byte 1"),
        ("YWJj=", "illegal base64 data at input byte 4"),
        ("YWJj", "invalid character 'a' looking for beginning of value"),
        (token(1, "/x", v="v2"), "server does not recognize this encoded version v2"),
        (token(0, "/x"), "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        (token(1, ""), "encoded start key empty (version meta.k8s.io/v1)"),
        (token(1, "/../x"), "/../x"),
        (token(1, "/a//b"), "/a//b"),
        (token(1, "/a/"), "/a/"),
        (token(1, "/a/./b"), "/a/./b"),
        (token("1", "/x"), "json: cannot unmarshal string into Go struct field continueToken.rv of type int64"),
        (token(1.5, "/x"), "json: cannot unmarshal number 1.5 into Go struct field continueToken.rv of type int64"),
        (token(1 << 63, "/x"), "json: cannot unmarshal number 9223372036854775808 into Go struct field"),
        (
            base64.urlsafe_b64encode(b'{"rv":' + b"9" * 6000 + b"}").decode().rstrip("="),
            "json: cannot unmarshal number",
        ),
        (base64.urlsafe_b64encode(b'{"rv":' + b"9" * 6000).decode().rstrip("="), "unexpected end of JSON input"),
        (token(1, 7), "json: cannot unmarshal number into Go struct field continueToken.start of type string"),
        ("W10", "json: cannot unmarshal array into Go value of type storage.continueToken"),
        (base64.urlsafe_b64encode(b"[" * 20_001).decode().rstrip("="), "exceeded max depth"),
    ],
)
def test_unissued_token_is_400_with_upstreams_message(api: Client, text: str, message: str) -> None:
    refusal = api.refusal("GET", api.classes, continue_=text)

    assert (refusal.code, refusal.reason) == (400, "BadRequest")
    assert refusal.message.startswith(BAD_TOKEN)
    assert message in refusal.message


@pytest.mark.parametrize("start", ["/\ud800", "/名前", "/a\0b", "/\udfff/x", "/" + "x" * 5000])
def test_a_strange_start_key_is_only_a_place_in_the_order(api: Client, mine: str, start: str) -> None:
    made = api.create(api.claims(mine), claim("one"))

    for path in (api.claims(mine), api.all_claims):
        assert api.ask("GET", path, continue_=token(version(made), start), limit=1).status == 200
        assert api.refusal("GET", path, continue_=token(1, start)).code == 410


@pytest.mark.parametrize("stated", ["5", "abc", "-1", "00"])
def test_a_token_and_a_version_exclude_each_other(api: Client, stated: str) -> None:
    refusal = api.refusal("GET", api.classes, continue_=token(5, "/x"), resourceVersion=stated)

    assert refusal == (400, "BadRequest", "specifying resource version is not allowed when using continue")


def test_only_zero_itself_is_the_version_that_makes_a_list_whole(api: Client, mine: str) -> None:
    for name in ("a", "b"):
        api.create(api.claims(mine), claim(name))

    assert names(api.get(api.claims(mine), limit=1, resourceVersion="00")) == ["a"]
    assert names(api.get(api.claims(mine), limit=1, resourceVersion="0")) == ["a", "b"]


@pytest.mark.parametrize("segment", [".", "..", "%2E%2E"])
def test_a_namespace_that_leads_out_of_the_collection_is_no_key(api: Client, segment: str) -> None:
    key = segment.replace("%2E", ".")
    assert api.refusal("GET", api.claims(segment)) == (500, "", f'invalid key: "/resourceclaims/{key}"')
    assert api.refusal("DELETE", api.claims(segment)) == (500, "", f'invalid key: "/resourceclaims/{key}"')


# Selections


def test_a_list_of_one_name_is_a_list(api: Client, mine: str, then: int) -> None:
    one = {"fieldSelector": "metadata.name=b"}

    assert names(api.get(api.claims(mine), **one)) == ["b"]
    assert names(api.get(api.claims(mine), fieldSelector="metadata.name=none")) == []
    assert names(api.get(api.claims(mine), **one, labelSelector="changed=yes")) == ["b"]
    assert names(api.get(api.claims(mine), **one, labelSelector="!changed")) == []
    limited = api.get(api.claims(mine), **one, limit=1)
    assert (names(limited), limited["metadata"].keys()) == (["b"], {"resourceVersion"})
    past = api.get(api.claims(mine), **one, resourceVersion=then, resourceVersionMatch="Exact")
    assert "labels" not in past["items"][0]["metadata"]
    assert names(api.get(api.claims(mine), **one, continue_=token(then, "/a"))) == ["b"]
    assert names(api.get(api.claims(mine), **one, continue_=token(then, "/b\0"))) == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("x", "abc"),
        ("!x", "d"),
        ("x=1", "a"),
        ("x==1", "a"),
        ("x!=1", "bcd"),
        ("x in (1,2)", "ab"),
        ("x notin (1,2)", "cd"),
        ("x>1", "bc"),
        ("x<3,x>1", "b"),
        ("x=1,x=2", ""),
        ("x,y", "b"),
        ("x in ()", ""),
        (" x  in ( 1 , 2 ) , !y", "a"),
        ("example.com/k=v", "d"),
        ("", "abcd"),
    ],
)
def test_labels_select(api: Client, mine: str, selector: str, expected: str) -> None:
    every = {"a": {"x": "1"}, "b": {"x": "2", "y": ""}, "c": {"x": "10"}, "d": {"example.com/k": "v"}}
    for name, labels in every.items():
        api.create(api.claims(mine), claim(name, labels=labels))

    assert names(api.get(api.claims(mine), labelSelector=selector)) == list(expected)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=a", "a"),
        ("metadata.name!=a", "b"),
        ("metadata.name=a,metadata.name=b", ""),
        ("metadata.name=a,metadata.name!=a", ""),
        ("metadata.name!=a,metadata.name!=b", ""),
        ("metadata.namespace=NS", "ab"),
        ("metadata.namespace!=NS", ""),
        ("metadata.namespace=other", ""),
        ("metadata.name=a,metadata.namespace=NS", "a"),
        ("metadata.name=..", ""),
        ("metadata.name=a/b", ""),
        ("metadata.name=%", ""),
        ("metadata.name=名前", ""),
        ("metadata.name=", ""),
        (",,", "ab"),
    ],
)
def test_fields_select(api: Client, mine: str, selector: str, expected: str) -> None:
    for name in "ab":
        api.create(api.claims(mine), claim(name, labels={"test": mine}))
    selector = selector.replace("NS", mine)

    assert names(api.get(api.claims(mine), fieldSelector=selector)) == list(expected)
    listed = api.get(api.all_claims, fieldSelector=selector, labelSelector=f"test={mine}")
    assert names(listed) == list(expected)


def test_a_namespace_named_by_a_field_narrows_a_list_of_all(api: Client, mine: str) -> None:
    for name in "abc":
        api.create(api.claims(mine), claim(name))

    pages = list(walk(api, api.all_claims, 2, fieldSelector=f"metadata.namespace={mine}"))

    assert [names(page) for page in pages] == [["a", "b"], ["c"]]
    assert opened(pages[0]["metadata"]["continue"])["start"] == "/b\0"


def test_a_kind_may_have_fields_of_its_own(api: Client, mine: str) -> None:
    for i in range(4):
        api.create(api.slices, resource_slice(f"{mine}-{i}", f"{mine}-n{i % 2}"))

    assert names(api.get(api.slices, fieldSelector=f"spec.nodeName={mine}-n1")) == [f"{mine}-1", f"{mine}-3"]
    both = f"spec.nodeName={mine}-n1,spec.driver!=gpu.example.com"
    assert names(api.get(api.slices, fieldSelector=both)) == []
    contradiction = f"spec.nodeName={mine}-n1,spec.nodeName={mine}-n0"
    assert names(api.get(api.slices, fieldSelector=contradiction)) == []
    text = f"field label not supported for {api.group}/v1, Kind=ResourceSlice: metadata.namespace"
    assert api.refusal("GET", api.slices, fieldSelector="metadata.namespace=x") == (400, "BadRequest", text)
    known = 'only "metadata.name", "metadata.namespace"'
    text = f'"spec.nodeName" is not a known field selector: {known}'
    assert api.refusal("GET", api.classes, fieldSelector="spec.nodeName=x") == (400, "BadRequest", text)


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        (
            {"resourceVersionMatch": "Exact"},
            422,
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            422,
            '"exact" is forbidden for resourceVersion "0"',
        ),
        ({"resourceVersionMatch": "What", "resourceVersion": "5"}, 422, 'Unsupported value: "What"'),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "5", "continue_": "x"}, 422, "forbidden when continue"),
        ({"sendInitialEvents": "false"}, 422, "sendInitialEvents is forbidden for list"),
        ({"limit": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ({"limit": ""}, 400, 'strconv.ParseInt: parsing "": invalid syntax'),
        ({"timeoutSeconds": "1.5"}, 400, 'strconv.ParseInt: parsing "1.5": invalid syntax'),
        ({"limit": "9223372036854775808"}, 400, "value out of range"),
        ({"labelSelector": "ä=b"}, 400, "unable to parse requirement"),
        ({"labelSelector": "a=b,"}, 400, "identifier after ','"),
        ({"fieldSelector": "a"}, 400, "invalid selector"),
        ({"resourceVersion": "abc"}, 400, 'invalid resource version: resourceVersion: Invalid value: "abc"'),
        ({"resourceVersion": "-5"}, 400, "invalid syntax"),
        ({"resourceVersion": "18446744073709551616"}, 400, "value out of range"),
    ],
)
def test_bad_options_are_refused(api: Client, query: dict[str, Any], code: int, text: str) -> None:
    refusal = api.refusal("GET", api.classes, **query)

    assert (refusal.code, text in refusal.message) == (code, True), refusal


def test_an_empty_list_has_items(api: Client, mine: str) -> None:
    reply = api.ask("GET", api.claims(mine))

    assert b'"items":[]' in reply.body
    assert reply.json.keys() == {"kind", "apiVersion", "metadata", "items"}


def test_items_carry_no_kind(api: Client, mine: str) -> None:
    made = api.create(api.classes, device_class(mine))

    (item,) = api.get(api.classes, fieldSelector=f"metadata.name={mine}")["items"]

    assert {**item, "kind": "DeviceClass", "apiVersion": f"{api.group}/v1"} == made
    assert not item.keys() & {"kind", "apiVersion"}
