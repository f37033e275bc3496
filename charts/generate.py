"""Writes charts/sluice from manifests/: the objects of `base`, `store-init`, `backup` and `store-nodes` as kustomize renders them,
with values in the places where clusters differ, and templates for definitions. `make chart`; tests/structure/test_chart.py holds the
two together.

Actions of Helm's templates replace values; the replaced text is the default in values.yaml. So with the defaults the chart is
what kustomize makes, but for the namespace, which Helm makes itself.
"""

from __future__ import annotations

import copy
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap
from typing import Any

import yaml

from apiserver import __version__
from tests.e2e.controlplane import binaries

PROJECT = pathlib.Path(__file__).resolve().parents[1]
CHART = PROJECT / "charts" / "sluice"
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
_BLOCK = re.compile(r"^( *)([^\s:]+): '?»(.*?)«'?$", re.MULTILINE)

CHART_YAML: Object = {
    "apiVersion": "v2",
    "name": "sluice",
    "description": "A Kubernetes aggregated API server that keeps resource.k8s.io-style objects in Redis Streams",
    "type": "application",
    "version": __version__,
    "appVersion": __version__,
}

VALUES = """# {written} Comments and defaults are in charts/generate.py and manifests/base.
# The image, wherever it was pushed.
image: {image}
imagePullPolicy: {policy}
replicas: {replicas}
# manifests/README.md, "Memory". No limit of CPU: a throttled process delays every watch.
resources:
{resources}
# Further arguments of `sluice serve`, as in --runtime-config=resource.sluice.dev/v1beta1=true.
extraArgs: []
# Further variables, the twins of flags among them (`sluice serve --help`): name and value.
extraEnv: []
# Further rules of what Sluice may reach (`egress` of a NetworkPolicy): manifests/README.md, "Network".
extraEgress: []
# Installed packages whose kinds are served, too (docs/kinds.md, "In a cluster").
kinds: []
# Files of CustomResourceDefinitions that are served, too, by name: --set-file 'crds.widgets\\.yaml=widgets.yaml'. Together at most 1 MiB
# (docs/crds.md, "In a cluster").
crds: {{}}
# Whether the built-in kinds are served. Without them, set crds or kinds.
builtinKinds: true
store:
  # A Valkey beside Sluice. Without it the Secret `sluice-store` says where the store is (keys redis-url and admin-redis-url),
  # and `port` which port the NetworkPolicies let through.
  embedded: true
  port: 6379
  # 1, or 3: pods on three nodes, with a Sentinel in each. Then the Secret has the addresses of the sentinels (manifests/README.md,
  # "A store on three nodes"). It cannot be changed afterwards without a move of the data.
  nodes: 1
  image: {store_image}
  size: {size}
  # null is the cluster's default StorageClass.
  storageClassName: null
  resources:
{store_resources}
  # The Job that creates the store comes with the first installation only, because a store that was lost must not be created again without a
  # word. After an upgrade that adds kinds, by another image or in `kinds`: --set store.init=true, once.
  init: false
# Backs the store up into a volume of its own (docs/backup.md), as the user of the key `backup-redis-url` of the Secret `sluice-store`.
backup:
  enabled: false
  schedule: {schedule}
  size: {backup_size}
  storageClassName: null
certificates:
  # cert-manager with its CA injector writes the Secret `sluice-serving` and the APIService's caBundle. Otherwise the Secret is yours
  # (tls.crt, tls.key; certs/README.md), and caBundle the base64 of the CA that vouches for it.
  certManager: false
  caBundle: ""
"""


def action(text: str) -> str:
    """In place of a value."""
    return f"«{text}»"


def block(text: str) -> str:
    """In place of a list or mapping; Helm indents it."""
    return f"»{text}«"


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
    written: dict[str, str] = {
        "Chart.yaml": f"# {WRITTEN}\n{_dumped(CHART_YAML)}",
        "values.yaml": _values(objects),
        "templates/NOTES.txt": NOTES,
        "templates/_definitions.tpl": DEFINITIONS,
        "templates/configmap-sluice-crds.yaml": CRDS_CONFIGMAP,
        "templates/apiservice-crds.yaml": CRDS_APISERVICES,
        "templates/clusterrole-crds.yaml": CRDS_ROLES,
    }
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


