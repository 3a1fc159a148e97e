"""Double of the scheduler's states."""

import enum


class PauseState(enum.Enum):
    UNPAUSED = 0
    PAUSED_NEW = 1
    PAUSED_ALL = 2
