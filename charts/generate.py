"""Writes charts/sluice from manifests/: the objects of `base`, `store-init`, `backup` and `store-nodes` as kustomize renders them,
with values in the places where clusters differ, and the templates of texts.py. `make chart`; tests/structure/test_chart.py holds the
two together. schema.py makes the schema of the values.

Actions of Helm's templates replace values; the replaced text is the default in values.yaml. So with the defaults the chart is
what kustomize makes, but for the namespace, which Helm makes itself.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
from typing import Any

import yaml

from apiserver import buildinfo
from charts import schema, texts
from monitoring import dashboards
from tests.e2e.controlplane import binaries

PROJECT = pathlib.Path(__file__).resolve().parents[1]
CHART = PROJECT / "charts" / "sluice"
MONITORING = PROJECT / "monitoring"
NAMESPACE = "sluice-system"
SERVER = "sluice"
STORE = "sluice-valkey"
"""The name of all that belongs to the store alone."""
BACKUP = "sluice-backup"
"""The name of all that belongs to backups alone."""

THREE = "(eq (int .Values.store.nodes) 3)"
"""The condition of what belongs to a store on three nodes."""

KIND_ROLES = ("sluice-view", "sluice-edit", "sluice-driver", "sluice-scheduler")
"""ClusterRoles of the built-in kinds."""

Object = dict[str, Any]

WRITTEN = "Written by `make chart`, from manifests/."
VALUE = re.compile(r"\.Values\.([\w.]+)")
_ACTION = re.compile(r"'?«(.*?)»'?")
_OPTIONAL = re.compile(r"^( *)(\w+): '?«with (\S+)»'?\n", re.MULTILINE)
_BLOCK = re.compile(r"^( *)([^\s:]+): '?»(.*?)«'?$", re.MULTILINE)


def semantic(version: str) -> str:
    """Write a version of PEP 440 as Helm wants it: `0.2.0.dev0` is `0.2.0-dev.0`."""
    return version.replace(".dev", "-dev.")


CHART_YAML: Object = {
    "apiVersion": "v2",
    "name": "sluice",
    "description": "A Kubernetes aggregated API server that keeps resource.k8s.io-style objects in Redis Streams",
    "type": "application",
    "version": semantic(buildinfo.version()),
    "appVersion": semantic(buildinfo.version()),
}


def action(text: str) -> str:
    """In place of a value."""
    return f"«{text}»"


def block(text: str) -> str:
    """In place of a list or mapping; Helm indents it."""
    return f"»{text}«"


def optional(value: str) -> str:
    """In place of a list or mapping that is missing when the value is empty."""
    return f"«with {value}»"


def rendered(*components: str) -> list[Object]:
    """Objects that kustomize renders from the base, the Job that creates the store, and the CronJob that backs it up."""
    with tempfile.TemporaryDirectory() as folder:
        manifests = os.path.relpath(PROJECT / "manifests", pathlib.Path(folder).resolve())
        kustomization = {
            "resources": [f"{manifests}/{part}" for part in ("base", "store-init", "backup")],
            "components": [f"{manifests}/{part}" for part in components],
        }
        (pathlib.Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        command = [str(binaries.kubectl()), "kustomize", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [item for item in yaml.safe_load_all(done.stdout) if item["kind"] != "Namespace"]


def files() -> dict[str, str]:
    """The files of the chart, by their paths in it."""
    objects = rendered()
    values = _values(objects)
    written: dict[str, str] = {
        "Chart.yaml": f"# {WRITTEN}\n{_dumped(CHART_YAML)}",
        "values.yaml": values,
        "values.schema.json": f"{json.dumps(schema.schema(values), indent=2, ensure_ascii=False)}\n",
        "templates/NOTES.txt": texts.NOTES,
        "templates/_definitions.tpl": texts.DEFINITIONS,
        "templates/configmap-sluice-crds.yaml": texts.CRDS_CONFIGMAP,
        "templates/apiservice-crds.yaml": texts.CRDS_APISERVICES,
        "templates/clusterrole-crds.yaml": texts.CRDS_ROLES,
        "templates/metrics-reader.yaml": texts.METRICS_READER,
        "templates/servicemonitor-sluice.yaml": texts.SERVICE_MONITOR,
        "templates/prometheusrule-sluice.yaml": texts.PROMETHEUS_RULE,
        "templates/configmap-sluice-dashboards.yaml": texts.DASHBOARDS,
        "files/rules.yaml": (MONITORING / "rules.yaml").read_text(),
    }
    written |= {f"files/dashboards/{name}": text for name, text in dashboards.files().items()}
    one, three = ({_file(item): item for item in found} for found in (objects, rendered("store-nodes")))
    assert len(one) == len(objects)
    for name in {**one, **three}:
        if name not in one:
            written[name] = _only_if(f".Values.store.embedded {THREE}", _body(copy.deepcopy(three[name])), and_=True)
        elif one[name] == three[name]:
            written[name] = _template(copy.deepcopy(one[name]))
        else:
            forms = (copy.deepcopy(form) for form in (three[name], one[name]))
            written[name] = _either(THREE, *forms)
    for file in sorted((PROJECT / "certs" / "cert-manager").glob("*-*.yaml")):
        item = yaml.safe_load(file.read_text())
        item["metadata"]["labels"] = {"app.kubernetes.io/part-of": "sluice"}
        body = _body(item)
        if item["kind"] == "Certificate" and "dnsNames" in item["spec"]:
            body = body.replace(f".{NAMESPACE}", ".{{ .Release.Namespace }}")
        written[f"templates/{file.name}"] = _only_if(".Values.certificates.certManager", body)
    return written


def prometheus_rule() -> str:
    """The text of monitoring/prometheusrule.yaml: the rules as an object for Prometheus' operator."""
    head = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "labels": {"app.kubernetes.io/name": "sluice", "app.kubernetes.io/part-of": "sluice"},
            "name": "sluice",
            "namespace": NAMESPACE,
        },
    }
    rules = textwrap.indent((MONITORING / "rules.yaml").read_text(), "  ")
    return f"# Written by `make chart`, from rules.yaml.\n{_dumped(head)}spec:\n{rules}"


