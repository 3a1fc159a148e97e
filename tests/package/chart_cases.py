"""Values for our chart: right ones, wrong ones, and changes."""

from __future__ import annotations

import pathlib
from typing import Any

from chart import FOLDER, Object

# A value for each key that a model may have.
EVERY_KEY = {
    "name": "Qwen/Qwen3-8B",
    "slo_ttft_ms": 800,
    "slo_tpot_ms": 60,
    "aliases": ["gpt-4o", 'a "b" <c>'],
    "adapters": ["legal"],
    "chunk_tokens": 4096,
    "max_batch": 64,
    "block_tokens": 32,
    "kv_token_bytes": 131072,
    "prompt_tokens": "exact",
    "profile": {"base_us": 8000, "per_token_us": 110.5, "per_sequence_us": 60},
    "fallback": "gpt",
    "checkpoint": "/models/qwen",
    "arguments": ["--max-model-len", "8192", "--enable-lora"],
    "env": {"HF_HUB_OFFLINE": 1, "LIMIT": 1000000},
    "evict": "auto",
    "evict_after": 600,
    "floor": "2GiB",
    "cap": "12GiB",
    "restart_after": 0,
    "gpus": ["GPU-0a", "GPU-0b"],
    "port": 9001,
    "image": "mine/vllm:1",
    "resources": {"limits": {"memory": "64Gi"}},
    "autoscaling": {"by": "keda", "minReplicas": 2},
}
# One for each section.
EVERY_SECTION = {
    "models": [EVERY_KEY, {"name": "b", "checkpoint": "b", "slo_ttft_ms": 1}],
    "gpus": ["GPU-0a", "GPU-0b"],
    "nodeSelector": {"kubernetes.io/hostname": "gpu-1"},
    "tolerations": [{"key": "fineserve", "operator": "Exists"}],
    "runtimeClassName": "nvidia",
    "priorityClassName": "high",
    "imagePullSecrets": [{"name": "registry"}],
    "image": {"repository": "registry/fineserve", "pullPolicy": "Always"},
    "folder": "/data/fineserve",
    "fineserved": {
        "pool": "16GiB",
        "arguments": ["--store", "64GiB"],
        "resources": {"limits": {"memory": "80Gi"}},
    },
    "proxy": {
        "port": 8100,
        "adminPort": 8101,
        "arguments": ["--access-log", "-"],
        "resources": {"requests": {"cpu": 1}},
    },
    "service": {"type": "LoadBalancer", "port": 80, "annotations": {"a/b": "c"}},
    "engine": {"env": [{"name": "A", "value": "b"}], "drainSeconds": 60},
    "fleet": {
        "proxy": {"drain": 45, "other_paths": ["/v1/own"]},
        "scheduler": {"policy": "fcfs"},
        "outside": [
            {"name": "gpt", "url": "https://h/v1", "key": "/etc/fineserve/keys/gpt"}
        ],
    },
    "keys": {"lines": ["sk-1 name=alice", "sk-2 operator"]},
    "metrics": {"enabled": True, "port": 9480},
    "podMonitor": {
        "enabled": True,
        "labels": {"release": "x"},
        "interval": "30s",
        "authorization": {"credentials": {"name": "mine", "key": "operator"}},
    },
    "keda": {"serverAddress": "http://p:9090"},
}
TWO, SCALED = FOLDER / "two-models.yaml", FOLDER / "scaled.yaml"
CASES: dict[str, tuple[list[pathlib.Path], Object]] = {
    "defaults": ([], {}),
    "two-models.yaml": ([TWO], {}),
    "scaled.yaml": ([SCALED], {}),
    "every key": ([], EVERY_SECTION),
    "a secret of theirs": ([], {"keys": {"secret": "theirs"}}),
    "a replica on each GPU": (
        [],
        {"gpus": ["GPU-a", "GPU-b"], "nodeSelector": {"kubernetes.io/hostname": "n"}},
    ),
}


def model(name: str, **keys: Any) -> Object:
    return {"name": name, "checkpoint": "c", "slo_ttft_ms": 1} | keys


