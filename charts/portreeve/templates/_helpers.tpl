{{/* The release's name, which every object carries. */}}
{{- define "portreeve.name" -}}
{{- if contains "portreeve" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-portreeve" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "portreeve.serviceAccountName" -}}
{{- default (include "portreeve.name" .) .Values.serviceAccount.name }}
{{- end }}

{{/* What selects the pods. */}}
{{- define "portreeve.selectorLabels" -}}
app.kubernetes.io/name: portreeve
app.kubernetes.io/instance: {{ .Release.Name }}
control-plane: controller-manager
{{- end }}

{{- define "portreeve.labels" -}}
{{ include "portreeve.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Where the leases are. It never depends on what is in the cluster: two replicas with different answers would both lead. */}}
{{- define "portreeve.leaseNamespace" -}}
{{- default .Release.Namespace .Values.replaces.nebariOperatorNamespace }}
{{- end }}

{{/* Where the lease of the tenant operator is, by the same rule. */}}
{{- define "portreeve.tenantsLeaseNamespace" -}}
{{- default .Release.Namespace .Values.replaces.kubespacesOperatorNamespace }}
{{- end }}

{{/* Whether Tenants are reconciled: not empty where they are. */}}
{{- define "portreeve.tenants" -}}
{{- with .Values.operator }}{{ if or .tenants .tenantApi.domain .tenantApps.domain }}true{{ end }}{{ end }}
{{- end }}

{{/* Whether the Helm client is run: not empty where it is. */}}
{{- define "portreeve.runsHelm" -}}
{{- if and (include "portreeve.tenants" .) (eq .Values.operator.provisioner "helm") }}true{{ end }}
{{- end }}

{{- define "portreeve.helmServiceAccountName" -}}
{{- default (printf "%s-helm" (include "portreeve.name" .)) .Values.operator.helm.serviceAccountName }}
{{- end }}
