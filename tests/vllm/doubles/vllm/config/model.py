"""Double of the model's configuration: what the plugin reads."""

import dataclasses


@dataclasses.dataclass
class ModelConfig:
    enable_sleep_mode: bool = False
    enable_cumem_allocator: bool = False
    sleep_mode_backend: str = "cumem"
    max_model_len: int = 2048

    @property
    def is_moe(self) -> bool:
        return False

    @property
    def is_hybrid(self) -> bool:
        return False

    @property
    def is_attention_free(self) -> bool:
        return False