def _file(item: Object) -> str:
    return f"templates/{item['kind'].lower()}-{item['metadata']['name']}.yaml"


def _values(objects: list[Object]) -> str:
    server, store = _container(_one(objects, "Deployment")), _container(_one(objects, "StatefulSet"))
    [claim] = _one(objects, "StatefulSet")["spec"]["volumeClaimTemplates"]
    return texts.VALUES.format(
        written=WRITTEN,
        image=server["image"],
        policy=server["imagePullPolicy"],
        replicas=_one(objects, "Deployment")["spec"]["replicas"],
        resources=_indented(_dumped(server["resources"]), 2),
        store_image=store["image"],
        store_resources=_indented(_dumped(store["resources"]), 4),
        size=claim["spec"]["resources"]["requests"]["storage"],
        backup_resources=_indented(_dumped(_container(_one(objects, "CronJob"))["resources"]), 4),
        schedule=_one(objects, "CronJob")["spec"]["schedule"],
        backup_size=_one(objects, "PersistentVolumeClaim")["spec"]["resources"]["requests"]["storage"],
    )


def _one(objects: list[Object], kind: str) -> Object:
    [found] = [item for item in objects if item["kind"] == kind]
    return found


PLACEMENT = ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")


def _container(workload: Object) -> Object:
    container: Object
    spec = workload["spec"]["jobTemplate"]["spec"] if workload["kind"] == "CronJob" else workload["spec"]
    [container] = spec["template"]["spec"]["containers"]
    return container


def _template(item: Object) -> str:
    match item["kind"]:
        case "Deployment":
            _server(item)
            return f"{texts.CA_CHECK}{_body(item)}"
        case "StatefulSet":
            _store(item)
        case "Job":
            container = _container(item)
            item["metadata"]["name"] = action('include "sluice.storeJob" .')
            container["image"], container["imagePullPolicy"] = map(action, (".Values.image", ".Values.imagePullPolicy"))
            container["env"] += [action("kinds"), action("builtin")]
            container["args"].append(action("crds"))
            container["volumeMounts"], item["spec"]["template"]["spec"]["volumes"] = action("mounts"), action("volumes")
            _placed(item["spec"]["template"]["spec"], "nodeSelector", "tolerations")
            return _only_if("or .Release.IsInstall .Values.store.init", _body(item))
        case "CronJob":
            container = _container(item)
            container["image"], container["imagePullPolicy"] = map(action, (".Values.image", ".Values.imagePullPolicy"))
            container["resources"] = block(".Values.backup.resources")
            _placed(item["spec"]["jobTemplate"]["spec"]["template"]["spec"], "nodeSelector", "tolerations")
            item["spec"]["schedule"] = action(".Values.backup.schedule | quote")
        case "PersistentVolumeClaim":
            item["spec"]["resources"]["requests"]["storage"] = action(".Values.backup.size")
            item["spec"]["storageClassName"] = action("storageClassName backup")
        case "NetworkPolicy" if item["spec"].get("egress") and item["metadata"]["name"] == BACKUP:
            return _only_if(".Values.backup.enabled", _network(item))
        case "NetworkPolicy" if item["spec"].get("egress"):
            return _network(item)
        case "APIService":
            return _only_if(".Values.builtinKinds", _body(item, appended=(CA_BUNDLE, ANNOTATION)))
        case "ClusterRole" if item["metadata"]["name"] in KIND_ROLES:
            return _only_if(".Values.builtinKinds", _body(item))
    conditions = {STORE: ".Values.store.embedded", BACKUP: ".Values.backup.enabled"}
    condition = conditions.get(item["metadata"]["name"])
    return _only_if(condition, _body(item)) if condition else _body(item)