def _file(item: Object) -> str:
    return f"templates/{item['kind'].lower()}-{item['metadata']['name']}.yaml"


NOTES = """{{- if .Release.IsInstall -}}
The Job sluice-store-init waits for the store and creates what Sluice needs in it. Then:

  kubectl wait apiservice/v1.resource.sluice.dev --for=condition=Available --timeout=5m
{{- end }}
"""


DEFINITIONS = """{{- /* The definitions in the value crds, as JSON. */ -}}
{{- define "sluice.definitions" -}}
{{- $found := list }}
{{- range $file, $text := .Values.crds }}
{{- range $document := regexSplit "(?m)^---[ \\t\\r]*(#.*)?$" $text -1 }}
{{- $item := fromYaml $document }}
{{- with $item.Error }}{{- fail (printf "crds: %s: %s" $file .) }}{{- end }}
{{- range (ternary $item.items (list $item) (hasSuffix "List" (toString $item.kind))) }}
{{- if eq (toString .kind) "CustomResourceDefinition" }}{{- $found = append $found . }}{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson (dict "definitions" $found) }}
{{- end }}
"""
CRDS_CONFIGMAP = """{{- with .Values.crds }}
{{- $size := 0 }}
{{- range . }}{{- $size = add $size (len .) }}{{- end }}
{{- if gt (int $size) 1048576 }}
{{- fail (printf "crds: %d bytes, and a ConfigMap has at most 1048576: see `sluice manifests`" (int $size)) }}
{{- end }}
apiVersion: v1
data:
{{- toYaml . | nindent 2 }}
kind: ConfigMap
metadata:
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/part-of: sluice
  name: sluice-crds
  namespace: {{ $.Release.Namespace }}
{{- end }}
"""
CRDS_APISERVICES = """{{- $served := dict }}
{{- range (include "sluice.definitions" . | fromJson).definitions }}
{{- $group := .spec.group }}
{{- range .spec.versions }}
{{- if .served }}{{- $_ := set $served (printf "%s.%s" .name $group) (dict "group" $group "version" .name) }}{{- end }}
{{- end }}
{{- end }}
{{- range $name, $spec := $served }}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata:
{{- if $.Values.certificates.certManager }}
  annotations:
    cert-manager.io/inject-ca-from: {{ $.Release.Namespace }}/sluice-serving
{{- end }}
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/part-of: sluice
  name: {{ $name }}
spec:
{{- with $.Values.certificates.caBundle }}
  caBundle: {{ . }}
{{- end }}
  group: {{ $spec.group }}
  groupPriorityMinimum: 1000
  service:
    name: sluice
    namespace: {{ $.Release.Namespace }}
    port: 443
  version: {{ $spec.version }}
  versionPriority: 100
{{- end }}
"""
CRDS_ROLES = """{{- $read := dict }}
{{- $written := dict }}
{{- $scaled := dict }}
{{- range (include "sluice.definitions" . | fromJson).definitions }}
{{- if eq .spec.scope "Namespaced" }}
{{- $group := .spec.group }}
{{- $plural := .spec.names.plural }}
{{- $_ := set $read $group (append (default list (index $read $group)) $plural) }}
{{- $_ := set $written $group (append (default list (index $written $group)) $plural) }}
{{- range .spec.versions }}
{{- if .storage }}
{{- range $name, $subresource := .subresources }}
{{- if and (kindIs "map" $subresource) (has $name (list "scale" "status")) }}
{{- $_ := set $read $group (append (index $read $group) (printf "%s/%s" $plural $name)) }}
{{- if eq $name "scale" }}
{{- $_ := set $scaled $group (append (default list (index $scaled $group)) (printf "%s/scale" $plural)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if $read }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/part-of: sluice
    rbac.authorization.k8s.io/aggregate-to-admin: 'true'
    rbac.authorization.k8s.io/aggregate-to-edit: 'true'
    rbac.authorization.k8s.io/aggregate-to-view: 'true'
  name: sluice-crds-view
rules:
{{- range $group, $names := $read }}
- apiGroups: [{{ $group }}]
  resources: {{ toJson $names }}
  verbs: [get, list, watch]
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/part-of: sluice
    rbac.authorization.k8s.io/aggregate-to-admin: 'true'
    rbac.authorization.k8s.io/aggregate-to-edit: 'true'
  name: sluice-crds-edit
rules:
{{- range $group, $names := $written }}
- apiGroups: [{{ $group }}]
  resources: {{ toJson $names }}
  verbs: [create, delete, deletecollection, patch, update]
{{- end }}
{{- range $group, $names := $scaled }}
- apiGroups: [{{ $group }}]
  resources: {{ toJson $names }}
  verbs: [patch, update]
{{- end }}
{{- end }}
"""


