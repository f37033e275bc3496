"""Rights of users whom the administrator impersonates."""

from __future__ import annotations

import pytest

from tests.promises.api.client import Client, Refusal, claim

SERVED = "resourceclaims"


def forbidden(api: Client, method: str, path: str, **user: str) -> Refusal:
    """The refusal of a user: `User`, `Group`, `Uid` of the impersonation headers."""
    headers = {f"Impersonate-{name}": value for name, value in user.items()}
    return Refusal(api.ask(method, path, headers=headers))


@pytest.mark.parametrize(
    ("method", "path", "verb", "subresource"),
    [
        ("GET", "", "list", ""),
        ("GET", "?watch=1", "watch", ""),
        ("GET", "/one", "get", ""),
        ("POST", "", "create", ""),
        ("PUT", "/one", "update", ""),
        ("PATCH", "/one", "patch", ""),
        ("DELETE", "/one", "delete", ""),
        ("DELETE", "", "deletecollection", ""),
        ("GET", "/one/status", "get", "/status"),
        ("PUT", "/one/status", "update", "/status"),
        ("PATCH", "/one/status", "patch", "/status"),
    ],
)
def test_user_without_a_right_learns_which_one_is_missing(
    api: Client, mine: str, method: str, path: str, verb: str, subresource: str
) -> None:
    named = path.startswith("/one")

    refusal = forbidden(api, method, api.claims(mine) + path, User="jane")

    whom = f'{SERVED}.{api.group} "one"' if named else f"{SERVED}.{api.group}"
    what = f'cannot {verb} resource "{SERVED}{subresource}" in API group "{api.group}" in the namespace "{mine}"'
    assert refusal == (403, "Forbidden", f'{whom} is forbidden: User "jane" {what}')
    assert refusal.details == {**({"name": "one"} if named else {}), "group": api.group, "kind": SERVED}
    assert refusal.reply.headers["X-Content-Type-Options"] == "nosniff"


def test_the_cluster_is_a_scope_of_its_own(api: Client, mine: str) -> None:
    for path, resource in ((api.classes, "deviceclasses"), (api.all_claims, SERVED)):
        message = forbidden(api, "GET", path, User="jane").message
        assert message.endswith(f'cannot list resource "{resource}" in API group "{api.group}" at the cluster scope')
    assert forbidden(api, "GET", "/metrics", User="jane").message == 'forbidden: User "jane" cannot get path "/metrics"'


def test_a_list_of_one_name_is_judged_by_that_name(api: Client, mine: str) -> None:
    refusal = forbidden(api, "GET", f"{api.claims(mine)}?fieldSelector=metadata.name%3Dx", User="jane")

    assert refusal.message.startswith(f'{SERVED}.{api.group} "x" is forbidden: User "jane" cannot list')


def test_an_unauthorized_user_learns_nothing_about_what_there_is(api: Client, mine: str) -> None:
    api.create(api.claims(mine), claim("one"))

    for path in (f"{api.claims(mine)}/one", f"{api.claims(mine)}/none", f"{api.v1}/nothings/x"):
        assert forbidden(api, "GET", path, User="jane").code == 403


def test_discovery_is_for_every_authenticated_user(api: Client) -> None:
    for path in (api.v1, "/apis", "/openapi/v3", "/version"):
        assert api.ask("GET", path, headers={"Impersonate-User": "jane"}).status == 200
    refusal = forbidden(api, "GET", api.v1, User="system:anonymous")
    assert refusal == (403, "Forbidden", f'forbidden: User "system:anonymous" cannot get path "{api.v1}"')


def test_a_member_of_the_masters_may_do_everything(api: Client, mine: str) -> None:
    headers = {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}

    assert api.ask("POST", api.claims(mine), claim("one"), headers=headers).status == 201


def test_names_of_users_are_quoted_for_html_too(api: Client, mine: str) -> None:
    message = forbidden(api, "GET", api.claims(mine), User='we"ird<&>').message

    assert 'User "we\\"ird&lt;&amp;&gt;" cannot list' in message


@pytest.mark.parametrize("user", [{"Group": "x"}, {"Uid": "5"}, {"Extra-scope": "y"}])
def test_partial_impersonation_is_refused(api: Client, mine: str, user: dict[str, str]) -> None:
    refusal = forbidden(api, "GET", api.claims(mine), **user)

    assert (refusal.code, refusal.reason) == (400, "BadRequest")
    assert refusal.message.endswith("without impersonating a user name")
