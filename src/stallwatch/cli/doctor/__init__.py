"""``stallwatch doctor``: is stallwatch working here, and what would it do? ``examine`` is the same for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stallwatch.cli.doctor.examination import examine

__all__ = ["examine"]


def __getattr__(name: str) -> Any:
    # Late: the help of the command needs nothing of what is examined.
    if name == "examine":
        from stallwatch.cli.doctor.examination import examine as found

        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
