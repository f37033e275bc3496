{{- /* A Job cannot be changed, so that of an upgrade has a name of its own. */}}
{{- define "sluice.storeJob" }}sluice-store-init{{ if .Release.IsUpgrade }}-{{ .Release.Revision }}{{ end }}{{- end }}
{{- /* The definitions in the value crds, as JSON. */ -}}
{{- define "sluice.definitions" -}}
{{- $found := list }}
{{- range $file, $text := .Values.crds }}
{{- range $document := regexSplit "(?m)^---[ \t\r]*(#.*)?$" $text -1 }}
{{- $item := fromYaml $document }}
{{- with $item.Error }}{{- fail (printf "crds: %s: %s" $file .) }}{{- end }}
{{- range (ternary $item.items (list $item) (hasSuffix "List" (toString $item.kind))) }}
{{- if eq (toString .kind) "CustomResourceDefinition" }}{{- $found = append $found . }}{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson (dict "definitions" $found) }}
{{- end }}
