"""Double of the grouping of layers that keep KV alike."""

import collections
import types


def get_global_kv_cache_groups(vllm_config, kv_cache_specs):
    """Groups of as many layers each as the rarest spec has."""
    alike = collections.defaultdict(list)
    for of_worker in kv_cache_specs:
        for layer, spec in of_worker.items():
            alike[spec].append(layer)
    size = min(map(len, alike.values()), default=0)
    return [
        types.SimpleNamespace(
            layer_names=layers[i : i + size], kv_cache_spec=spec
        )
        for spec, layers in alike.items()
        for i in range(0, len(layers), size)
    ]
