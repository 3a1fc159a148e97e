"""Double of the parallel configuration: what support.py reads."""

import dataclasses


@dataclasses.dataclass
class ParallelConfig:
    data_parallel_size: int = 1
