from stories.conftest import (
    authority,
    captured,
    driver,
    gateway,
    guarded,
    helper_thread_ends,
    leaves_nothing,
    says_nothing,
    warm,
)

__all__ = [
    "authority",
    "captured",
    "driver",
    "gateway",
    "guarded",
    "helper_thread_ends",
    "leaves_nothing",
    "says_nothing",
    "warm",
]
