"""`python -m bench.admission`: what admission costs a write, alone: all plugins together, as they stand in `app.admission`.

CPU of this process per write, for the mutating and the validating step; what a webhook's own process takes is not in it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from apiserver import app, delegation, resources
from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.chain import Chain
from apiserver.admission.core.files import Files
from apiserver.admission.core.views import Views
from apiserver.admission.webhooks.calls import Caller, Callers
from apiserver.apimachinery.options import CreateOptions
from apiserver.apimachinery.request import Annotations, User, Warnings
from apiserver.codecs.objects import decoding, defaults
from apiserver.config import config
from apiserver.filters.request_info import parse
from apiserver.kinds.served import Kinds
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Object
from apiserver.serving import pki, steps
from bench.accounting import ROUNDS

if TYPE_CHECKING:
    from apiserver.storage.store import Stores

GROUP = "resource.sluice.dev"
KINDS = Kinds(resources.RESOURCES, group=GROUP)
WRITES = 2000
NOW = "2026-01-01T00:00:00Z"


def registered(kind: str, name: str, **members: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, **members}


def rules(*plurals: str) -> list[dict[str, Any]]:
    return [{"apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["*"], "resources": list(plurals)}]


def policies(*plurals: str) -> list[dict[str, Any]]:
    """One of three expressions, with its binding."""
    expressions = (
        "size(object.spec.devices.requests) <= 8",
        "object.spec.devices.requests.all(r, has(r.exactly) && r.exactly.deviceClassName.endsWith('.example.com'))",
        "!has(object.metadata.labels) || object.metadata.labels.all(k, k.size() < 63)",
    )
    spec = {
        "matchConstraints": {"resourceRules": rules(*plurals)},
        "validations": [{"expression": expression} for expression in expressions],
    }
    binding = {"policyName": "three", "validationActions": ["Deny"]}
    return [
        registered("ValidatingAdmissionPolicy", "three", spec=spec),
        registered("ValidatingAdmissionPolicyBinding", "three", spec=binding),
    ]


def webhooks(port: int, ca: bytes, *plurals: str) -> list[dict[str, Any]]:
    """One validating webhook that asks for claims."""
    hook = {
        "name": "all.bench.example.com",
        "clientConfig": {"url": f"https://localhost:{port}/", "caBundle": base64.b64encode(ca).decode()},
        "rules": rules(*plurals),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return [registered("ValidatingWebhookConfiguration", "one", webhooks=[hook])]


@contextlib.contextmanager
def hook(folder: Path) -> Iterator[tuple[int, bytes]]:
    """A webhook's process: its port, and the CA that vouches for it."""
    kit = pki.kit(folder / "certs", hosts=["localhost"], user="nobody", groups=[], now=dt.datetime.now(dt.UTC))
    command = [sys.executable, "-m", "bench.hook", str(kit.files.cert), str(kit.files.key)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), kit.ca_pem
        finally:
            process.kill()


def claim() -> Object:
    """A claim with two requests, as it is stored."""
    kind = KINDS.at(GROUP, "v1", "resourceclaims")
    assert kind is not None
    requests = [
        {"name": name, "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}}
        for name in ("a", "b")
    ]
    metadata = {"name": "c", "namespace": "default", "labels": {"app.example.com/a": "b"}}
    obj = decoding.decode(kind.shape, {"metadata": metadata, "spec": {"devices": {"requests": requests}}}).object
    defaults.apply(kind.shape, obj, now=NOW)
    return {"kind": kind.kind, "apiVersion": kind.api_version, **obj}


def change(obj: Object) -> Attributes:
    kind = KINDS.at(GROUP, "v1", "resourceclaims")
    assert kind is not None
    return Attributes(
        operation="CREATE",
        options=CreateOptions(),
        info=parse("POST", f"/apis/{GROUP}/v1/namespaces/default/resourceclaims"),
        user=User("jane", groups=("system:authenticated",)),
        resource=kind,
        name="c",
        object=obj,
        old=None,
        warnings=Warnings(),
        annotations=Annotations(),
        until=asyncio.get_running_loop().time() + 60,
        views=Views(size=800),
    )


def chain(folder: Path, callers: Callers, *documents: dict[str, Any]) -> Chain:
    """The plugins of `sluice dev`, configured by these objects."""
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    settings = config.parse(["dev"], {})
    files = Files([file], now=lambda: NOW)
    assert files.load() == []
    delegates = delegation.alone(settings, files.sources, callers)
    plugins = app.admission(delegates, KINDS, cast("Stores", {}), gates=Gates())
    return Chain([plugin for plugin in plugins if settings.admission.asks(type(plugin).__name__)])


async def cost(write: Callable[[Attributes], Awaitable[None]]) -> float:
    """CPU seconds of one write: the best of several rounds. The attributes are made before the clock starts."""
    obj = claim()
    best = float("inf")
    for _ in range(ROUNDS):
        changes = [change({**obj}) for _ in range(WRITES)]
        began = time.process_time()
        for each in changes:
            await write(each)
        best = min(best, time.process_time() - began)
    return best / WRITES


async def measure() -> None:
    callers = Callers(Caller(), Caller(), Caller())
    with tempfile.TemporaryDirectory() as name, hook(Path(name)) as (port, ca):
        for text, documents in (
            ("nothing is configured", []),
            ("no configuration matches", [*policies("deviceclasses"), *webhooks(port, ca, "deviceclasses")]),
            ("a policy of three expressions", policies("resourceclaims")),
            ("a webhook", webhooks(port, ca, "resourceclaims")),
        ):
            asked = chain(Path(name), callers, *documents)

            async def write(attributes: Attributes, asked: Chain = asked) -> None:
                await asked.admit(attributes)
                await asked.validate(attributes)

            print(f"{'admission: ' + text:40} {await cost(write) * 1e6:8.2f} µs", flush=True)
    await callers.close()


def main() -> None:
    with asyncio.Runner(loop_factory=steps.new_event_loop) as runner:
        runner.run(measure())


if __name__ == "__main__":
    main()
