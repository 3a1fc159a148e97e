{{/* (list $ MODEL PORT): vLLM's command, as `fsctl up` fills it in. Without a
PORT it is left to a replica. */}}
{{- define "fineserve.command" -}}
{{- $model := index . 1 -}}
{{- $port := index . 2 -}}
{{ concat
  (list "vllm" "serve" $model.checkpoint "--host" "127.0.0.1")
  (ternary (list "--port" (toString $port)) list (gt (int $port) 0))
  (list "--served-model-name" $model.name
    "--max-num-batched-tokens" ($model.chunk_tokens | default 2048 | int | toString)
    "--max-num-seqs" ($model.max_batch | default 256 | int | toString))
  ($model.arguments | default list) | toJson }}
{{- end }}

{{/* (list $ ENGINE): the spec of an engine's pod. That of a scaled model is the
same for all replicas, which know their number by their name. */}}
{{- define "fineserve.enginePod" -}}
{{- $ := first . -}}
{{- $engine := last . -}}
{{- $model := index $.Values.models (int $engine.model) -}}
{{- $values := $.Values.engine -}}
{{- $gpus := include "fineserve.gpusOf" (list $ $model) | fromJsonArray -}}
{{ include "fineserve.pod" $ }}
# Longer than the drain.
terminationGracePeriodSeconds: {{ add $values.drainSeconds 30 }}
initContainers:
  # The preload library and its plugins, into vLLM's own image.
  - name: shim
    {{- include "fineserve.ours" $ | nindent 4 }}
    command: ["/bin/sh", "-c", "cp -r /usr/lib/*-linux-gnu/fineserve/. /shim"]
    volumeMounts: [{name: shim, mountPath: /shim}]
  # An engine belongs to the pool that it has found, so it waits for that of the
  # present pod of fineserved.
  - name: daemon
    {{- include "fineserve.ours" $ | nindent 4 }}
    command:
      - /bin/sh
      - -c
      - |
        until [ "$(cat /run/fineserve/revision)" = {{ include "fineserve.revision" $ }} ] &&
          {{ include "fineserve.slabs" (list $ (first $gpus)) | fromJsonArray | join " " }} >/dev/null; do sleep 1; done
    env:
      - {name: FINESERVE_RUNTIME_DIR, value: /run/fineserve}
    volumeMounts: [{name: runtime, mountPath: /run/fineserve}]