ANNOTATION = (
    "metadata:\n",
    """metadata:
{{- if .Values.certificates.certManager }}
  annotations:
    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/sluice-serving
{{- end }}
""",
)
CA_BUNDLE = ("spec:\n", "spec:\n{{- with .Values.certificates.caBundle }}\n  caBundle: {{ . }}\n{{- end }}\n")


def _server(item: Object) -> None:
    item["spec"]["replicas"] = action(".Values.replicas")
    container = _container(item)
    container["image"], container["imagePullPolicy"] = map(action, (".Values.image", ".Values.imagePullPolicy"))
    container["resources"] = block(".Values.resources")
    container["args"] += [action("crds"), action("range .Values.extraArgs")]
    container["env"] += [action("kinds"), action("builtin"), action("range .Values.extraEnv")]
    container["volumeMounts"].append(action("mount"))
    item["spec"]["template"]["spec"]["volumes"].append(action("volume"))
    _annotated(item)
    _placed(item["spec"]["template"]["spec"], *PLACEMENT)


def _store(item: Object) -> None:
    container, *others = item["spec"]["template"]["spec"]["containers"]
    for other in others:
        other["image"] = action(".Values.store.image")
    container["image"] = action(".Values.store.image")
    container["resources"] = block(".Values.store.resources")
    [claim] = item["spec"]["volumeClaimTemplates"]
    claim["spec"]["resources"]["requests"]["storage"] = action(".Values.store.size")
    claim["spec"]["storageClassName"] = action("storageClassName store")
    pod, affinity = item["spec"]["template"]["spec"], ".Values.store.affinity"
    own = pod.get("affinity")
    _annotated(item, ".store")
    _placed(pod, *PLACEMENT, part=".store")
    if own:
        pod["affinity"] = block(f"(mergeOverwrite (fromJson `{json.dumps(own, separators=(',', ':'))}`) {affinity})")


def _annotated(workload: Object, part: str = "") -> None:
    workload["metadata"]["annotations"] = optional(f".Values{part}.annotations")
    workload["spec"]["template"]["metadata"]["annotations"] = optional(f".Values{part}.podAnnotations")


def _placed(pod: Object, *names: str, part: str = "") -> None:
    """Let values say on which nodes a pod may run, and with which secrets its images are pulled."""
    pod["imagePullSecrets"] = optional(".Values.imagePullSecrets")
    pod.update({name: optional(f".Values{part}.{name}") for name in names})


def _network(item: Object) -> str:
    """A store elsewhere is no pod that could be selected."""
    [rule] = [rule for rule in item["spec"]["egress"] if any("podSelector" in peer for peer in rule.get("to", []))]
    port, _ = rule["ports"]  # the second is that of sentinels
    port["port"] = action(f"ternary {port['port']} .Values.store.port .Values.store.embedded")
    if item["metadata"]["name"] == SERVER:
        item["spec"]["egress"].append(action("range .Values.extraEgress"))
    return re.sub(
        r"^    to:\n    - podSelector:\n(?:      .*\n)+",
        lambda m: _only_if(".Values.store.embedded", m[0]),
        _body(item),
        flags=re.MULTILINE,
    )


