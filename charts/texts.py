"""Texts of the chart that no manifest has: values.yaml, the notes, and the templates of definitions and metrics."""

from __future__ import annotations

VALUES = """# {written} Comments and defaults are in charts/texts.py and manifests/base.

# The image, wherever it was pushed.
image: {image}
imagePullPolicy: {policy}
# Secrets with which the images of all pods are pulled: [{{name: registry}}].
imagePullSecrets: []
replicas: {replicas}
# manifests/README.md, "Memory". No limit of CPU: a throttled process delays every watch.
resources:
{resources}
# Annotations of the Deployment.
annotations: {{}}
# Annotations of Sluice's pods.
podAnnotations: {{}}
# Nodes for all pods but those of the store: Sluice, the Job that creates the store, and backups.
nodeSelector: {{}}
# Taints that these pods tolerate.
tolerations: []
# Affinity of Sluice's pods. With two replicas or more, spread them: manifests/overlays/ha/deployment.yaml.
affinity: {{}}
# Topology spread constraints of Sluice's pods.
topologySpreadConstraints: []
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
  # Valkey, by tag and by the digest of all architectures. A mirror keeps the digest: registry.example/valkey:TAG@sha256:DIGEST.
  image: {store_image}
  size: {size}
  # null is the cluster's default StorageClass.
  storageClassName: null
  resources:
{store_resources}
  # Annotations of the StatefulSet.
  annotations: {{}}
  # Annotations of the store's pods.
  podAnnotations: {{}}
  # Nodes for the store's pods.
  nodeSelector: {{}}
  # Taints that the store's pods tolerate.
  tolerations: []
  # Affinity of the store's pods. Three nodes keep their anti-affinity, unless podAntiAffinity is set here.
  affinity: {{}}
  # Topology spread constraints of the store's pods.
  topologySpreadConstraints: []
  # The Job that creates the store comes with the first installation only, because a store that was lost must not be created again without a
  # word. After an upgrade that adds kinds, by another image or in `kinds`: --set store.init=true, once.
  init: false
# Backs the store up into a volume of its own (docs/backup.md), as the user of the key `backup-redis-url` of the Secret `sluice-store`.
backup:
  enabled: false
  schedule: {schedule}
  size: {backup_size}
  storageClassName: null
  resources:
{backup_resources}
# A ServiceMonitor by which Prometheus' operator scrapes /metrics of each pod (docs/metrics.md). It needs the operator's
# CustomResourceDefinitions. A ServiceAccount comes with it, whose token may read the metrics and nothing else.
serviceMonitor:
  enabled: false
  # Labels by which a Prometheus selects its ServiceMonitors: {{release: prometheus}}.
  labels: {{}}
  # Time between scrapes, as in 30s. "" is the default of Prometheus.
  interval: ""
# A PrometheusRule with the alerts of docs/monitoring.md. It needs the operator's CustomResourceDefinitions.
prometheusRule:
  enabled: false
  # Labels by which a Prometheus selects its rules: {{release: prometheus}}.
  labels: {{}}
  # The address of docs/monitoring.md, for the links of alerts.
  page: docs/monitoring.md
# A ConfigMap with the dashboards, which the sidecar of Grafana's chart loads by its label.
dashboards:
  enabled: false
  labels:
    grafana_dashboard: "1"
certificates:
  # cert-manager with its CA injector writes the Secret `sluice-serving` and the APIService's caBundle. Otherwise the Secret is yours
  # (tls.crt, tls.key; certs/README.md).
  certManager: false
  # The base64 of the CA (PEM) that signed that Secret's certificate. Required without cert-manager.
  caBundle: ""
"""

NOTES = """{{- $namespace := .Release.Namespace -}}
Sluice {{ .Chart.AppVersion }} in the namespace {{ $namespace }}. Next:

{{- if or .Release.IsInstall .Values.store.init }}

* Wait for the Job that creates what Sluice needs in the store. Its log says what is missing:

    kubectl -n {{ $namespace }} wait job/{{ include "sluice.storeJob" . }} --for=condition=Complete --timeout=5m
    kubectl -n {{ $namespace }} logs job/{{ include "sluice.storeJob" . }}
{{- else }}

* If this version or the values add kinds, create their logs in the store once: helm upgrade … --set store.init=true
{{- end }}

* Wait for Sluice, and check that the cluster reaches it:

    kubectl -n {{ $namespace }} rollout status deployment/sluice --timeout=5m
    kubectl get apiservices -l app.kubernetes.io/part-of=sluice
{{- if .Values.builtinKinds }}
    kubectl wait apiservice/v1.resource.sluice.dev --for=condition=Available --timeout=5m
{{- end }}

* Check the store. It must keep what Sluice acknowledges:

    kubectl -n {{ $namespace }} exec deployment/sluice -- sluice store check
{{- if not .Values.backup.enabled }}

* Back the store up: --set backup.enabled=true (docs/backup.md).
{{- end }}
{{- if not .Values.serviceMonitor.enabled }}

* Let Prometheus' operator scrape and alert: --set serviceMonitor.enabled=true,prometheusRule.enabled=true (docs/monitoring.md).
{{- end }}

Read docs/operations.md for flags, health and upgrades, and manifests/README.md for outages, memory, rights and network.
"""


