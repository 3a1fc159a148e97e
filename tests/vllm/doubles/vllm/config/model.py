"""Double of the model's configuration: what support.py reads."""

import dataclasses


@dataclasses.dataclass
class ModelConfig:
    enable_sleep_mode: bool = False
    sleep_mode_backend: str = "cumem"

    @property
    def is_moe(self) -> bool:
        return False