def _body(item: Object, appended: tuple[tuple[str, str], ...] = ()) -> str:
    text = _dumped(item).replace(f"namespace: {NAMESPACE}", "namespace: {{ .Release.Namespace }}")
    text = _BLOCK.sub(lambda m: f"{m[1]}{m[2]}:\n{{{{- toYaml {m[3]} | nindent {len(m[1]) + 2} }}}}", text)
    text = _OPTIONAL.sub(
        lambda m: (
            f"{{{{- with {m[3]} }}}}\n{m[1]}{m[2]}:\n{{{{- toYaml . | nindent {len(m[1]) + 2} }}}}\n{{{{- end }}}}\n"
        ),
        text,
    )
    # Items that a range or a condition surrounds stand on lines of their own.
    text = re.sub(r"^ *- '?«range (\S+)»'?\n", _ranged, text, flags=re.MULTILINE)
    text = re.sub(r"^( *)- '?«(\w+)»'?\n", _conditional_item, text, flags=re.MULTILINE)
    text = re.sub(r"^( *)(\w+): '?«(mounts|volumes)»'?\n", _conditional_list, text, flags=re.MULTILINE)
    text = re.sub(r"^( *)storageClassName: '?«storageClassName (\w+)»'?\n", _class, text, flags=re.MULTILINE)
    text = _ACTION.sub(r"{{ \1 }}", text)
    for here, instead in appended:
        assert text.count(f"\n{here}") == 1
        text = text.replace(f"\n{here}", f"\n{instead}")
    return text


def _ranged(found: re.Match[str]) -> str:
    indent = len(found[0]) - len(found[0].lstrip())
    return f"{{{{- with {found[1]} }}}}\n{{{{- toYaml . | nindent {indent} }}}}\n{{{{- end }}}}\n"


MOUNT = """- mountPath: /etc/sluice/crds
  name: sluice-crds
  readOnly: true
"""
VOLUME = """- name: sluice-crds
  projected:
    sources:
    - configMap:
        name: sluice-crds
"""
CONDITIONAL = {
    # The same for the server and for the Job: a store has a place for what the server is to serve.
    "kinds": ("with .Values.kinds", '- name: SLUICE_KINDS\n  value: {{ join "," . | quote }}\n'),
    "builtin": ("if not .Values.builtinKinds", "- name: SLUICE_BUILTIN_KINDS\n  value: 'false'\n"),
    "crds": ("if .Values.crds", "- --crds=/etc/sluice/crds\n"),
    "mount": ("if .Values.crds", MOUNT),
    "volume": ("if .Values.crds", VOLUME),
}
"""Items of lists, with the condition under which they are there."""


def _conditional_item(found: re.Match[str]) -> str:
    condition, item = CONDITIONAL[found[2]]
    return f"{{{{- {condition} }}}}\n{textwrap.indent(item, found[1])}{{{{- end }}}}\n"


def _conditional_list(found: re.Match[str]) -> str:
    """A list that is missing without its only item."""
    condition, item = CONDITIONAL[found[3].removesuffix("s")]
    return f"{{{{- {condition} }}}}\n{found[1]}{found[2]}:\n{textwrap.indent(item, found[1])}{{{{- end }}}}\n"


def _class(found: re.Match[str]) -> str:
    value = f".Values.{found[2]}.storageClassName"
    # "" is a class, too: none.
    return f'{{{{- if kindIs "string" {value} }}}}\n{found[1]}storageClassName: {{{{ {value} | quote }}}}\n{{{{- end }}}}\n'


def _only_if(condition: str, body: str, *, and_: bool = False) -> str:
    """`and_`: the condition has two parts."""
    return f"{{{{- if {'and ' if and_ else ''}{condition} }}}}\n{body}{{{{- end }}}}\n"


def _either(condition: str, item: Object, other: Object) -> str:
    """One form of an object of the store, or another."""
    if item["kind"] == "StatefulSet":
        _store(item)
        _store(other)
    body = f"{{{{- if {condition} }}}}\n{_body(item)}{{{{- else }}}}\n{_body(other)}{{{{- end }}}}\n"
    return _only_if(".Values.store.embedded", body)


def _dumped(value: object) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=1000, allow_unicode=True)


def _indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())


def main() -> int:
    wanted = files()
    for old in (file for file in CHART.rglob("*") if file.is_file()):
        if str(old.relative_to(CHART)) not in wanted:
            old.unlink()
    for name, text in wanted.items():
        file = CHART / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (MONITORING / "prometheusrule.yaml").write_text(prometheus_rule())
    return 0


if __name__ == "__main__":
    sys.exit(main())
