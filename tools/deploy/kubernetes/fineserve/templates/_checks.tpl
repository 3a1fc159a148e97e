{{/* Refuses values that values.schema.json cannot, each in one line. */}}
{{- define "fineserve.check" -}}
{{- $several := gt (len .Values.gpus) 1 -}}
{{- $isOneNode := hasKey (.Values.nodeSelector | default dict) "kubernetes.io/hostname" -}}
{{- range .Values.gpus -}}
  {{- if hasPrefix "GPU-" . -}}
    {{- if not $isOneNode -}}
      {{- fail (printf "gpus: %s is a GPU of one node; choose that in nodeSelector by its kubernetes.io/hostname" .) -}}
    {{- end -}}
  {{- else if $several -}}
    {{- fail (printf "gpus: several GPUs are named by their UUIDs (nvidia-smi -L), not \"%s\"" .) -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.keys.lines .Values.keys.secret -}}
  {{- fail "keys: give lines, or the secret that has them, not both" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled (not .Values.metrics.enabled) -}}
  {{- fail "podMonitor: there is nothing to scrape; set metrics.enabled" -}}
{{- end -}}
{{- range .Values.models -}}{{ include "fineserve.checkModel" (list $ .) }}{{- end -}}
{{- include "fineserve.checkPorts" . -}}
{{- end }}

{{- define "fineserve.checkModel" -}}
{{- $values := (first .).Values -}}
{{- $model := last . -}}
{{- $who := printf "model %s" $model.name -}}
{{- $name := include "fineserve.engineName" $model.name -}}
{{- if or (not $name) (gt (len $name) 50) (hasPrefix "fineserve" $name) -}}
  {{- fail (printf "%s: its pods cannot be named \"%s\"; choose a name of 1 to 50 letters and digits that does not begin with fineserve, and give the long one in aliases" $who $name) -}}
{{- end -}}
{{- if regexMatch "^([0-9.]+(e[0-9]+)?|true|false|null|yes|no|on|off|y|n)$" $name -}}
  {{- fail (printf "%s: YAML takes the name of its pods, %s, for no text; choose another, and give this one in aliases" $who $name) -}}
{{- end -}}
{{- range $model.gpus -}}
  {{- if not (has . $values.gpus) -}}
    {{- fail (printf "%s: %s is not one of gpus: %s" $who . (join ", " $values.gpus)) -}}
  {{- end -}}
{{- end -}}
{{- with $model.autoscaling -}}
  {{- $most := include "fineserve.gpusOf" $ | fromJsonArray | len -}}
  {{- if not $values.metrics.enabled -}}
    {{- fail (printf "%s: an autoscaler needs fineserved's metrics; set metrics.enabled" $who) -}}
  {{- end -}}
  {{- if not (hasKey ($values.nodeSelector | default dict) "kubernetes.io/hostname") -}}
    {{- fail (printf "%s: its replicas run on one node; choose that in nodeSelector by its kubernetes.io/hostname" $who) -}}
  {{- end -}}
  {{- if gt (dig "minReplicas" 1 . | int) $most -}}
    {{- fail (printf "%s: minReplicas is %d, but its replicas have %d GPU%s: one each" $who (int .minReplicas) $most (eq $most 1 | ternary "" "s")) -}}
  {{- end -}}
  {{- if and (eq .by "hpa") (lt (dig "minReplicas" 1 . | int) 1) -}}
    {{- fail (printf "%s: an hpa keeps at least 1 replica; for minReplicas: 0 take keda" $who) -}}
  {{- end -}}
{{- end -}}
{{- if contains "nvidia.com/" (toJson $model.resources) -}}
  {{- fail (printf "%s: its resources may not have GPUs: the scheduler would give one to it alone" $who) -}}
{{- end -}}
{{- end }}

{{/* Engines' names and the node's ports, each once. */}}
{{- define "fineserve.checkPorts" -}}
{{- $owners := dict (toString .Values.proxy.port) "proxy.port" -}}
{{- $taken := list (list .Values.proxy.adminPort "proxy.adminPort") -}}
{{- if .Values.metrics.enabled -}}
  {{- range $number, $gpu := .Values.gpus -}}
    {{- $taken = append $taken (list (add $.Values.metrics.port $number) (printf "metrics.port of %s" $gpu)) -}}
  {{- end -}}
{{- end -}}
{{- $names := dict -}}
{{- range include "fineserve.engines" . | fromJsonArray -}}
  {{- $model := (index $.Values.models (int .model)).name -}}
  {{- $taken = append $taken (list .port (printf "engine %s" .name)) -}}
  {{- with get $names .name -}}
    {{- fail (ternary
      (printf "models: two are called %s" $model)
      (printf "models: %s and %s would both have pods of one name; rename one, and give its present name in aliases" . $model)
      (eq . $model)) -}}
  {{- end -}}
  {{- $_ := set $names .name $model -}}
{{- end -}}
{{- range $taken -}}
  {{- $port := first . | int | toString -}}
  {{- if hasKey $owners $port -}}
    {{- fail (printf "port %s is that of %s and of %s; give one of them another port" $port (get $owners $port) (last .)) -}}
  {{- end -}}
  {{- $_ := set $owners $port (last .) -}}
{{- end -}}
{{- end }}
