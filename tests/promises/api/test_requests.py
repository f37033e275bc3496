"""Requests before anything is looked up: paths, methods, bodies."""

from __future__ import annotations

import json

import pytest

from tests.promises.api.client import Client, claim, device_class, names

NOT_FOUND = (404, "NotFound", "the server could not find the requested resource")
NOT_ALLOWED = (405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
DEEP = 10_001
LIMIT = 3 << 20


# Paths and methods


@pytest.mark.parametrize(
    "path",
    [
        "/nothings",
        "/namespaces/MINE/nothings",
        "/namespaces/MINE/deviceclasses",
        "/namespaces/MINE/resourceclaims/one/scale",
        "/namespaces/MINE/resourceclaims/one/status/more",
        "/deviceclasses/a/b/c",
        "/watch/nothings",
    ],
)
def test_path_that_is_not_served_is_404(api: Client, mine: str, path: str) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        assert api.refusal(method, api.v1 + path.replace("MINE", mine), b"{}") == NOT_FOUND


@pytest.mark.parametrize("path", ["", "/", "/deviceclasses", "/namespaces/MINE/resourceclaims"])
def test_a_collection_is_neither_replaced_nor_patched(api: Client, mine: str, path: str) -> None:
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
        assert api.refusal(method, api.v1 + path.replace("MINE", mine), b"{}") == NOT_ALLOWED


def test_object_refuses_post_and_claims_of_all_namespaces_are_read_only(api: Client, mine: str) -> None:
    assert api.refusal("POST", f"{api.classes}/{mine}", device_class(mine)) == NOT_ALLOWED
    assert api.refusal("POST", f"{api.claims(mine)}/one/status", claim("one")) == NOT_ALLOWED
    assert api.refusal("DELETE", api.all_claims) == NOT_ALLOWED
    assert api.refusal("GET", f"{api.v1}/resourceclaims/one") == NOT_FOUND


@pytest.mark.parametrize("method", ["INVENT", "get", "PROPFIND", "TRACE", "CONNECT", "A-b.c!#$%&*+^_`|~1"])
def test_unknown_method_is_judged_by_the_path(api: Client, mine: str, method: str) -> None:
    for path in (api.v1, api.classes, f"{api.classes}/x", api.claims(mine), f"{api.claims(mine)}/x/status"):
        assert api.refusal(method, path, b"{}") == NOT_ALLOWED
    for path in ("/nothings", "/deviceclasses/x/status", f"/namespaces/{mine}/nothings", "/a/b/c/d/e/f"):
        assert api.refusal(method, f"{api.v1}{path}") == NOT_FOUND
    for path in ("/nothing", "/nothing/", "/apis/nothing.example.com/v1/things", "/readyz/nothing"):
        reply = api.ask(method, path)
        assert (reply.status, reply.text.rstrip("\n")) == (404, "404 page not found"), path
    for path in ("/apis", f"/apis/{api.group}", "/openapi/v2", "/livez"):
        assert api.ask(method, path).status == api.ask("GET", path).status == 200


def test_a_head_has_no_body_and_is_405(api: Client) -> None:
    reply = api.ask("HEAD", api.classes)

    assert (reply.status, reply.body, reply.headers["Allow"]) == (405, b"", None)


def test_a_slash_at_the_end_changes_nothing(api: Client, mine: str) -> None:
    made = api.create(api.claims(mine) + "/", claim("one"))

    assert api.get(f"{api.claims(mine)}/one/") == made
    assert names(api.get(api.claims(mine) + "//")) == ["one"]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/../v1/deviceclasses", 404),
        ("/./deviceclasses", 404),
        ("//deviceclasses", 404),
        ("/deviceclasses/..%2fx", 404),
        ("/deviceclasses/a%2Fb", 404),
        ("/deviceclasses/%2E%2E", 400),
        ("/deviceclasses/..", 400),
        ("/deviceclasses/%25", 400),
        ("/deviceclasses/%ff", 404),
        ("/watch", 500),
    ],
)
def test_odd_paths_are_judged_as_sent_and_never_normalised(api: Client, path: str, code: int) -> None:
    assert api.ask("GET", api.v1 + path).status == code


