"""TracingConfiguration, and kube-apiserver's words about wrong files."""

from __future__ import annotations

import asyncio
import pathlib
import threading
from typing import cast

import pytest
import yaml

from apiserver.config.config import ConfigError
from apiserver.runtime.spans import Tracer
from apiserver.tracing import configuration, opening
from apiserver.tracing.configuration import InvalidConfiguration, TracingConfiguration
from tests.fixtures.valkey import eventually

RECORDED = yaml.safe_load((pathlib.Path(__file__).parent / "kube_apiserver_configurations.yaml").read_text())
V1 = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
READ = "failed to read tracing config: unable to decode tracing configuration data: "
WRONG = "failed to validate tracing configuration: "
SCHEMES = "Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1"])
def test_every_version_is_read(version: str) -> None:
    text = V1.replace("v1\n", f"{version}\n") + "endpoint: collector:4317\nsamplingRatePerMillion: 100\n"
    assert configuration.read(text.encode()) == TracingConfiguration("collector:4317", 100)


@pytest.mark.parametrize("text", [V1, V1 + "endpoint: null\n", '{"kind": "TracingConfiguration"}', ""])
def test_default_is_the_local_collector_and_no_sampling(text: str) -> None:
    assert configuration.read(text.encode()) == TracingConfiguration("", 0)


@pytest.mark.parametrize(
    "endpoint", ["dns://x:4317", "dns:///x", "unix:///run/o.sock", "unix-abstract://o", "'[::1]:4317'", "x"]
)
def test_endpoint_may_have_grpcs_schemes(endpoint: str) -> None:
    assert configuration.read(f"{V1}endpoint: {endpoint}\n".encode()).endpoint == endpoint.strip("'")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            V1 + "samplingRatePerMillion: -1\n",
            WRONG + "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
        ),
        (
            V1 + "samplingRatePerMillion: 1000001\nendpoint: http://x\n",
            WRONG
            + "[samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million, "
            f'endpoint: Invalid value: "http://x": unsupported scheme: http.  {SCHEMES}]',
        ),
        (
            V1 + "endpoint: dn%2s://x\n",
            WRONG
            + 'endpoint: Invalid value: "dn%2s://x": parse "dn%2s://x": first path segment in URL cannot contain colon',
        ),
        (
            V1 + "endpoint: x:port\n",
            WRONG + 'endpoint: Invalid value: "dns://x:port": parse "dns://x:port": invalid port ":port" after host',
        ),
        (
            V1 + "endpoint: 5\n",
            READ
            + "json: cannot unmarshal number into Go struct field TracingConfiguration.TracingConfiguration.endpoint "
            "of type string",
        ),
        (
            V1.replace("TracingConfiguration", "WatchEvent"),
            READ + "converting (v1.WatchEvent) to (apiserver.TracingConfiguration): unknown conversion",
        ),
        (V1 + "rate: 1\n", READ + 'strict decoding error: unknown field "rate"'),
        (
            '{"kind":"TracingConfiguration","apiVersion":"apiserver.config.k8s.io/v1","endpoint":"a","endpoint":"b"}',
            READ + 'strict decoding error: duplicate field "endpoint"',
        ),
        (
            V1.replace("TracingConfiguration", "AuthenticationConfiguration"),
            READ
            + "converting (v1.AuthenticationConfiguration) to (apiserver.TracingConfiguration): unknown conversion",
        ),
        (
            V1.replace("v1\n", "v2\n"),
            READ + 'no kind "TracingConfiguration" is registered for version "apiserver.config.k8s.io/v2" in scheme '
            '"pkg/runtime/scheme.go:111"',
        ),
    ],
)
def test_wrong_file_is_refused_in_upstreams_words(text: str, why: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        configuration.read(text.encode())
    assert str(caught.value) == why


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: recorded["file"])
def test_file_is_judged_as_a_kube_apiserver_judged_it(recorded: dict[str, str]) -> None:
    said = None
    try:
        configuration.read(recorded["file"].encode())
    except InvalidConfiguration as error:
        said = str(error)
    assert said == recorded.get("refusal")


def test_missing_file_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        configuration.load(str(tmp_path))
    assert str(caught.value) == (
        f'failed to read tracing config: unable to read tracing configuration from "{tmp_path}": read {tmp_path}: is a directory'
    )


def test_missing_library_is_named_with_its_remedy(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tracing.yaml"
    file.write_text(V1)
    assert list(opening.errors(str(file))) == []
    monkeypatch.setattr(opening, "LIBRARIES", ("no_such_library.sdk",))
    with pytest.raises(ConfigError) as caught:
        opening.open_tracer(str(file))
    assert caught.value.errors == [
        "--tracing-config-file: tracing needs the OpenTelemetry SDK: pip install 'sluice-apiserver[tracing]'"
    ]


class Waiting:
    """A tracer whose collector does not answer."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.threads: list[threading.Thread] = []

    def close(self) -> None:
        self.threads.append(threading.current_thread())
        self.answers.wait()


async def test_end_of_the_process_does_not_wait_for_the_collector() -> None:
    tracer = Waiting()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await opening.close_tracer(cast(Tracer, tracer))
    await eventually(lambda: bool(tracer.threads))
    assert [thread.daemon for thread in tracer.threads] == [True]
    tracer.answers.set()
    await asyncio.to_thread(tracer.threads[0].join)
    await opening.close_tracer(cast(Tracer, tracer))


def test_without_a_file_nothing_is_traced() -> None:
    assert opening.open_tracer("") is None
    assert list(opening.errors("")) == []
