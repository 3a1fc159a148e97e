"""Double of a model loader: what weights.py wraps of it."""


class BaseModelLoader:
    def load_model(self, vllm_config, model_config, prefix=""):
        raise NotImplementedError