def test_unknown_parameters_are_ignored(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"), nonsense="1", Limit="x", DryRun="x")

    assert names(api.get(api.claims(mine), nonsense="1", LIMIT="x", labelselector="((")) == ["one"]


def test_first_value_of_a_repeated_parameter_counts(api: Client, mine: str) -> None:
    for name in "abc":
        api.create(api.claims(mine), claim(name))

    assert names(api.get(api.claims(mine), limit=["1", "2"])) == ["a"]
    assert names(api.get(api.claims(mine), fieldSelector=["metadata.name=b", "metadata.name=c"])) == ["b"]


def test_a_timeout_that_is_no_duration_is_400(api: Client) -> None:
    assert api.ask("GET", api.classes, timeout="soon").status == 400
    assert api.ask("GET", api.classes, timeout="10s").status == 200


# Bodies


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        ("", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        ("{}x", "couldn't get version/kind; json parse error: invalid character 'x' after top-level value"),
        ("[]", "json: cannot unmarshal array into Go value of type"),
        ('{"metadata":{"name":5}}', "json: cannot unmarshal number into Go struct field"),
        ('{"metadata":{"labels":[]}}', "json: cannot unmarshal array into Go struct field"),
        ('{"spec":"x"}', "json: cannot unmarshal string into Go struct field"),
        ('{"kind":"Foo"}', 'no kind "Foo" is registered for version "GROUP/v1" in scheme'),
        ('{"kind":"ResourceSlice"}', "cannot be handled as a DeviceClass"),
        ('{"apiVersion":"GROUP/v9"}', 'no kind "DeviceClass" is registered for version "GROUP/v9" in scheme'),
        ('{"apiVersion":"a/b/c"}', "unexpected GroupVersion string: a/b/c"),
        ('{"metadata":{"creationTimestamp":"yesterday"}}', 'parsing time "yesterday"'),
    ],
)
def test_a_body_that_is_no_object_of_the_kind_is_400_in_upstreams_words(api: Client, body: str, message: str) -> None:
    refusal = api.refusal("POST", api.classes, body.replace("GROUP", api.group), kind="application/json")

    assert (refusal.code, refusal.reason) == (400, "BadRequest")
    assert message.replace("GROUP", api.group) in refusal.message, refusal


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_ten_thousand_levels_of_nesting_are_400(api: Client, mine: str, opening: str, closing: str) -> None:
    deep = f'{{"metadata":{{"name":"{mine}"}},"x":{opening * DEEP}1{closing * DEEP}}}'

    refusal = api.refusal("POST", api.classes, deep, kind="application/json")

    assert (refusal.code, "exceeded max depth" in refusal.message) == (400, True)


def test_a_yaml_bomb_is_400(api: Client) -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]" for p, c in zip("abcdefgh", "bcdefghi", strict=True)]

    assert api.refusal("POST", api.classes, "\n".join(lines), kind="application/yaml").code == 400


def test_a_body_above_three_mebibytes_is_413(api: Client, mine: str) -> None:
    def sized(length: int) -> str:
        empty = json.dumps(device_class(mine, annotations={"x": ""}))
        return json.dumps(device_class(mine, annotations={"x": "y" * (length - len(empty))}))

    assert api.refusal("POST", api.classes, sized(LIMIT), kind="application/json").code == 422
    refusal = api.refusal("POST", api.classes, sized(LIMIT + 1), kind="application/json")
    assert refusal == (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
def test_last_repeated_member_counts_unless_the_client_is_strict(api: Client, mine: str, validation: str) -> None:
    body = f'{{"metadata":{{"name":"{mine}","labels":{{"a":"1","a":"2"}}}},"spec":{{}},"spec":{{}}}}'

    reply = api.ask("POST", api.classes, body, headers={"Content-Type": "application/json"}, fieldValidation=validation)

    if validation == "Strict":
        assert reply.status == 400
        assert (
            'strict decoding error: duplicate field "metadata.labels.a", duplicate field "spec"'
            in reply.text.replace("\\", "")
        )
    else:
        assert reply.json["metadata"]["labels"] == {"a": "2"}
        warnings = [text.split(" ", 2)[2] for text in reply.headers.get_all("Warning") or []]
        told = ['"duplicate field \\"metadata.labels.a\\""', '"duplicate field \\"spec\\""']
        assert warnings == (told if validation == "Warn" else [])


def test_members_are_named_exactly(api: Client, mine: str) -> None:
    """A member in another case is an unknown one."""
    sent = {**claim("one"), "Spec": {"devices": {}}}
    sent["metadata"]["Labels"] = {"a": "b"}

    reply = api.ask("POST", api.claims(mine), sent)

    assert reply.status == 201
    assert "labels" not in reply.json["metadata"]
    assert len(reply.headers.get_all("Warning") or []) == 2


@pytest.mark.parametrize(
    ("option", "value"), [("fieldManager", "x" * 129), ("fieldManager", "tab\t"), ("fieldValidation", "What")]
)
def test_bad_options_of_a_write_are_422(api: Client, mine: str, option: str, value: str) -> None:
    for method, where in (("POST", api.claims(mine)), ("PUT", f"{api.claims(mine)}/one")):
        refusal = api.refusal(method, where, claim("one"), **{option: value})
        assert (refusal.code, refusal.reason, refusal.causes[0][0]) == (422, "Invalid", option)