CA_CHECK = """{{- if not .Values.certificates.certManager }}
{{- with .Values.certificates.caBundle }}
{{- if not (contains "-----BEGIN CERTIFICATE-----" (b64dec .)) }}
{{- fail `certificates.caBundle is not the base64 of a certificate in PEM.
Set it from a file: --set certificates.caBundle="$(base64 -w0 ca.crt)"` }}
{{- end }}
{{- else }}
{{- if or .Values.builtinKinds .Values.crds .Values.serviceMonitor.enabled }}
{{- fail `kube-apiserver needs the CA that signed Sluice's certificate. Do one of these (certs/README.md):
* If cert-manager runs in the cluster: --set certificates.certManager=true
* Else name the CA of the Secret sluice-serving: --set certificates.caBundle="$(base64 -w0 ca.crt)"` }}
{{- end }}
{{- end }}
{{- end }}
"""
"""Objects of kinds from packages alone need no CA, because their APIServices are not the chart's."""


def _metadata(section: str, name: str) -> str:
    """Return the metadata of an object that a section of the values enables and labels."""
    return f"""metadata:
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/part-of: sluice
{{{{- with .Values.{section}.labels }}}}
{{{{- toYaml . | nindent 4 }}}}
{{{{- end }}}}
  name: {name}
  namespace: {{{{ .Release.Namespace }}}}
"""


SERVICE_MONITOR = (
    """{{- if .Values.serviceMonitor.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
"""
    + _metadata("serviceMonitor", "sluice")
    + """spec:
  endpoints:
  - authorization:
      credentials:
        key: token
        name: sluice-metrics
{{- with .Values.serviceMonitor.interval }}
    interval: {{ . }}
{{- end }}
    path: /metrics
    port: https
    scheme: https
    tlsConfig:
      ca:
{{- if .Values.certificates.certManager }}
        secret:
          key: ca.crt
          name: sluice-serving
{{- else }}
        configMap:
          key: ca.crt
          name: sluice-serving-ca
{{- end }}
      serverName: sluice.{{ .Release.Namespace }}.svc
  selector:
    matchExpressions:
    - key: app.kubernetes.io/component
      operator: DoesNotExist
    matchLabels:
      app.kubernetes.io/name: sluice
{{- if not .Values.certificates.certManager }}
---
apiVersion: v1
data:
  ca.crt: {{ b64dec .Values.certificates.caBundle | quote }}
kind: ConfigMap
metadata:
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/part-of: sluice
  name: sluice-serving-ca
  namespace: {{ .Release.Namespace }}
{{- end }}
{{- end }}
"""
)
"""Prometheus checks Sluice's certificate, and identifies itself by a token of its own instead of that of its pod."""

PROMETHEUS_RULE = (
    """{{- if .Values.prometheusRule.enabled }}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
"""
    + _metadata("prometheusRule", "sluice")
    + """spec:
{{ .Files.Get "files/rules.yaml" | replace "docs/monitoring.md#" (printf "%s#" .Values.prometheusRule.page) | indent 2 }}
{{- end }}
"""
)
"""The rules have templates of their own, so Helm reads them from a file and does not render them."""

DASHBOARDS = (
    """{{- if .Values.dashboards.enabled }}
apiVersion: v1
data:
{{ (.Files.Glob "files/dashboards/*.json").AsConfig | indent 2 }}
kind: ConfigMap
"""
    + _metadata("dashboards", "sluice-dashboards")
    + """{{- end }}
"""
)

METRICS_READER = """{{- if .Values.serviceMonitor.enabled }}
apiVersion: v1
automountServiceAccountToken: false
kind: ServiceAccount
metadata:
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/part-of: sluice
  name: sluice-metrics
  namespace: {{ .Release.Namespace }}
---
apiVersion: v1
kind: Secret
metadata:
  annotations:
    kubernetes.io/service-account.name: sluice-metrics
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/part-of: sluice
  name: sluice-metrics
  namespace: {{ .Release.Namespace }}
type: kubernetes.io/service-account-token
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/part-of: sluice
  name: sluice-metrics
rules:
- nonResourceURLs:
  - /metrics
  verbs:
  - get
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  labels:
    app.kubernetes.io/name: sluice
    app.kubernetes.io/part-of: sluice
  name: sluice-metrics
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: sluice-metrics
subjects:
- kind: ServiceAccount
  name: sluice-metrics
  namespace: {{ .Release.Namespace }}
{{- end }}
"""


DEFINITIONS = """{{- /* A Job cannot be changed, so that of an upgrade has a name of its own. */}}
{{- define "sluice.storeJob" }}sluice-store-init{{ if .Release.IsUpgrade }}-{{ .Release.Revision }}{{ end }}{{- end }}
{{- /* The definitions in the value crds, as JSON. */ -}}
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
