"""Options of the verbs: reading, completing, validating; texts as recorded from kube-apiserver 1.36.3."""

from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apimachinery import options
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import DeleteOptions
from apiserver.apimachinery.releases import NEWEST, V1_36, V1_37
from apiserver.apimachinery.request import Query

MATCH = "resourceVersionMatch: "
FORBIDDEN = MATCH + "Forbidden: resourceVersionMatch is forbidden "
UNSUPPORTED = MATCH + 'Unsupported value: "{}": supported values: "Exact", "NotOlderThan", ""'


def refusal(read: Callable[[], Any]) -> StatusError:
    with pytest.raises(StatusError) as caught:
        read()
    return caught.value


def listing(text: str) -> options.ListOptions:
    return options.parse_list(Query(text), watch=False)


def test_list_options_are_read() -> None:
    found = listing(
        "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&resourceVersion=5&resourceVersionMatch=Exact&timeoutSeconds=7"
        "&limit=500&allowWatchBookmarks=true&unknown=1"
    )
    assert str(found.label_selector) == "a=b"
    assert found.field_selector.requires("metadata.name") == "x"
    assert (found.resource_version, found.match, found.timeout_seconds, found.limit) == ("5", "Exact", 7, 500)
    assert found.allow_bookmarks
    assert not found.watch
    assert listing("continue=abc").continue_token == "abc"


def test_absent_list_options_have_their_zero_values() -> None:
    found = listing("")
    assert (found.limit, found.timeout_seconds, found.send_initial_events, found.match) == (0, None, None, "")
    assert found.label_selector.empty
    assert found.field_selector.empty


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", False),
        ("watch=0", False),
        ("watch=FALSE", False),
        ("watch=", True),
        ("watch", True),
        ("watch=yes", True),
        ("watch=no", True),
    ],
)
def test_a_boolean_is_true_unless_it_is_zero_or_false(text: str, value: bool) -> None:
    assert listing(text).watch is value


def test_only_the_first_value_of_a_parameter_counts() -> None:
    assert listing("limit=1&limit=x").limit == 1
    assert not listing("watch=0&watch=1").watch
    assert str(listing("labelSelector=a&labelSelector=(").label_selector) == "a"


def test_parameter_names_are_case_sensitive() -> None:
    assert listing("LIMIT=x&labelselector=(").limit == 0


@pytest.mark.parametrize("value", ["-1", "0", "+5", "9223372036854775807"])
def test_negative_limits_and_timeouts_are_accepted(value: str) -> None:
    assert listing(f"limit={value.replace('+', '%2B')}").limit == int(value)
    assert listing(f"timeoutSeconds={value.replace('+', '%2B')}").timeout_seconds == int(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limit=x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("limit=", 'strconv.ParseInt: parsing "": invalid syntax'),
        ("limit=1.5", 'strconv.ParseInt: parsing "1.5": invalid syntax'),
        ("limit=99999999999999999999", 'strconv.ParseInt: parsing "99999999999999999999": value out of range'),
        ("limit=b&timeoutSeconds=a&labelSelector=(&fieldSelector=x", 'strconv.ParseInt: parsing "a": invalid syntax'),
        ("limit=b&labelSelector=(", 'strconv.ParseInt: parsing "b": invalid syntax'),
        ("labelSelector=(&fieldSelector=x", "found '(', expected: !, identifier, or 'end of string'"),
        ("fieldSelector=x&resourceVersionMatch=Bogus", "invalid selector: 'x'; can't understand 'x'"),
    ],
)
def test_unreadable_options_get_400_in_upstreams_order(text: str, message: str) -> None:
    for watch in ("", "&watch=1"):
        error = refusal(lambda watch=watch: listing(text + watch))  # type: ignore[misc]
        assert (error.code, error.reason, error.message, error.details) == (400, "BadRequest", message, None)


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("resourceVersionMatch=Exact", [FORBIDDEN + "unless resourceVersion is provided"]),
        ("resourceVersionMatch=NotOlderThan&resourceVersion=1&continue=x", [FORBIDDEN + "when continue is provided"]),
        ("resourceVersionMatch=Newest&resourceVersion=1", [UNSUPPORTED.format("Newest")]),
        ("resourceVersionMatch=exact&resourceVersion=0", [UNSUPPORTED.format("exact")]),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            [MATCH + 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'],
        ),
        ("sendInitialEvents=false", ["sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"]),
        (
            "sendInitialEvents=true&resourceVersionMatch=Bogus&continue=x",
            [
                FORBIDDEN + "unless resourceVersion is provided",
                FORBIDDEN + "when continue is provided",
                UNSUPPORTED.format("Bogus"),
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            ],
        ),
        ("resourceVersionMatch=%3Cb%3E&resourceVersion=1", [UNSUPPORTED.format(r"\u003cb\u003e")]),
    ],
)
def test_bad_list_options_are_a_422(text: str, errors: list[str]) -> None:
    error = refusal(lambda: listing(text))
    joined = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    assert (error.code, error.message) == (422, f'ListOptions.meta.k8s.io "" is invalid: {joined}')
    assert error.details is not None
    assert (error.details["group"], error.details["kind"], "name" in error.details) == (
        "meta.k8s.io",
        "ListOptions",
        False,
    )
    assert [f"{c['field']}: {c['message']}" for c in error.details["causes"]] == errors


