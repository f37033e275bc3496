"""`python -m bench.cel`: expressions alone: to compile one, to find it compiled, to make a program of it, to evaluate it.

CPU of this process per operation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from apiserver.apimachinery.remembered import Remembered
from bench.accounting import operation_line
from kubecel.check.checker import Checked
from kubecel.check.declarations import Shape, Variable
from kubecel.kubernetes import environments
from kubecel.plan.program import Program
from kubecel.values.types import ANY, DYN, STRING, map_of, struct

SELECTOR = 'device.driver == "dra.example.com" && device.attributes["dra.example.com"].model == "x"'
RULE = "object.spec.replicas <= 5 && object.metadata.labels.all(k, k.size() < 20)"


def deployment() -> dict[str, object]:
    """An object of about 3 KB of JSON with ten labels."""
    labels = {f"app.example.com/l{at}": f"value-{at}" for at in range(10)}
    containers = [
        {
            "name": f"container-{at}",
            "image": f"registry.example.com/team/service-{at}:v1.2.3",
            "args": ["--verbose", "--listen=:8080", f"--peer=service-{at}"],
            "env": [{"name": f"NAME_{n}", "value": f"some value {n}"} for n in range(4)],
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        }
        for at in range(7)
    ]
    metadata = {"name": "service", "namespace": "default", "labels": labels, "generation": 3}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template},
    }


def lines() -> Iterator[str]:
    """Measure each operation and yield a line for it."""
    attributes = map_of(STRING, map_of(STRING, ANY))
    fields = {"driver": Shape(type=STRING), "attributes": Shape(type=attributes)}
    device = Shape(type=struct("kubernetes.DRADevice"), fields=fields)
    environment = environments.base().new.extend(
        variables=[Variable("device", device.type, shape=device), Variable("object", DYN)], shapes=[device]
    )
    remembered = Remembered[Checked](1 << 20)
    checked = environment.compile(SELECTOR)
    remembered.add(SELECTOR, checked, size=1000)
    rule = environment.compile(RULE)
    program = Program(rule, environment, cost_limit=environments.COST_LIMIT)
    document = deployment()
    variables = {"object": document}
    size = len(json.dumps(document, separators=(",", ":")))
    yield operation_line("CEL: parse and check a selector", lambda: environment.compile(SELECTOR))
    yield operation_line("CEL: the same, remembered", lambda: remembered.get(SELECTOR))
    yield operation_line("CEL: a program of it", lambda: Program(checked, environment))
    yield operation_line(f"CEL: evaluate a rule over {size} bytes", lambda: program.evaluate(variables))


def main() -> None:
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
