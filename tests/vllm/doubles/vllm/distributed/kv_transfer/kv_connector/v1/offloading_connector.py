"""Double of the connector that offloads to the host."""


class OffloadingConnector:
    def __init__(self, vllm_config, role, kv_cache_config):
        self.connector_scheduler = None
