"""Double of the configuration of offloading: what weights.py reads."""

import dataclasses


@dataclasses.dataclass
class UVAOffloadConfig:
    cpu_offload_gb: float = 0


@dataclasses.dataclass
class PrefetchOffloadConfig:
    offload_group_size: int = 0


@dataclasses.dataclass
class OffloadConfig:
    uva: UVAOffloadConfig = dataclasses.field(default_factory=UVAOffloadConfig)
    prefetch: PrefetchOffloadConfig = dataclasses.field(
        default_factory=PrefetchOffloadConfig
    )
