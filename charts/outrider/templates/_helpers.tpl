{{/* The name of everything in the release. */}}
{{- define "outrider.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains "outrider" .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-outrider" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* What selects the operator's pods. NetworkPolicies of engines open their admin port to the first of these labels. */}}
{{- define "outrider.selectorLabels" -}}
app.kubernetes.io/name: outrider
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "outrider.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "outrider.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: outrider
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "outrider.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- .Values.serviceAccount.name | default (include "outrider.fullname" .) }}
{{- else }}
{{- .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{/* A digest wins over a tag, but the tag may stand beside it for people. */}}
{{- define "outrider.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion }}
{{- if .Values.image.digest }}
{{- printf "%s:%s@%s" .Values.image.repository $tag .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository $tag }}
{{- end }}
{{- end }}

{{/* The port of the metrics store: the address's own, or its scheme's. */}}
{{- define "outrider.prometheusPort" -}}
{{- $url := urlParse .Values.prometheus.url }}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) }}
{{- $port | default (eq $url.scheme "https" | ternary "443" "80") }}
{{- end }}

{{/* Values that do not go together. The schema sees one at a time, and cannot say what to do. */}}
{{- define "outrider.validate" -}}
{{- $store := .Values.prometheus }}
{{- if and $store.bearerToken.secretName $store.basicAuth.username }}
{{- fail "prometheus.bearerToken and prometheus.basicAuth: a question has one Authorization; set one of them" }}
{{- end }}
{{- if ne (empty $store.basicAuth.username) (empty $store.basicAuth.secretName) }}
{{- fail "prometheus.basicAuth: username and secretName go together; set both, or none" }}
{{- end }}
{{- if and .Values.keda.authModes (not .Values.keda.triggerAuthentication) }}
{{- fail "keda.authModes says what KEDA takes from keda.triggerAuthentication; set that too" }}
{{- end }}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled }}
{{- fail "metrics.podMonitor and metrics.serviceMonitor would scrape everything twice; enable one of them" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) }}
{{- fail "metrics.serviceMonitor finds the operator by metrics.service; enable that too" }}
{{- end }}
{{- end }}
