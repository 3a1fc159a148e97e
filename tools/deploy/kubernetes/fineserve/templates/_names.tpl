{{/* Labels of an object. */}}
{{- define "fineserve.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: fineserve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fineserve.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "fineserve.keysSecret" -}}
{{- if .Values.keys.secret }}{{ .Values.keys.secret }}{{ else if .Values.keys.lines }}fineserve-keys{{ end }}
{{- end }}

{{/* The part of a spec that all pods share; README.md has the reasons. */}}
{{- define "fineserve.pod" -}}
hostPID: true
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
automountServiceAccountToken: false
securityContext:
  runAsUser: 10100
  runAsGroup: 10100
  fsGroup: 10100
  fsGroupChangePolicy: OnRootMismatch
  {{- with .Values.seLinuxOptions }}
  seLinuxOptions: {{ toJson . }}
  {{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* A container of our image. */}}
{{- define "fineserve.ours" -}}
image: {{ include "fineserve.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* All of the node's GPUs without taking one from the scheduler. */}}
{{- define "fineserve.driver" -}}
- {name: NVIDIA_VISIBLE_DEVICES, value: all}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: "compute,utility"}
{{- end }}