ONE_NODE = {"kubernetes.io/hostname": "n"}
METRICS = {"enabled": True}


def scaled(by: str, least: int, **more: Any) -> Object:
    wanted = {"by": by, "minReplicas": least}
    return {
        "models": [model("a", autoscaling=wanted)],
        "nodeSelector": ONE_NODE,
        "metrics": METRICS,
    } | more


# Invalid values, and what Helm says about them.
REFUSED: list[tuple[Object, str]] = [
    ({"modles": []}, "additional properties 'modles' not allowed"),
    ({"models": []}, "at '/models': minItems: got 0, want 1"),
    (
        {"models": [model("a", ckeckpoint="b")]},
        "at '/models/0': additional properties 'ckeckpoint' not allowed",
    ),
    (
        {"models": [{"name": "a", "slo_ttft_ms": 1}]},
        "at '/models/0': missing property 'checkpoint'",
    ),
    ({"fleet": {"proxy": {"keys": "/k"}}}, "additional properties 'keys' not allowed"),
    ({"models": [model("a"), model("a")]}, "models: two are called a"),
    (
        {"models": [model("A/b"), model("a-b")]},
        "models: A/b and a-b would both have pods of one name; rename one",
    ),
    (
        {"models": [model("a", port=9001), model("b", port=9001)]},
        "port 9001 is that of engine a and of engine b; give one of them another",
    ),
    (
        {"models": [model("a", port=8001)]},
        "port 8001 is that of proxy.adminPort and of engine a; give one",
    ),
    (
        {"models": [model("fineserved")]},
        'model fineserved: its pods cannot be named "fineserved"; choose a name',
    ),
    ({"models": [model("70")]}, "model 70: YAML takes the name of its pods, 70, for no"),
    ({"models": [model("On")]}, "model On: YAML takes the name of its pods, on, for no"),
    ({"models": [model("a", gpus=["1"])]}, "model a: 1 is not one of gpus: 0"),
    (
        {"models": [model("a", resources={"limits": {"nvidia.com/gpu": 1}})]},
        "model a: its resources may not have GPUs",
    ),
    (
        {"gpus": ["0", "1"]},
        'gpus: several GPUs are named by their UUIDs (nvidia-smi -L), not "0"',
    ),
    ({"gpus": ["GPU-a"]}, "gpus: GPU-a is a GPU of one node; choose that in nodeSel"),
    (
        {"keys": {"lines": ["a"], "secret": "b"}},
        "keys: give lines, or the secret that has them, not both",
    ),
    ({"podMonitor": METRICS}, "podMonitor: there is nothing to scrape; set metrics.en"),
    (
        scaled("hpa", 2),
        "model a: minReplicas is 2, but its replicas have 1 GPU: one each",
    ),
    (scaled("hpa", 0), "model a: an hpa keeps at least 1 replica; for minReplicas: 0"),
    (
        scaled("keda", 0, metrics={"enabled": False}),
        "model a: an autoscaler needs fineserved's metrics; set metrics.enabled",
    ),
    (
        scaled("keda", 0, nodeSelector={}),
        "model a: its replicas run on one node; choose that in nodeSelector",
    ),
    ({"models": [model("a", autoscaling={"by": "knative"})]}, "one of 'hpa', 'keda'"),
]

# Changes to a release of the models a and b, and the pods that they replace.
UPGRADES: list[tuple[str, Object, set[str]]] = [
    ("an SLO", {"models": [model("a", slo_tpot_ms=9), model("b")]}, set()),
    ("a third model", {"models": [model("a"), model("b"), model("c")]}, set()),
    ("a key", {"keys": {"lines": ["sk-1", "sk-2"]}}, set()),
    ("a flag of vLLM", {"models": [model("a", arguments=["-x"]), model("b")]}, {"a"}),
    ("the pool", {"fineserved": {"pool": "9GiB"}}, {"a", "b", "fineserved"}),
    ("a flag of the proxy", {"proxy": {"arguments": ["-x"]}}, {"fineserve-proxy"}),
]
