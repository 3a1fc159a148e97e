"""The names that vLLM imports from nixl's compiled part."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class nixlXferTelemetry:  # noqa: N801
    startTime: int  # noqa: N815
    postDuration: int  # noqa: N815
    xferDuration: int  # noqa: N815
    totalBytes: int  # noqa: N815
    descCount: int  # noqa: N815
