"""Double of vLLM's configuration: what the plugin reads."""


class VllmConfig:
    @property
    def use_v2_model_runner(self) -> bool:
        return True
