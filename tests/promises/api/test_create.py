"""POST: what becomes of a new object, and why it may be refused."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest

from apiserver.apimachinery.releases import V1_37, Release, at, since
from tests.promises.api.client import SECONDS, Client, Object, claim, device_class, resource_slice

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-1"}
VERSION_SET = "resourceVersion should not be set on objects to be created"


def test_a_new_object_is_answered_as_it_is_stored(api: Client, mine: str) -> None:
    reply = api.ask("POST", api.claims(mine), claim("one", labels={"a": "b"}))

    assert reply.status == 201
    assert reply.headers["Location"] is None
    metadata = reply.json["metadata"]
    assert UUID.fullmatch(metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["resourceVersion"].isdecimal()
    assert api.ask("GET", f"{api.claims(mine)}/one").body == reply.body


def test_members_that_only_the_system_may_set_are_wiped(api: Client, mine: str) -> None:
    sent = {
        "uid": "mine",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 7,
        "selfLink": "/me",
    }

    metadata = api.create(api.claims(mine), claim("one", **sent))["metadata"]

    assert metadata["uid"] != "mine"
    assert not metadata["creationTimestamp"].startswith("2001")
    assert not metadata.keys() & {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}


def test_members_that_a_client_may_set_are_kept(api: Client, mine: str) -> None:
    sent = {
        "labels": {"b": "2", "a": "1"},
        "annotations": {"example.com/text": 'ü <&> \u2028 "quoted" 😀'},
        "finalizers": ["example.com/f", "example.com/f"],
        "ownerReferences": [OWNER],
        "generateName": "kept-",
        "generation": 7,
    }

    metadata = api.create(api.claims(mine), claim("one", **sent))["metadata"]

    assert {name: metadata[name] for name in sent} == sent
    api.patch(f"{api.claims(mine)}/one", {"metadata": {"finalizers": None}})


def test_the_namespace_is_the_one_of_the_url(api: Client, mine: str) -> None:
    assert api.create(api.claims(mine), claim("one"))["metadata"]["namespace"] == mine
    assert api.create(api.claims(mine), claim("two", namespace=mine))["metadata"]["namespace"] == mine
    assert api.refusal("POST", api.claims(mine), claim("three", namespace="other")) == (
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    )
    assert "namespace" not in api.create(api.classes, device_class(mine, namespace="other"))["metadata"]


@pytest.mark.parametrize("stated", ["", "0", "abc", "-1", "18446744073709551616"])
def test_malformed_version_is_accepted_and_dropped(api: Client, mine: str, stated: str) -> None:
    created = api.create(api.claims(mine), claim("one", resourceVersion=stated))

    assert created["metadata"]["resourceVersion"] not in (stated, "")


def test_a_stated_version_is_a_raw_500_unless_it_is_a_dry_run(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))

    assert api.refusal("POST", api.claims(mine), claim("two", resourceVersion="5")) == (500, "", VERSION_SET)
    assert api.refusal("POST", api.claims(mine), claim("one", resourceVersion="5")) == (500, "", VERSION_SET)
    rehearsed = api.create(api.claims(mine), claim("two", resourceVersion="5"), dryRun="All")
    assert rehearsed["metadata"]["resourceVersion"] == "5"


@pytest.mark.parametrize("stated", ["0", "abc", "-1", "99999999999999999999999", '<"ü'])
def test_dry_run_shows_the_version_that_was_sent(api: Client, mine: str, stated: str) -> None:
    rehearsed = api.create(api.claims(mine), claim("one", resourceVersion=stated), dryRun="All")
    assert rehearsed["metadata"]["resourceVersion"] == stated


def test_a_name_that_is_taken_is_409(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))

    refusal = api.refusal("POST", api.claims(mine), claim("one"))

    assert refusal == (409, "AlreadyExists", f'resourceclaims.{api.group} "one" already exists')
    assert refusal.details == {"name": "one", "group": api.group, "kind": "resourceclaims"}


def test_a_taken_name_that_is_being_deleted_says_so(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one", finalizers=["example.com/f"]))
    api.delete(f"{api.claims(mine)}/one")

    refusal = api.refusal("POST", api.claims(mine), claim("one"))

    assert refusal.message == f'object is being deleted: resourceclaims.{api.group} "one" already exists'


TEMPLATE = {"spec": {"spec": claim()["spec"]}}
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("path", "made"),
    [
        (lambda api, mine: api.classes, device_class),
        (lambda api, mine: api.slices, resource_slice),
        (lambda api, mine: api.claims(mine), claim),
        (lambda api, mine: api.templates(mine), lambda name, **more: {**TEMPLATE, "metadata": {"name": name, **more}}),
    ],
    ids=["classes", "slices", "claims", "templates"],
)
@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ({}, {}),
        ({"dryRun": "All"}, {}),
        ({}, {"Content-Type": "application/yaml"}),
        ({}, {"Accept": TABLE}),
    ],
    ids=["plain", "dry run", "yaml", "table"],
)
def test_a_taken_name_beside_a_base_names_the_base_and_when_to_try_again(
    api: Client,
    mine: str,
    path: Callable[[Client, str], str],
    made: Callable[..., Object],
    query: dict[str, str],
    headers: dict[str, str],
) -> None:
    where, name = path(api, mine), f"{mine}-one"
    api.create(where, made(name, finalizers=["example.com/f"]))
    kind = where.rpartition("/")[2]
    details = {"name": name, "group": api.group, "kind": kind, "retryAfterSeconds": 1}
    taken = f'{kind}.{api.group} "{name}" already exists'

    def tried(message: str) -> None:
        sent = made(name, generateName="other-")
        body = json.dumps({"apiVersion": f"{api.group}/v1", "kind": KINDS[kind], **sent})
        reply = api.ask("POST", where, body, headers={"Content-Type": "application/json", **headers}, **query)
        status = reply.json
        assert (reply.status, status["reason"], status["message"]) == (409, "AlreadyExists", message)
        assert (status["details"], reply.headers["Retry-After"]) == (details, "1")

    tried(f"{taken}, the server was not able to generate a unique name for the object")
    api.delete(f"{where}/{name}")
    tried(f"object is being deleted: {taken}, the server was not able to generate a unique name for the object")
    api.patch(f"{where}/{name}", {"metadata": {"finalizers": None}})


KINDS = {
    "deviceclasses": "DeviceClass",
    "resourceslices": "ResourceSlice",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
}


@pytest.mark.parametrize("member", ["annotations", "labels"])
def test_a_key_that_is_called_deletion_timestamp_deletes_nothing(api: Client, mine: str, member: str) -> None:
    api.create(api.claims(mine), claim("one", **{member: {"deletionTimestamp": "x"}}))

    assert api.refusal("POST", api.claims(mine), claim("one")).message.startswith("resourceclaims")


def test_an_invalid_object_of_a_taken_name_is_422(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))

    assert api.refusal("POST", api.claims(mine), claim("one", labels={"a b": "c"})).code == 422


def test_no_name_and_no_base_for_one_is_422(api: Client, mine: str) -> None:
    refusal = api.refusal("POST", api.claims(mine), claim())

    assert (refusal.code, refusal.reason) == (422, "Invalid")
    assert ("metadata.name", "Required value: name or generateName is required") in refusal.causes


def test_a_generated_name_is_the_base_cut_to_58_bytes_and_five_letters(api: Client, mine: str) -> None:
    letters = "[bcdfghjklmnpqrstvwxz2456789]{5}"
    short = api.create(api.claims(mine), claim(generateName="gen-"))["metadata"]
    long = api.create(api.claims(mine), claim(generateName="x" * 100))["metadata"]

    assert re.fullmatch(f"gen-{letters}", short["name"])
    assert re.fullmatch(f"x{{58}}{letters}", long["name"])
    assert (short["generateName"], long["generateName"]) == ("gen-", "x" * 100)


def test_a_name_goes_before_a_base_for_one(api: Client, mine: str) -> None:
    assert api.create(api.claims(mine), claim("one", generateName="gen-"))["metadata"]["name"] == "one"


def test_malformed_generate_name_is_reported_for_base_and_name(api: Client, mine: str) -> None:
    refusal = api.refusal("POST", api.claims(mine), claim(generateName="Gen_"))

    assert {field for field, _ in refusal.causes} == {"metadata.generateName", "metadata.name"}
    assert refusal.details["name"].startswith("Gen_")


@pytest.mark.parametrize("name", ["Upper", "käse", "a_b", "-a", "a" * 254, "a/b", "..", "%", "a b", "名前", "a\x00b"])
def test_a_name_that_is_no_dns_subdomain_is_422(api: Client, mine: str, name: str) -> None:
    for path, obj in (
        (api.claims(mine), claim(name)),
        (api.classes, device_class(name)),
        (api.slices, resource_slice(name)),
    ):
        refusal = api.refusal("POST", path, obj)
        assert (refusal.code, refusal.reason, refusal.details["name"]) == (422, "Invalid", name)


@pytest.mark.parametrize("name", ["A_", "x" * 254])
def test_name_of_a_class_is_reported_where_its_type_declares_it(
    api: Client, mine: str, name: str, release: Release
) -> None:
    made = {**device_class(name, labels={"::": ""}), "spec": {"selectors": [{"cel": {"expression": "1"}}]}}
    reply = api.ask("POST", api.classes, made)

    assert reply.status == 422
    fields = [cause["field"] for cause in reply.json["details"]["causes"]]
    labels, selector = "metadata.labels", "spec.selectors[0].cel.expression"
    first = ["metadata.name", labels, selector]
    assert fields == at(release, since(V1_37, [labels, selector, "metadata.name"], before=first))


def test_repeated_owner_references_go_with_a_warning(api: Client, mine: str) -> None:
    reply = api.ask("POST", api.claims(mine), claim("one", ownerReferences=[OWNER, OWNER, {**OWNER, "uid": "u-2"}]))

    assert [owner["uid"] for owner in reply.json["metadata"]["ownerReferences"]] == ["u-1", "u-2"]
    (warning,) = reply.headers.get_all("Warning") or []
    assert "duplicate UID(s) observed: u-1" in warning


def test_a_status_cannot_be_created(api: Client, mine: str) -> None:
    reserved = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}

    assert api.create(api.claims(mine), {**claim("one"), "status": reserved})["status"] == {}


def test_a_thousand_labels_are_kept_in_order_of_their_keys(api: Client, mine: str) -> None:
    labels = {f"example.com/k{i:04}": f"v{i}" for i in reversed(range(1000))}

    created = api.create(api.claims(mine), claim("one", labels=labels))

    assert list(created["metadata"]["labels"].items()) == sorted(labels.items())
    selector = ",".join(f"{k}={v}" for k, v in labels.items())
    assert len(api.get(api.claims(mine), labelSelector=selector)["items"]) == 1


def test_annotations_end_at_256_kibibytes(api: Client, mine: str) -> None:
    most = {"a": "x" * (262144 - 1)}

    api.create(api.claims(mine), claim("one", annotations=most))

    refusal = api.refusal("POST", api.claims(mine), claim("two", annotations={**most, "b": ""}))
    assert refusal.causes == [("metadata.annotations", "Too long: may not be more than 262144 bytes")]


def test_an_object_too_large_to_store_is_a_raw_500(api: Client, mine: str) -> None:
    owners = [{**OWNER, "uid": f"u-{i:0200}"} for i in range(8_000)]

    refusal = api.refusal("POST", api.claims(mine), claim("one", ownerReferences=owners))

    assert refusal == (500, "", "etcdserver: request is too large")


@pytest.mark.parametrize(
    ("validation", "code", "warned"),
    [("", 201, True), ("Warn", 201, True), ("Ignore", 201, False), ("Strict", 400, False)],
)
def test_unknown_members_are_judged_as_field_validation_says(
    api: Client, mine: str, validation: str, code: int, warned: bool
) -> None:
    sent = {**claim("one", foo=1), "bar": {}}

    reply = api.ask("POST", api.claims(mine), sent, fieldValidation=validation)

    assert reply.status == code, reply.text
    assert bool(reply.headers.get_all("Warning")) is warned
    if code == 400:
        assert 'strict decoding error: unknown field "metadata.foo", unknown field "bar"' in reply.json["message"]


def test_checks_come_in_upstreams_order(api: Client, mine: str) -> None:
    """Accept, Content-Type, options, body, apiVersion, namespace, the object."""
    text = {"Content-Type": "text/plain"}
    nowhere = {"Accept": "application/json;as=Table;g=x;v=v1"}
    bad = {**claim("A", namespace="other"), "apiVersion": f"{api.group}/v1"}

    assert api.ask("POST", api.claims(mine), "{", headers={**text, **nowhere}, dryRun="x").status == 406
    assert api.ask("POST", api.claims(mine), "{", headers=text, dryRun="x").status == 415
    assert api.ask("POST", api.claims(mine), "{", dryRun="x").status == 422
    assert api.ask("POST", api.claims(mine), "{").status == 400
    assert "namespace" in api.refusal("POST", api.claims(mine), bad).message
    del bad["metadata"]["namespace"]
    assert api.refusal("POST", api.claims(mine), bad).code == 422


def test_a_namespaced_object_is_created_in_a_namespace(api: Client) -> None:
    assert api.refusal("POST", api.all_claims, claim("one")).code == 405


def test_a_namespace_has_to_be_there_first(api: Client, mine: str) -> None:
    for namespace in (f"{mine}-none", "Not_A_Name"):
        refusal = api.refusal("POST", api.claims(namespace), claim("one"))
        assert refusal == (404, "NotFound", f'namespaces "{namespace}" not found')


@pytest.mark.only("dev", reason="where namespaces are real, none has a name like this")
def test_invalid_namespace_name_is_422(api: Client) -> None:
    assert api.refusal("POST", api.claims("Not_A_Name"), claim("one")).code == 422


@pytest.mark.only("aggregated", "upstream", reason="no namespace ends where all of them always exist")
def test_a_namespace_that_ends_takes_nothing_new(api: Client, mine: str) -> None:
    """Without controllers it ends for ever."""
    path = f"{api.claims(mine)}/one"
    api.create(api.claims(mine), claim("one"))
    api.leave()

    end = time.monotonic() + SECONDS
    while api.ask("POST", api.claims(mine), claim(generateName="late-")).status == 201:
        assert time.monotonic() < end

    refusal = api.refusal("POST", api.claims(mine), claim("two"))
    ends = f"unable to create new content in namespace {mine} because it is being terminated"
    assert refusal == (403, "Forbidden", f'resourceclaims.{api.group} "two" is forbidden: {ends}')
    assert refusal.causes == [("metadata.namespace", f"namespace {mine} is being terminated")]
    api.patch(path, {"metadata": {"labels": {"a": "b"}}})
    api.delete(path)


def test_value_of_a_repeated_member_is_merged_into_the_earlier_one(api: Client, mine: str) -> None:
    body = (
        '{"metadata":{"name":"one","name":null,"labels":{"a":"1"},"labels":{"b":"2"}},"metadata":{"labels":{}},"spec":{"devices":'
        '{"requests":[{"name":"r","exactly":{"deviceClassName":"c","count":2}}],"requests":[{"exactly":{"count":null}}]},"devices":null}}'
    )
    reply = api.ask("POST", api.claims(mine), body, headers={"Content-Type": "application/json"})
    assert reply.status == 201, reply.text
    assert (reply.json["metadata"]["name"], reply.json["metadata"]["labels"]) == ("one", {"a": "1", "b": "2"})
    exactly = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 2}
    assert reply.json["spec"]["devices"]["requests"] == [{"name": "r", "exactly": exactly}]


def test_number_in_an_unknown_member_is_not_parsed(api: Client, mine: str) -> None:
    body = '{"metadata":{"name":"one","x":1e999},"spec":{"devices":{}}}'
    reply = api.ask("POST", api.claims(mine), body, headers={"Content-Type": "application/json"})
    assert reply.status == 201, reply.text


@pytest.mark.parametrize("kind", ["List", "DeleteOptions", "WatchEvent"])
def test_meta_kind_that_every_server_knows_is_not_converted_to_a_kind(api: Client, mine: str, kind: str) -> None:
    refusal = api.refusal("POST", api.claims(mine), {"kind": kind, "apiVersion": "v1"})
    into = f"{api.group.partition('.')[0]}.ResourceClaim"
    assert (refusal.code, refusal.reason) == (400, "BadRequest")
    assert refusal.message.endswith(f": converting (v1.{kind}) to ({into}): unknown conversion")
