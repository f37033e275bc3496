"""The package of docs/kinds.md, built and installed, served by `sluice dev --kinds` and used with kubectl."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
import yaml

from tests.e2e.conftest import Kubectl
from tests.e2e.controlplane import kubectl as real_kubectl
from tests.fixtures import example_kind
from tests.fixtures.example_kind import GROUP
from tests.fixtures.server import DevServer
from tests.fixtures.valkey import Server

HOUSE = "/apis/resource.sluice.dev/v1"
SHIPS = f"/apis/{GROUP}/v1/namespaces/default/ships"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where the package is installed."""
    return example_kind.installed(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def server(site: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """On a folder that was used without the package before."""
    data = tmp_path_factory.mktemp("harbour") / "data"
    environ = {"PYTHONPATH": str(site)}
    with DevServer(data, environ=environ) as without:
        assert without.request("GET", SHIPS).status == 404
        without.request("POST", f"{HOUSE}/deviceclasses", {"metadata": {"name": "kept"}, "spec": {}})
    with DevServer(data, "--kinds", "harbour", environ=environ) as running:
        yield running


@pytest.fixture
def emptied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A store in which nothing was ever made."""
    server = Server(tmp_path_factory.mktemp("v"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def kubectl(server: DevServer, tmp_path: pathlib.Path) -> Kubectl:
    def run(*words: str, stdin: str = "", check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        return real_kubectl.run(
            *words, kubeconfig=server.kubeconfig, home=tmp_path, stdin=stdin, check=check, **environ
        )

    return run


def manifest(name: str, **spec: object) -> str:
    document = yaml.safe_load(example_kind.manifest())
    document["metadata"]["name"] = name
    document["spec"] |= spec
    return str(yaml.safe_dump(document))


def test_a_folder_that_was_used_without_the_package_goes_on_with_it(server: DevServer) -> None:
    assert server.request("GET", f"{HOUSE}/deviceclasses/kept").status == 200
    assert server.request("GET", SHIPS).json["items"] == []
    assert server.request("GET", "/readyz").status == 200


def test_the_object_of_the_page_is_created_and_shown(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=example_kind.manifest())

    ship = json.loads(kubectl("get", "sh/argo", "-o", "json").stdout)
    assert (ship["apiVersion"], ship["kind"]) == (f"{GROUP}/v1", "Ship")
    assert ship["spec"] == {"captain": "jason", "crew": 1}
    header, row = kubectl("get", "ships").stdout.splitlines()
    assert (header.split(), row.split()[0]) == (["NAME", "AGE"], "argo")
    kubectl("delete", "ship", "argo")
    assert "No resources found" in kubectl("get", "ships").stderr


def test_apply_patch_and_label_work_as_for_any_kind(kubectl: Kubectl) -> None:
    assert "created" in kubectl("apply", "-f", "-", stdin=manifest("applied")).stdout
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=manifest("applied")).stdout
    assert "configured" in kubectl("apply", "-f", "-", stdin=manifest("applied", crew=50)).stdout
    kubectl("patch", "ship", "applied", "--type", "merge", "-p", '{"spec":{"captain":"medea"}}')
    kubectl("label", "ship", "applied", "sea=black")
    shown = kubectl("get", "ships", "-l", "sea=black", "--field-selector", "spec.captain=medea", "-o", "name").stdout
    assert shown == f"ship.{GROUP}/applied\n"
    assert kubectl("get", "ship", "applied", "-o", "jsonpath={.spec.crew}").stdout == "50"
    kubectl("delete", "ship", "applied")


def test_values_that_violate_the_shape_get_upstreams_message(kubectl: Kubectl) -> None:
    wrong = kubectl("create", "-f", "-", stdin=manifest("wrong", captain=""), check=False)
    assert 'The Ship "wrong" is invalid: spec.captain: Required value' in wrong.stderr
    strict = kubectl("create", "-f", "-", stdin=manifest("wrong", sails=3), check=False)
    assert 'unknown field "spec.sails"' in strict.stderr


def test_discovery_and_explain_know_the_kind(kubectl: Kubectl) -> None:
    (row,) = kubectl("api-resources", f"--api-group={GROUP}", "--no-headers").stdout.splitlines()
    assert row.split() == ["ships", "sh", f"{GROUP}/v1", "true", "Ship"]
    explained = kubectl("explain", "ship.spec").stdout
    assert "Desired state of a ship." in explained
    assert "captain\t<string> -required-" in explained


def test_a_watch_sees_what_happens(server: DevServer) -> None:
    before = server.request("GET", SHIPS).json["metadata"]["resourceVersion"]
    ship = {"metadata": {"name": "watched"}, "spec": {"captain": "jason"}}
    assert server.request("POST", SHIPS, ship).status == 201
    assert server.request("DELETE", f"{SHIPS}/watched").status == 200

    seen = server.request("GET", f"{SHIPS}?watch=1&resourceVersion={before}&timeoutSeconds=1").text

    events = [json.loads(line) for line in seen.splitlines()]
    assert [(e["type"], e["object"]["kind"]) for e in events] == [("ADDED", "Ship"), ("DELETED", "Ship")]


def test_the_store_gets_a_place_for_kinds_that_come_later(site: pathlib.Path, emptied: Server) -> None:
    def sluice(*words: str) -> subprocess.CompletedProcess[str]:
        environ = {**os.environ, "PYTHONPATH": str(site), "SLUICE_REDIS_URL": emptied.url}
        command = [sys.executable, "-m", "apiserver", "store", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)

    assert sluice("init").returncode == 0
    missing = sluice("check", "--kinds", "harbour")
    assert missing.returncode == 1
    assert f"{GROUP}/ships" in missing.stdout
    added = sluice("init", "--kinds", "harbour").stdout
    assert f"{GROUP}/ships: created" in added
    assert "resource.sluice.dev/resourceslices: already there" in added
    assert sluice("check", "--kinds", "harbour").returncode == 0
    assert f"{GROUP}/ships: schema 2, epoch" in sluice("info", "--kinds", "harbour").stdout


def test_a_package_that_cannot_be_served_ends_the_start_with_code_2(tmp_path: pathlib.Path) -> None:
    (tmp_path / "broken.py").write_text("RESOURCES = ['ships']\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "apiserver", "dev", "--data-dir", str(tmp_path / "data"), "--kinds", "broken"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == "sluice: --kinds: broken: RESOURCES[0] is not a Resource"
    assert not (tmp_path / "data").exists()


DEPOT = """
from sluice.kinds import (
    Boolean, Column, Conversion, Field, Integer, Path, Presence, Refused, Resource, String, Struct, Time, Version,
    columns, fieldpath, shapes,
)


def shape(*fields):
    spec = Struct(name="DepotSpec", doc="A spec.", fields=fields)
    return Struct(name="Depot", doc="A depot.", fields=[
        Field(name="metadata", number=1, type=shapes.OBJECT_META, presence=Presence.ALWAYS, doc="Metadata."),
        Field(name="spec", number=2, type=spec, presence=Presence.ALWAYS, doc="The spec."),
    ])


GATES = Field(name="gates", number=1, type=Integer(bits=32), presence=Presence.POINTER, doc="Gates.")
OPEN = Field(name="open", number=2, type=Boolean(), presence=Presence.POINTER, doc="Whether it is open.")
BUILT = Field(name="built", number=3, type=Time(), presence=Presence.POINTER, doc="When it was built.")
WORDS = Field(name="gates", number=1, type=String(), doc="Gates, in digits.")


def to_storage(obj):
    gates = obj["spec"].pop("gates", "")
    if gates and not gates.isdigit():
        raise Refused(fieldpath.invalid(Path("spec").child("gates"), gates, "must be digits"))
    if gates:
        obj["spec"]["gates"] = int(gates)
    return obj


def from_storage(obj):
    if "gates" in obj["spec"]:
        obj["spec"]["gates"] = str(obj["spec"]["gates"])
    return obj


def picky(obj, now):
    return 100 // obj["spec"]["gates"]


RESOURCES = [
    Resource(
        group="depot.example.com", kind="Depot", plural="depots", singular="depot", namespaced=True,
        shape=shape(GATES, OPEN, BUILT),
        columns=(
            columns.NAME,
            columns.member("Gates", "spec.gates", "integer"),
            columns.member("Open", "spec.open", "boolean"),
            columns.member("Built", "spec.built", "date"),
            Column(name="Share", cell=picky, reads=["spec.gates"], type="integer"),
        ),
        versions=[Version(name="v2", shape=shape(WORDS, OPEN, BUILT), conversion=Conversion(to_storage, from_storage))],
    )
]
"""
DEPOTS = "/apis/depot.example.com/{}/namespaces/default/depots"


@pytest.fixture(scope="module")
def depot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    site = tmp_path_factory.mktemp("depot")
    (site / "depot.py").write_text(DEPOT)
    with DevServer(site / "data", "--kinds", "depot", environ={"PYTHONPATH": str(site)}) as running:
        yield running


def test_integer_boolean_and_date_columns_survive_a_failing_cell(depot: DevServer, tmp_path: pathlib.Path) -> None:
    for name, spec in (
        ("full", {"gates": 4, "open": False, "built": "2000-01-01T00:00:00Z"}),
        ("none", {"gates": 0}),
    ):
        assert depot.request("POST", DEPOTS.format("v1"), {"metadata": {"name": name}, "spec": spec}).status == 201
    shown = real_kubectl.run("get", "depots.v1.depot.example.com", kubeconfig=depot.kubeconfig, home=tmp_path).stdout
    header, full, none = (line.split() for line in shown.splitlines())
    assert header == ["NAME", "GATES", "OPEN", "BUILT", "SHARE"]
    assert (full[:3], full[4]) == (["full", "4", "false"], "25")
    assert full[3].endswith("y")
    assert none == ["none", "0", "<unknown>", "<error>"]
    table = depot.request(
        "GET", DEPOTS.format("v1"), headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    ).json
    assert [column["type"] for column in table["columnDefinitions"]] == [
        "string",
        "integer",
        "boolean",
        "date",
        "integer",
    ]
    assert table["rows"][1]["cells"] == ["none", 0, None, "<unknown>", "<error>"]


@pytest.mark.parametrize(
    ("method", "path", "media"),
    [
        ("POST", "", "application/json"),
        ("PUT", "/there", "application/json"),
        ("PATCH", "/there", "application/merge-patch+json"),
        ("PATCH", "/there?fieldManager=a&force=true", "application/apply-patch+yaml"),
        ("PATCH", "/fresh?fieldManager=a", "application/apply-patch+yaml"),
    ],
)
def test_a_value_that_a_conversion_refuses_is_422_with_its_path(
    depot: DevServer, method: str, path: str, media: str
) -> None:
    v2 = DEPOTS.format("v2")
    depot.request("POST", v2, {"metadata": {"name": "there"}, "spec": {"gates": "3"}})
    name = path.strip("/").partition("?")[0] or "posted"
    body = {
        "apiVersion": "depot.example.com/v2",
        "kind": "Depot",
        "metadata": {"name": name},
        "spec": {"gates": "many"},
    }

    refused = depot.request(method, f"{v2}{path}", body, headers={"Content-Type": media})

    assert refused.status == 422
    text = f'Depot.depot.example.com "{name}" is invalid: spec.gates: Invalid value: "many": must be digits'
    assert refused.json["message"] == text
    causes = [
        {"reason": "FieldValueInvalid", "message": 'Invalid value: "many": must be digits', "field": "spec.gates"}
    ]
    assert refused.json["details"]["causes"] == causes
    assert depot.request("GET", f"{DEPOTS.format('v1')}/there").json["spec"] == {"gates": 3}
    assert depot.request("GET", f"{v2}/there").json["spec"] == {"gates": "3"}


def test_kinds_check_says_what_would_be_served_or_all_that_is_wrong(site: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "dock.py").write_text(
        "from dataclasses import replace\n"
        "import harbour\n"
        "from sluice.kinds import Integer\n"
        "ship, = harbour.RESOURCES\n"
        "captain, crew = harbour.SPEC.fields\n"
        "spec = replace(harbour.SPEC, fields=[captain, replace(crew, type=Integer(bits=16))])\n"
        "wrong = replace(ship, shape=replace(ship.shape, fields=[ship.shape.fields[0], replace(ship.shape.fields[1], type=spec)]))\n"
        "RESOURCES = [replace(wrong, short_names='qq', validate=lambda obj: ())]\n"
    )
    environ = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{tmp_path}"}

    def check(*packages: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "apiserver", "kinds", "check", *packages]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)

    fine = check("harbour")
    assert (fine.returncode, fine.stdout, fine.stderr) == (
        0,
        f"{GROUP}/v1 ships: Ship, namespaced, short names sh, stored\n",
        "",
    )
    wrong = check("dock")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.splitlines() == [
        "sluice: --kinds: dock: Ship: short_names: 'qq' is not a tuple of str",
        "sluice: --kinds: dock: Ship: member spec.crew: Integer: bits: 16 is not 32 or 64",
        "sluice: --kinds: dock: Ship: validate: it is called with (context, new, old), and takes (obj)",
        "sluice: use --kinds PACKAGE: installed Python package whose RESOURCES are served too",
        "sluice: see `sluice kinds --help`",
    ]