@pytest.mark.parametrize("version", ["", "&resourceVersion=", "&resourceVersion=0"])
def test_a_watch_from_the_start_asks_for_initial_events_by_itself(version: str) -> None:
    found = options.parse_list(Query("watch=1" + version), watch=True)
    assert (found.send_initial_events, found.match) == (True, "NotOlderThan")


def test_a_watch_from_a_version_does_not_ask_for_initial_events() -> None:
    found = options.parse_list(Query("watch=1&resourceVersion=5"), watch=True)
    assert (found.send_initial_events, found.match) == (None, "")


def test_a_watch_without_initial_events_says_so() -> None:
    found = options.parse_list(Query("watch=1&sendInitialEvents=0&resourceVersionMatch=NotOlderThan"), watch=True)
    assert found.send_initial_events is False


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (
            "sendInitialEvents=true",
            [MATCH + "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"],
        ),
        ("continue=abc", [FORBIDDEN + "when continue is provided"]),
        (
            "resourceVersionMatch=NotOlderThan&resourceVersion=1",
            [FORBIDDEN + "for watch unless sendInitialEvents is provided"],
        ),
        (
            "resourceVersionMatch=Bogus",
            [
                FORBIDDEN + "for watch unless sendInitialEvents is provided",
                MATCH + 'Unsupported value: "Bogus": supported values: "NotOlderThan"',
            ],
        ),
        (
            "sendInitialEvents=1&resourceVersionMatch=Exact&continue=x",
            [
                MATCH + "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                MATCH + 'Unsupported value: "Exact": supported values: "NotOlderThan"',
                FORBIDDEN + "when continue is provided",
            ],
        ),
    ],
)
def test_bad_watch_options_are_a_422(text: str, errors: list[str]) -> None:
    error = refusal(lambda: options.parse_list(Query("watch=1&" + text), watch=True))
    joined = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    assert (error.code, error.message) == (422, f'ListOptions.meta.k8s.io "" is invalid: {joined}')


def test_continue_is_ignored_by_a_watch_from_a_version() -> None:
    assert options.parse_list(Query("watch=1&resourceVersion=5&continue=x"), watch=True).continue_token == "x"


def test_watch_path_is_judged_as_a_list_unless_the_parameter_is_present() -> None:
    found = options.parse_list(Query("allowWatchBookmarks=1"), watch=True)
    assert (found.watch, found.send_initial_events) == (True, None)
    error = refusal(lambda: options.parse_list(Query("sendInitialEvents=true"), watch=True))
    assert error.message.endswith("sendInitialEvents is forbidden for list")
    assert options.parse_list(Query("watch=true"), watch=True).send_initial_events is True


def test_get_options_know_the_version_only() -> None:
    assert options.parse_get(Query("resourceVersion=abc&labelSelector=(")).resource_version == "abc"
    assert options.parse_get(Query("export=false")).resource_version == ""


@pytest.mark.parametrize("value", ["true", "1", "", "yes"])
def test_exporting_is_no_longer_supported(value: str) -> None:
    error = refusal(lambda: options.parse_get(Query(f"export={value}")))
    assert (error.code, error.message) == (400, "the export parameter, deprecated since v1.14, is no longer supported")


def test_write_options_are_read() -> None:
    created = options.parse_create(Query("dryRun=All&fieldManager=me&fieldValidation=Strict"))
    assert (created.dry_run, created.field_manager, created.field_validation) == (True, "me", "Strict")
    updated = options.parse_update(Query("dryRun=All&dryRun=All"))
    assert (updated.dry_run, updated.field_manager, updated.validation) == (True, "", "Warn")
    patched = options.parse_patch(Query("fieldManager=me&force=false"), apply=True)
    assert (patched.force, patched.dry_run, patched.validation) == (False, False, "Warn")
    assert options.parse_patch(Query("fieldValidation="), apply=False).force is None


READERS: list[tuple[str, Callable[[Query], Any]]] = [
    ("CreateOptions", options.parse_create),
    ("UpdateOptions", options.parse_update),
    ("PatchOptions", lambda query: options.parse_patch(query, apply=False)),
]