containers:
  - name: vllm
    image: {{ $model.image | default $values.image }}
    {{- if $model.autoscaling }}
    command:
      - /bin/sh
      - -c
      - |
        number="${FINESERVE_ENGINE##*-}"
        export CUDA_VISIBLE_DEVICES="$(echo "$GPUS" | cut -d, -f"$((number + 1))")"
        exec "$@" --port "$(({{ include "fineserve.portOf" $model }} + number))"
      - sh
    args: {{ include "fineserve.command" (list $ $model 0) }}
    {{- else }}
    command: {{ include "fineserve.command" (list $ $model $engine.port) }}
    {{- end }}
    env:
      - {name: LD_PRELOAD, value: /shim/libfineserve_shim.so}
      - {name: FINESERVE_VIEW, value: required}
      - {name: FINESERVE_RUNTIME_DIR, value: /run/fineserve}
      {{- if eq (toString $model.evict) "auto" }}
      - {name: FINESERVE_EVICT, value: auto}
      {{- end }}
      {{- include "fineserve.engineVariable" . | nindent 6 }}
      {{- include "fineserve.driver" $ | nindent 6 }}
      - {name: CUDA_DEVICE_ORDER, value: PCI_BUS_ID}
      {{- if $model.autoscaling }}
      - {name: GPUS, value: {{ join "," $gpus | quote }}}
      {{- else }}
      - {name: CUDA_VISIBLE_DEVICES, value: {{ $engine.gpu | quote }}}
      {{- end }}
      # The user has no entry in the image's /etc/passwd.
      - {name: USER, value: fineserve}
      - {name: HOME, value: /models}
      {{- range $key, $value := $model.env }}
      - {name: {{ $key }}, value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}}
      {{- end }}
      {{- with $values.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- $period := 10 }}
    {{- $health := dict "httpGet" (dict "host" "127.0.0.1" "path" "/health" "port" (int $engine.port)) }}
    {{- if $model.autoscaling }}
    {{- $health = dict "exec" (dict "command" (list "/bin/sh" "-c" (printf
      "env -u LD_PRELOAD python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' http://127.0.0.1:$((%s + ${FINESERVE_ENGINE##*-}))/health"
      (include "fineserve.portOf" $model)))) }}
    {{- end }}
    {{- $probe := merge (dict "periodSeconds" $period "timeoutSeconds" 5) $health }}
    readinessProbe: {{ toJson $probe }}
    # One that hangs is not drained, which its preStop waits for.
    {{- $probe = merge (dict "terminationGracePeriodSeconds" 10) $probe }}
    startupProbe: {{ merge (dict "failureThreshold" (divf $values.startSeconds $period | ceil | int)) $probe | toJson }}
    {{- with dig "restart_after" 120 $model }}
    livenessProbe: {{ merge (dict "failureThreshold" (divf . $period | ceil | int)) $probe | toJson }}
    {{- end }}
    # SIGTERM comes once the engine runs no request.
    lifecycle:
      preStop:
        exec: {command: ["/bin/sh", "-c", "until [ -e /leave/drained ]; do sleep 1; done"]}
    {{- with $model.resources }}
    resources: {{ toJson . }}
    {{- end }}
    volumeMounts:
      - {name: runtime, mountPath: /run/fineserve}
      - {name: shim, mountPath: /shim, readOnly: true}
      - {name: models, mountPath: /models}
      - {name: leave, mountPath: /leave}
      - {name: shared-memory, mountPath: /dev/shm}
  # Drains the engine before it ends. The next pod's takes requests again, as
  # soon as a daemon knows it; an operator's own drain stays.
  - name: leave
    {{- include "fineserve.ours" $ | nindent 4 }}
    command:
      - /bin/sh
      - -c
      - |
        while [ -e "/run/fineserve/$FINESERVE_ENGINE.left" ]; do
          if /usr/bin/fsctl drain "$FINESERVE_ENGINE" --undo; then rm "/run/fineserve/$FINESERVE_ENGINE.left"; else sleep 5; fi
        done
        exec sleep infinity
    env:
      - {name: FINESERVE_RUNTIME_DIR, value: /run/fineserve}
      {{- include "fineserve.engineVariable" . | nindent 6 }}
    lifecycle:
      preStop:
        exec: {command: ["/bin/sh", "-c", {{ printf "touch \"/run/fineserve/$FINESERVE_ENGINE.left\"; /usr/bin/fsctl drain \"$FINESERVE_ENGINE\" --wait %d; touch /leave/drained" (int $values.drainSeconds) | toJson }}]}
    volumeMounts:
      - {name: runtime, mountPath: /run/fineserve}
      - {name: leave, mountPath: /leave}
volumes:
  - {name: runtime, hostPath: {path: /run/fineserve, type: Directory}}
  - {name: shim, emptyDir: {}}
  - {name: models, hostPath: {path: {{ $.Values.folder }}, type: Directory}}
  - {name: leave, emptyDir: {}}
  - {name: shared-memory, emptyDir: {medium: Memory, sizeLimit: {{ $values.sharedMemory }}}}
{{- end }}

{{/* (list $ ENGINE): the variable with the engine's name. */}}
{{- define "fineserve.engineVariable" -}}
{{- if (index (first .).Values.models (int (last .).model)).autoscaling -}}
- {name: FINESERVE_ENGINE, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
{{- else -}}
- {name: FINESERVE_ENGINE, value: {{ (last .).name }}}
{{- end -}}
{{- end }}
