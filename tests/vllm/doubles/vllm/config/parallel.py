"""Double of the parallel configuration: what the plugin reads."""

import dataclasses


@dataclasses.dataclass
class ParallelConfig:
    data_parallel_size: int = 1
    enable_eplb: bool = False
    enable_elastic_ep: bool = False
    enable_fault_tolerance: bool = False