def test_options_are_parsed_once_for_each_verb_and_refused_each_time() -> None:
    query = Query("fieldManager=m&force=true")
    assert options.parse_update(query) is options.parse_update(query)
    assert options.parse_patch(query, apply=True) is options.parse_patch(query, apply=True)
    assert options.parse_create(query) == options.CreateOptions(field_manager="m")
    for _ in range(2):
        assert refusal(lambda: options.parse_patch(query, apply=False)).code == 422


@pytest.mark.parametrize(("kind", "read"), READERS)
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("dryRun=x", 'dryRun: Unsupported value: ["x"]: supported values: "All"'),
        ("dryRun=", 'dryRun: Unsupported value: [""]: supported values: "All"'),
        ("dryRun=All&dryRun=all", 'dryRun: Unsupported value: ["All","all"]: supported values: "All"'),
        ("dryRun=%3C", r'dryRun: Unsupported value: ["\u003c"]: supported values: "All"'),
        ("fieldManager=" + "a" * 129, "fieldManager: Too long: may not be more than 128 bytes"),
        ("fieldManager=" + "%C3%A9" * 65, "fieldManager: Too long: may not be more than 128 bytes"),
        ("fieldManager=abc%09", r'fieldManager: Invalid value: "abc\t": invalid character U+0009 (at position 3)'),
        (
            "fieldManager=%C3%A9%E2%80%8B",
            r'fieldManager: Invalid value: "é\u200b": invalid character U+200B (at position 2)',
        ),
        (
            "fieldValidation=Bogus",
            'fieldValidation: Unsupported value: "Bogus": supported values: "", "Ignore", "Strict", "Warn"',
        ),
        (
            "fieldValidation=warn&dryRun=x&fieldManager=%0A",
            (
                r'[fieldManager: Invalid value: "\n": invalid character U+000A (at position 0), '
                'dryRun: Unsupported value: ["x"]: supported values: "All", '
                'fieldValidation: Unsupported value: "warn": supported values: "", "Ignore", "Strict", "Warn"]'
            ),
        ),
    ],
)
def test_bad_write_options_are_a_422(kind: str, read: Callable[[Query], Any], text: str, error: str) -> None:
    found = refusal(lambda: read(Query(text)))
    assert (found.code, found.reason, found.message) == (422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {error}')
    assert found.details is not None
    assert (found.details["group"], found.details["kind"]) == ("meta.k8s.io", kind)


def test_apply_needs_a_field_manager() -> None:
    error = refusal(lambda: options.parse_patch(Query("force=true&dryRun=x"), apply=True))
    assert error.message == (
        'PatchOptions.meta.k8s.io "" is invalid: [fieldManager: Required value: is required for apply patch, '
        'dryRun: Unsupported value: ["x"]: supported values: "All"]'
    )


@pytest.mark.parametrize("value", ["true", "false"])
def test_only_apply_can_be_forced(value: str) -> None:
    error = refusal(lambda: options.parse_patch(Query(f"force={value}"), apply=False))
    assert (
        error.message
        == 'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch'
    )


def test_delete_options_are_read_from_the_query() -> None:
    found = options.parse_delete_query(
        Query("gracePeriodSeconds=-5&orphanDependents=0&propagationPolicy=&dryRun=All&uid=u&resourceVersion=5")
    )
    assert found == DeleteOptions(
        grace_period_seconds=-5,
        orphan_dependents=False,
        propagation_policy="",
        dry_run_values=("All",),
        uid="u",
        resource_version="5",
        preconditions=True,
    )
    assert found.dry_run


def test_empty_preconditions_of_a_query_do_not_count() -> None:
    assert options.parse_delete_query(Query("uid=&resourceVersion=")) == DeleteOptions()


def test_a_bad_grace_period_is_a_400() -> None:
    error = refusal(lambda: options.parse_delete_query(Query("gracePeriodSeconds=abc&dryRun=x")))
    assert (error.code, error.message) == (400, 'strconv.ParseInt: parsing "abc": invalid syntax')


def test_delete_options_are_read_from_a_body() -> None:
    body = {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 30,
        "orphanDependents": None,
        "propagationPolicy": "Background",
        "dryRun": ["All"],
        "preconditions": {"uid": "", "resourceVersion": "7", "more": 1},
        "ignoreStoreReadErrorWithClusterBreakingPotential": True,
        "unknown": {"x": 1},
    }
    found = options.delete_options(body)
    assert found == DeleteOptions(
        grace_period_seconds=30,
        propagation_policy="Background",
        dry_run_values=("All",),
        uid="",
        resource_version="7",
        preconditions=True,
        ignore_read_error=True,
    )


def test_an_empty_body_asks_for_nothing() -> None:
    assert options.delete_options({}) == DeleteOptions()
    assert options.delete_options({"preconditions": None, "dryRun": []}) == DeleteOptions()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"dryRun": "All"}, "string into Go struct field DeleteOptions.dryRun of type []string"),
        ({"dryRun": [1]}, "number into Go struct field DeleteOptions.dryRun of type string"),
        ({"gracePeriodSeconds": "1"}, "string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        ({"gracePeriodSeconds": 1.5}, "number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        ({"gracePeriodSeconds": True}, "bool into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        (
            {"gracePeriodSeconds": 2**63},
            f"number {2**63} into Go struct field DeleteOptions.gracePeriodSeconds of type int64",
        ),
        ({"orphanDependents": 1}, "number into Go struct field DeleteOptions.orphanDependents of type bool"),
        (
            {"propagationPolicy": {}},
            "object into Go struct field DeleteOptions.propagationPolicy of type v1.DeletionPropagation",
        ),
        ({"preconditions": []}, "array into Go struct field DeleteOptions.preconditions of type v1.Preconditions"),
        (
            {"preconditions": {"uid": 5}},
            "number into Go struct field Preconditions.preconditions.uid of type types.UID",
        ),
        (
            {"preconditions": {"resourceVersion": 5}},
            "number into Go struct field Preconditions.preconditions.resourceVersion of type string",
        ),
    ],
)
def test_a_body_of_the_wrong_types_is_a_400_in_the_words_of_go(body: dict[str, Any], message: str) -> None:
    error = refusal(lambda: options.delete_options(body))
    assert (error.code, error.message) == (400, f"json: cannot unmarshal {message}")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "propagationPolicy=Bogus",
            'propagationPolicy: Unsupported value: "Bogus": supported values: "Foreground", "Background", "Orphan", "nil"',
        ),
        (
            "propagationPolicy=",
            'propagationPolicy: Unsupported value: "": supported values: "Foreground", "Background", "Orphan", "nil"',
        ),
        (
            "orphanDependents=true&propagationPolicy=Orphan",
            'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set',
        ),
        (
            "orphanDependents=false&propagationPolicy=x&dryRun=1",
            (
                '[propagationPolicy: Invalid value: "x": orphanDependents and deletionPropagation cannot be both set, '
                'propagationPolicy: Unsupported value: "x": supported values: "Foreground", "Background", "Orphan", "nil", '
                'dryRun: Unsupported value: ["1"]: supported values: "All"]'
            ),
        ),
    ],
)
def test_bad_delete_options_are_a_422(text: str, error: str) -> None:
    found = refusal(lambda: options.parse_delete_query(Query(text)).validate(NEWEST))
    assert (found.code, found.message) == (422, f'DeleteOptions.meta.k8s.io "" is invalid: {error}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orphanDependents=true",
        "propagationPolicy=Foreground",
        "ignoreStoreReadErrorWithClusterBreakingPotential=1",
        "ignoreStoreReadErrorWithClusterBreakingPotential=false&dryRun=All",
    ],
)
def test_legal_delete_options_pass(text: str) -> None:
    options.parse_delete_query(Query(text)).validate(NEWEST)


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ({"dryRun": ["All"]}, "dryRun"),
        ({"propagationPolicy": "Background"}, "propagationPolicy"),
        ({"orphanDependents": False}, "orphanDependents"),
        ({"gracePeriodSeconds": 0}, "gracePeriodSeconds"),
        ({"preconditions": {}}, "preconditions"),
    ],
)
def test_ignoring_read_errors_goes_with_nothing_else(body: dict[str, Any], member: str) -> None:
    name = "ignoreStoreReadErrorWithClusterBreakingPotential"
    asked = options.delete_options({name: True, **body})
    error = refusal(lambda: asked.validate(V1_36))
    text = f"{name}: Invalid value: true: cannot be set together with .{member}"
    assert (error.code, error.message) == (422, f'DeleteOptions.meta.k8s.io "" is invalid: {text}')
    options.delete_options({name: False, **body}).validate(V1_36)
    if member == "dryRun":  # NOT_BESIDE_IGNORING
        asked.validate(V1_37)
    else:
        assert refusal(lambda: asked.validate(V1_37)).message == error.message


def test_ignoring_read_errors_is_for_one_object() -> None:
    name = "ignoreStoreReadErrorWithClusterBreakingPotential"
    error = refusal(options.delete_options({name: True}).refuse_for_collections)
    text = f"{name}: Invalid value: true: is not allowed with DELETECOLLECTION, try again after removing the option"
    assert (error.code, error.message) == (422, f'DeleteOptions.meta.k8s.io "" is invalid: {text}')
    options.delete_options({}).refuse_for_collections()


def test_a_version_is_read_as_go_reads_it() -> None:
    assert options.parse_revision("") is None
    assert options.parse_revision("0") == 0
    assert options.parse_revision("18446744073709551615") == 2**64 - 1
    with pytest.raises(ValueError, match="invalid syntax") as caught:
        options.parse_revision("-1")
    assert str(caught.value) == 'strconv.ParseUint: parsing "-1": invalid syntax'
