"""Gzip for watches that begin with a list: since 1.37, by the gate WatchListCompression."""

from __future__ import annotations

import gzip
import json

from apiserver.apimachinery.releases import V1_36, Release
from tests.promises.api.client import Client, claim

GZIP = {"Accept-Encoding": "gzip"}
LIST = {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "timeoutSeconds": "1"}


def test_watch_that_begins_with_a_list_is_compressed_since_1_37(api: Client, mine: str, release: Release) -> None:
    api.create(api.claims(mine), claim("one"))
    reply = api.ask("GET", api.claims(mine), headers=GZIP, allowWatchBookmarks="true", **LIST)
    if release is V1_36:
        assert reply.headers["Content-Encoding"] is None
        text = reply.body
    else:
        assert (reply.headers["Content-Encoding"], reply.headers["Vary"]) == ("gzip", "Accept-Encoding")
        text = gzip.decompress(reply.body)
    events = [json.loads(line) for line in text.splitlines()]
    assert [event["type"] for event in events[:2]] == ["ADDED", "BOOKMARK"]
    assert events[0]["object"]["metadata"]["name"] == "one"
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_watch_that_begins_with_no_list_is_not_compressed(api: Client, mine: str) -> None:
    version = api.get(api.claims(mine))["metadata"]["resourceVersion"]
    api.create(api.claims(mine), claim("one"))
    queries = (
        {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": "1"},
        LIST,
    )
    for query in queries:
        reply = api.ask("GET", api.claims(mine), headers=GZIP, **query)
        assert reply.headers["Content-Encoding"] is None
        assert json.loads(reply.body.splitlines()[0])["object"]["metadata"]["name"] == "one"


def test_watch_of_a_client_that_accepts_no_gzip_is_not_compressed(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))
    reply = api.ask("GET", api.claims(mine), headers={"Accept-Encoding": "br"}, allowWatchBookmarks="true", **LIST)
    assert reply.headers["Content-Encoding"] is None
    assert json.loads(reply.body.splitlines()[0])["type"] == "ADDED"
