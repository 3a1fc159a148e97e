{{/* The engine that serves a model, or the beginning of its replicas' names: the
model's name as Kubernetes writes names. */}}
{{- define "fineserve.engineName" -}}
{{ regexReplaceAll "[^a-z0-9]+" (lower .) "-" | trimAll "-" }}
{{- end }}

{{/* (list $ MODEL): its GPUs, as JSON. */}}
{{- define "fineserve.gpusOf" -}}
{{ (last .).gpus | default (first .).Values.gpus | toJson }}
{{- end }}

{{/* Port of a model's first replica. A model has at most 64. */}}
{{- define "fineserve.portOf" -}}
{{- $derived := add 20000 (mod (adler32sum (include "fineserve.engineName" .name) | atoi) 9936) -}}
{{ .port | default $derived | int }}
{{- end }}

{{/* All engines, as JSON: name, model (its index), number (of the replica), gpu, port. */}}
{{- define "fineserve.engines" -}}
{{- $engines := list -}}
{{- range $index, $model := .Values.models -}}
  {{- $name := include "fineserve.engineName" $model.name -}}
  {{- $gpus := include "fineserve.gpusOf" (list $ $model) | fromJsonArray -}}
  {{- range $number, $gpu := $gpus -}}
    {{- $isOne := and (eq (len $gpus) 1) (not $model.autoscaling) -}}
    {{- $engines = append $engines (dict
      "name" ($isOne | ternary $name (printf "%s-%d" $name $number))
      "model" $index "number" $number "gpu" $gpu
      "port" (add (include "fineserve.portOf" $model | int) $number)) -}}
  {{- end -}}
{{- end -}}
{{ toJson $engines }}
{{- end }}

{{/* A value as TOML writes it, whose strings, numbers and lists are JSON's. */}}
{{- define "fineserve.toml" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . }}{{ $pairs = append $pairs (printf "%s = %s" $key (include "fineserve.toml" $value)) }}{{ end -}}
{ {{ join ", " $pairs }} }
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{/* The lines of a section. */}}
{{- define "fineserve.keysOf" -}}
{{- range $key, $value := . }}
{{ $key }} = {{ include "fineserve.toml" $value }}
{{- end }}
{{- end }}

{{/* The fleet file. Engines are pods, so that none has a command. */}}
{{- define "fineserve.fleet" -}}
{{- $proxy := dict
  "listen" (printf "0.0.0.0:%v" .Values.proxy.port)
  "admin" (printf "%s:%v" (.Values.metrics.enabled | ternary "0.0.0.0" "127.0.0.1") .Values.proxy.adminPort) -}}
{{- if include "fineserve.keysSecret" . -}}
{{- $proxy = merge $proxy (dict "keys" "/etc/fineserve/keys/keys" "ledger" "/var/lib/fineserve/ledger") -}}
{{- end -}}
[proxy]
{{- include "fineserve.keysOf" (merge $proxy .Values.fleet.proxy) }}
{{- with .Values.fleet.scheduler }}

[scheduler]
{{- include "fineserve.keysOf" . }}
{{- end }}
{{- range .Values.fleet.outside }}

[[outside]]
{{- include "fineserve.keysOf" . }}
{{- end }}
{{- $ofEngines := list "evict" "evict_after" "floor" "cap" "restart_after" }}
{{- $ofPods := list "checkpoint" "arguments" "env" "gpus" "port" "image" "resources" "autoscaling" }}
{{- range .Values.models }}
{{- $keys := dict }}
{{- range $key, $value := . }}
{{- if not (has $key (concat $ofEngines $ofPods)) }}{{ $_ := set $keys $key $value }}{{ end }}
{{- end }}

[[model]]
{{- include "fineserve.keysOf" $keys }}
{{- end }}
{{- range include "fineserve.engines" . | fromJsonArray }}
{{- $model := index $.Values.models (int .model) }}
{{- $keys := dict "name" .name "model" $model.name "url" (printf "http://127.0.0.1:%d" (int .port)) }}
{{- if gt (len $.Values.gpus) 1 }}{{ $_ := set $keys "gpu" .gpu }}{{ end }}
{{- if $model.autoscaling }}{{ $_ := set $keys "start" "scaled" }}{{ end }}
{{- range $ofEngines }}
{{- if hasKey $model . }}{{ $_ := set $keys . (get $model .) }}{{ end }}
{{- end }}

[[engine]]
{{- include "fineserve.keysOf" $keys }}
{{- end }}
{{ end }}
