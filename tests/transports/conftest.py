from stories.conftest import (
    authority,
    driver,
    gateway,
    helper_thread_ends,
    leaves_nothing,
    says_nothing,
    warm,
)

__all__ = [
    "authority",
    "driver",
    "gateway",
    "helper_thread_ends",
    "leaves_nothing",
    "says_nothing",
    "warm",
]
