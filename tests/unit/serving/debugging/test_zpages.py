"""Pages about the process, as kube-apiserver 1.37.2 answers."""

from __future__ import annotations

import re

import pytest
from aiohttp import web

from apiserver.apimachinery.errors import TextError
from apiserver.filters.state import Request
from apiserver.serving.debugging import zpages
from tests.fixtures.connection import Answer
from tests.unit.filters.chain import connect

BUILD = {"goVersion": "python3.11.2", "gitVersion": "v1.37.2+sluice-0.1.0"}
ASKED = "as=Statusz;v={};g=config.k8s.io"
LEVELS: list[int] = []
DOCUMENTS = {
    "/statusz": zpages.statusz(
        started=1_795_784_382.5,
        now=lambda: 1_795_784_382.5 + 3_725.9,
        build=BUILD,
        emulated="1.37",
        paths=("/readyz/ping", "/readyz", "/apis/a.test", "/openapi/v2", "/statusz", "/version", "/"),
    ),
    "/flagz": zpages.flagz(lambda: {"v": "3", "redis-url": "CLASSIFIED", "crds": ""}),
    **zpages.debug_flags(LEVELS.append),
}


async def ask(path: str, accept: str | None = None, *, method: str = "GET", body: bytes = b"") -> Answer:
    async def serve(request: Request) -> web.StreamResponse:
        document = DOCUMENTS.get(request.info.path)
        if document is None:
            raise TextError(404, "404 page not found\n")
        return await document(request)

    headers = {} if accept is None else {"Accept": accept}
    return await connect(serve).ask(method, path, headers=headers, body=body)


@pytest.mark.parametrize("accept", [None, " ", "*/*", "text/plain", "text/*", "text/html, text/plain;q=0.5"])
async def test_page_is_text_for_clients_that_ask_for_no_kind(accept: str | None) -> None:
    answer = await ask("/statusz", accept)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
    assert answer.text.startswith("\napiserver statusz\nWarning: This endpoint is not meant to be machine parseable")
    lines = answer.text.splitlines()[4:]
    assert re.fullmatch(r"Paths(:|: |=| ) /readyz /statusz /version", lines[-1])
    assert re.fullmatch(r"Started(:|: |=| ) Fri Nov 27 12:59:42 UTC 2026", lines[0])
    assert re.fullmatch(r"Up(:|: |=| ) 1 hr 02 min 05 sec", lines[1])


@pytest.mark.parametrize(("version", "warned"), [("v1beta1", False), ("v1alpha1", True)])
async def test_page_is_an_object_for_clients_that_ask_for_its_kind(version: str, warned: bool) -> None:
    answer = await ask("/statusz", "text/plain;q=0.1,application/json;" + ASKED.format(version))
    assert answer.headers["Content-Type"] == f"application/json;g=config.k8s.io;v={version};as=Statusz"
    assert answer.json == {
        "kind": "Statusz",
        "apiVersion": f"config.k8s.io/{version}",
        "metadata": {"name": "apiserver"},
        "startTime": "2026-11-27T12:59:42Z",
        "uptimeSeconds": 3725,
        "goVersion": "python3.11.2",
        "binaryVersion": "1.37.2+sluice-0.1.0",
        "emulationVersion": "1.37",
        "paths": ["/readyz", "/statusz", "/version"],
    }
    warning = '299 - "This version of the statusz endpoint is deprecated. Please use a newer version."'
    assert answer.headers.get("Warning") == (warning if warned else None)


async def test_page_as_yaml_has_sorted_members() -> None:
    answer = await ask("/flagz", "application/yaml;as=Flagz;v=v1beta1;g=config.k8s.io")
    assert answer.headers["Content-Type"] == "application/yaml;g=config.k8s.io;v=v1beta1;as=Flagz"
    assert answer.text == (
        'apiVersion: config.k8s.io/v1beta1\nflags:\n  crds: ""\n  redis-url: CLASSIFIED\n  v: "3"\n'
        "kind: Flagz\nmetadata:\n  name: apiserver\n"
    )


async def test_flags_have_one_line_each() -> None:
    lines = (await ask("/flagz")).text.splitlines()
    assert lines[1] == "apiserver flagz"
    assert [re.split(r": |[:= ]", line)[0] for line in lines[3:]] == ["crds", "redis-url", "v"]


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "text/html",
        "text/plain;" + ASKED.format("v1beta1"),
        "application/json;" + ASKED.format("v1"),
        "application/json;as=Flagz;v=v1beta1;g=config.k8s.io",
        "application/json;stream=watch;" + ASKED.format("v1beta1"),
        "application/json;sv=v1;" + ASKED.format("v1beta1"),
        ",",
    ],
)
async def test_other_forms_of_a_page_are_not_acceptable(accept: str) -> None:
    answer = await ask("/statusz", accept)
    assert answer.status == 406
    text = b" ".join(answer.body.split())
    assert b"only the following media types are accepted: application/json, application/yaml, text/plain" in text


@pytest.mark.parametrize("text", ["0", "7", "4294967295"])
async def test_put_changes_the_verbosity(text: str) -> None:
    LEVELS.clear()
    answer = await ask("/debug/flags/v", method="PUT", body=text.encode())
    assert (answer.status, answer.text) == (200, f"successfully set klog.logging.verbosity to {text}")
    assert answer.headers["Content-Type"] == "text/plain"
    assert [int(text)] == LEVELS


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"x", 'parsing "x": invalid syntax'),
        (b"", 'parsing "": invalid syntax'),
        (b"-1", 'parsing "-1": invalid syntax'),
        (b"4294967296", 'parsing "4294967296": value out of range'),
    ],
)
async def test_verbosity_that_is_no_number_is_refused(body: bytes, error: str) -> None:
    LEVELS.clear()
    answer = await ask("/debug/flags/v", method="PUT", body=body)
    assert (answer.status, answer.text) == (400, f"strconv.ParseUint: {error}")
    assert not LEVELS


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_verbosity_is_only_set_by_put(method: str) -> None:
    answer = await ask("/debug/flags/v", method=method)
    assert (answer.status, answer.text) == (406, "unsupported http method")


async def test_index_of_debug_flags_names_them() -> None:
    answer = await ask("/debug/flags")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<tr>v<br>" in answer.text
