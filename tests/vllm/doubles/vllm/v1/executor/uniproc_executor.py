"""Double of the executor whose worker is in its process."""


class UniProcExecutor:
    def collective_rpc(
        self,
        method,
        timeout=None,
        args=(),
        kwargs=None,
        non_block=False,
        single_value=False,
    ):
        if isinstance(method, str):
            result = getattr(self.driver_worker.worker, method)(*args)
        else:
            result = method(self.driver_worker.worker, *args)
        return result if single_value else [result]
