"""The examples of docs/admission.md, as they stand there: `sluice dev --admission` on a folder with the page's files."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import pathlib
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.e2e.controlplane.plane import until
from tests.fixtures.processes import free_port
from tests.fixtures.server import DevServer, Reply, dev_server

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "admission.md"
CLAIMS = "/apis/resource.sluice.dev/v1/namespaces/default/resourceclaims"
PORT = "9443"


def files() -> Mapping[str, str]:
    """Each file of the page by its name."""
    text = PAGE.read_text()
    found = dict(re.findall(r"`rules/([\w-]+\.yaml)`:\n\n```yaml\n(.*?)```", text, re.DOTALL))
    [found["hook.py"]] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    [found["certificate"]] = re.findall(r"^\$ (openssl .*)$", text, re.MULTILINE)
    return found


def claim(name: str, requests: int = 1) -> dict[str, Any]:
    asked = [{"name": f"r{n}", "exactly": {"deviceClassName": "gpu.example.com"}} for n in range(requests)]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": asked}}}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("rules")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, rules: pathlib.Path) -> Iterator[DevServer]:
    for name, text in files().items():
        if name.endswith(".yaml") and name != "webhooks.yaml":
            (rules / name).write_text(text)
    with dev_server(tmp_path_factory.mktemp("admission"), "--admission", str(rules)) as made:
        yield made


def create(server: DevServer, name: str, requests: int = 1) -> Reply:
    return server.request("POST", CLAIMS, claim(name, requests))


def test_the_policy_that_judges_and_its_parameter_read_again(server: DevServer, rules: pathlib.Path) -> None:
    refused = create(server, "two", 2)
    assert refused.status == 422
    text = "ValidatingAdmissionPolicy 'few-requests' with binding 'few-requests' denied request: at most 1 requests in a claim"
    assert text in refused.json["message"]
    assert text in " ".join(PAGE.read_text().split())
    file = rules / "few-requests.yaml"
    file.write_text(file.read_text().replace('most: "1"', 'most: "2"'))
    until(lambda: create(server, "two", 2).status == 201, "the changed file counts")


def test_the_policy_that_changes(server: DevServer) -> None:
    created = create(server, "said")
    labels = created.json["metadata"]["labels"]
    assert labels == {"example.com/by": "policy", "example.com/who": "kubernetes-admin"}
    assert json.dumps(labels, separators=(",", ":")) in PAGE.read_text()


@contextlib.contextmanager
def hook(folder: pathlib.Path) -> Iterator[tuple[int, str]]:
    """The page's webhook on a free port: that, and the caBundle."""
    page, port = files(), free_port()
    subprocess.run(page["certificate"].split(), cwd=folder, check=True, capture_output=True)
    (folder / "hook.py").write_text(page["hook.py"].replace(PORT, str(port)))
    with subprocess.Popen([sys.executable, "hook.py"], cwd=folder, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: _listens(port), "the webhook listens")
            yield port, base64.b64encode((folder / "cert.pem").read_bytes()).decode()
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def test_the_webhooks(server: DevServer, rules: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with hook(tmp_path) as (port, bundle):
        text = files()["webhooks.yaml"].replace(PORT, str(port)).replace("LS0t…", bundle)
        (rules / "webhooks.yaml").write_text(text)

        numbers = itertools.count()

        def labelled() -> bool:
            created = create(server, f"labelled-{next(numbers)}")
            return bool(created.json["metadata"]["labels"].get("team") == "gpu")

        until(labelled, "the webhooks are asked")
        refused = create(server, "tmp-one")
        assert (refused.status, refused.json["message"]) == (
            400,
            'admission webhook "names.rules.example.com" denied the request: no throw-away names',
        )
    away = create(server, "one")
    assert away.status == 500
    assert away.json["message"].startswith(
        'Internal error occurred: failed calling webhook "team.rules.example.com": failed to call webhook: '
        f'Post "https://localhost:{port}/label?timeout=10s": '
    )