def _values(objects: list[Object]) -> str:
    server, store = _container(_one(objects, "Deployment")), _container(_one(objects, "StatefulSet"))
    [claim] = _one(objects, "StatefulSet")["spec"]["volumeClaimTemplates"]
    return VALUES.format(
        written=WRITTEN,
        image=server["image"],
        policy=server["imagePullPolicy"],
        replicas=_one(objects, "Deployment")["spec"]["replicas"],
        resources=_indented(_dumped(server["resources"]), 2),
        store_image=store["image"],
        store_resources=_indented(_dumped(store["resources"]), 4),
        size=claim["spec"]["resources"]["requests"]["storage"],
        schedule=_one(objects, "CronJob")["spec"]["schedule"],
        backup_size=_one(objects, "PersistentVolumeClaim")["spec"]["resources"]["requests"]["storage"],
    )


def _one(objects: list[Object], kind: str) -> Object:
    [found] = [item for item in objects if item["kind"] == kind]
    return found


def _container(workload: Object) -> Object:
    container: Object
    spec = workload["spec"]["jobTemplate"]["spec"] if workload["kind"] == "CronJob" else workload["spec"]
    [container] = spec["template"]["spec"]["containers"]
    return container


def _template(item: Object) -> str:
    match item["kind"]:
        case "Deployment":
            _server(item)
        case "StatefulSet":
            _store(item)
        case "Job":
            container = _container(item)
            container["image"], container["imagePullPolicy"] = map(action, (".Values.image", ".Values.imagePullPolicy"))
            container["env"] += [action("kinds"), action("builtin")]
            container["args"].append(action("crds"))
            container["volumeMounts"], item["spec"]["template"]["spec"]["volumes"] = action("mounts"), action("volumes")
            return _only_if("or .Release.IsInstall .Values.store.init", _body(item))
        case "CronJob":
            container = _container(item)
            container["image"], container["imagePullPolicy"] = map(action, (".Values.image", ".Values.imagePullPolicy"))
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


def _store(item: Object) -> None:
    container, *others = item["spec"]["template"]["spec"]["containers"]
    for other in others:
        other["image"] = action(".Values.store.image")
    container["image"] = action(".Values.store.image")
    container["resources"] = block(".Values.store.resources")
    [claim] = item["spec"]["volumeClaimTemplates"]
    claim["spec"]["resources"]["requests"]["storage"] = action(".Values.store.size")
    claim["spec"]["storageClassName"] = action("storageClassName store")


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


NODES_CHECK = """{{- if not (has (int .Values.store.nodes) (list 1 3)) }}
{{- fail "store.nodes: 1 or 3" }}
{{- end }}
"""
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
    return _only_if(".Values.store.embedded", f"{NODES_CHECK}{body}" if item["kind"] == "StatefulSet" else body)


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
    return 0


if __name__ == "__main__":
    sys.exit(main())
