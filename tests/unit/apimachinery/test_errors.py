"""The Status of every error, members in upstream's order."""

import json
from typing import Any

import pytest

from apiserver.apimachinery import errors, fieldpath
from apiserver.apimachinery.errors import GroupKind, GroupResource, StatusError

SLICES = GroupResource("resource.k8s.io", "resourceslices")
SLICE = GroupKind("resource.k8s.io", "ResourceSlice")
NAMED = {"name": "a", "group": "resource.k8s.io", "kind": "resourceslices"}


def test_names_of_types_leave_an_empty_group_out() -> None:
    assert str(SLICES) == "resourceslices.resource.k8s.io"
    assert str(GroupResource("", "namespaces")) == "namespaces"
    assert str(SLICE) == "ResourceSlice.resource.k8s.io"
    assert str(GroupKind("", "Pod")) == "Pod"


def test_a_status_has_its_members_in_upstreams_order() -> None:
    assert json.dumps(errors.not_found(SLICES, "a").status()) == (
        '{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", '
        '"message": "resourceslices.resource.k8s.io \\"a\\" not found", "reason": "NotFound", '
        '"details": {"name": "a", "group": "resource.k8s.io", "kind": "resourceslices"}, "code": 404}'
    )


def test_absent_details_reason_and_message_are_left_out() -> None:
    assert list(errors.raw("x").status()) == ["kind", "apiVersion", "metadata", "status", "message", "code"]
    assert list(StatusError(500, "", "").status()) == ["kind", "apiVersion", "metadata", "status", "code"]
    assert errors.no_such_path().status()["details"] == {}
    assert "details" not in errors.bad_request("x").status()


@pytest.mark.parametrize(
    ("error", "code", "reason", "message", "details"),
    [
        (errors.no_such_path(), 404, "NotFound", "the server could not find the requested resource", {}),
        (
            errors.method_not_allowed(),
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
            {},
        ),
        (errors.already_exists(SLICES, "a"), 409, "AlreadyExists", f'{SLICES} "a" already exists', NAMED),
        (
            errors.already_exists(SLICES, "a", being_deleted=True),
            409,
            "AlreadyExists",
            f'object is being deleted: {SLICES} "a" already exists',
            NAMED,
        ),
        (
            errors.generate_name_conflict(SLICES, "a"),
            409,
            "AlreadyExists",
            f'{SLICES} "a" already exists, the server was not able to generate a unique name for the object',
            NAMED | {"retryAfterSeconds": 1},
        ),
        (
            errors.conflict(SLICES, "a", errors.MODIFIED),
            409,
            "Conflict",
            (
                f'Operation cannot be fulfilled on {SLICES} "a": the object has been modified; please apply your changes to the '
                "latest version and try again"
            ),
            NAMED,
        ),
        (
            errors.conflict(SLICE, "a", "x"),
            409,
            "Conflict",
            f'Operation cannot be fulfilled on {SLICE} "a": x',
            NAMED | {"kind": "ResourceSlice"},
        ),
        (
            errors.unprocessable_patch(),
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
            {},
        ),
        (errors.bad_request("x"), 400, "BadRequest", "x", None),
        (errors.unauthorized(), 401, "Unauthorized", "Unauthorized", None),
        (errors.forbidden(SLICES, "a", "no"), 403, "Forbidden", f'{SLICES} "a" is forbidden: no', NAMED),
        (
            errors.forbidden(SLICES, "", "no"),
            403,
            "Forbidden",
            f"{SLICES} is forbidden: no",
            {"group": "resource.k8s.io", "kind": "resourceslices"},
        ),
        (errors.forbidden(GroupResource("", ""), "", "no"), 403, "Forbidden", "forbidden: no", {}),
        (
            errors.not_acceptable(["a", "b"]),
            406,
            "NotAcceptable",
            "only the following media types are accepted: a, b",
            None,
        ),
        (
            errors.not_acceptable_route(["a", "b"]),
            406,
            "NotAcceptable",
            "406: Not Acceptable\n\nAvailable representations: a, b",
            {},
        ),
        (errors.not_convertible("x"), 406, "NotAcceptable", "x", None),
        (
            errors.unsupported_media_type(["a", "b"]),
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: a, b",
            None,
        ),
        (errors.unsupported_media_type_route(), 415, "UnsupportedMediaType", "415: Unsupported Media Type", {}),
        (errors.expired("x"), 410, "Expired", "x", None),
        (
            errors.request_entity_too_large("limit is 3145728"),
            413,
            "RequestEntityTooLarge",
            "Request entity too large: limit is 3145728",
            None,
        ),
        (errors.too_many_requests("x", retry_after=2), 429, "TooManyRequests", "x", {"retryAfterSeconds": 2}),
        (errors.internal("x"), 500, "InternalError", "Internal error occurred: x", {"causes": [{"message": "x"}]}),
        (errors.raw("x"), 500, "", "x", None),
        (errors.service_unavailable("x"), 503, "ServiceUnavailable", "x", {"retryAfterSeconds": 1}),
        (errors.timeout("x"), 504, "Timeout", "Timeout: x", {}),
        (
            errors.too_large_resource_version(9, 5),
            504,
            "Timeout",
            "Timeout: Too large resource version: 9, current: 5",
            {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
        ),
    ],
)
def test_an_error_is_worded_as_upstream_words_it(
    error: StatusError, code: int, reason: str, message: str, details: dict[str, Any] | None
) -> None:
    assert (error.code, error.reason, error.message, error.details) == (code, reason, message, details)
    assert str(error) == message


def test_field_errors_are_named_once_in_the_message_and_all_in_the_causes() -> None:
    first, second = fieldpath.required("spec.a"), fieldpath.invalid("spec.b", 1, "no")
    error = errors.invalid(SLICE, "x", [first, second, first])
    assert error.message == f'{SLICE} "x" is invalid: [spec.a: Required value, spec.b: Invalid value: 1: no]'
    assert error.details is not None
    assert error.details["causes"] == [first.cause(), second.cause(), first.cause()]
    assert error.details["kind"] == "ResourceSlice"


def test_one_field_error_stands_without_brackets_and_none_without_a_colon() -> None:
    assert (
        errors.invalid(SLICE, "x", [fieldpath.required("a")] * 2).message
        == f'{SLICE} "x" is invalid: a: Required value'
    )
    assert errors.invalid(SLICE, "x", []).message == f'{SLICE} "x" is invalid'


def test_an_error_of_no_kind_starts_with_a_blank() -> None:
    error = errors.invalid(GroupKind("", ""), "", [fieldpath.invalid("patch", "x", "y")])
    assert error.message == ' "" is invalid: patch: Invalid value: "x": y'
    assert error.details is not None
    assert list(error.details) == ["causes"]


def test_the_retry_header_mirrors_the_details() -> None:
    assert errors.too_many_requests("x", retry_after=7).retry_after == 7
    assert errors.bad_request("x").retry_after == 0


def test_an_expired_list_can_carry_a_token_to_go_on_with() -> None:
    assert errors.expired("x", continue_token="t").status()["metadata"] == {"continue": "t"}


def test_a_text_error_is_no_status() -> None:
    error = errors.TextError(429, "no", headers={"Retry-After": "1"})
    assert (error.code, error.text, error.headers) == (429, "no", {"Retry-After": "1"})


def test_a_name_is_quoted_as_go_quotes_it() -> None:
    message = errors.invalid(SLICE, 'a"\u2028', []).status()["message"]
    assert message == 'ResourceSlice.resource.k8s.io "a\\"\\u2028" is invalid'
