"""What may be told of an exception that is not ours: its class and where it was raised, never what it says.

Messages of exceptions quote addresses, keys and content. An exception handed to a log record with ``exc_info`` takes
its frames along too, and tools that collect errors read the local variables out of them: requests with their keys.
"""

from __future__ import annotations

__all__ = ["told_of"]

_FRAMES = 6


def told_of(error: BaseException) -> str:
    """Return class and place of ``error``, innermost frame first, and the classes it was raised from."""
    # Only where something has failed.
    import traceback

    try:
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        places = [
            f"{'/'.join(each.filename.replace(chr(92), '/').split('/')[-3:])}:{each.lineno} {each.name}"
            for each in reversed(frames)
        ]
        below = error.__cause__ or error.__context__
        told = (
            type(error).__name__ if below is None else f"{type(error).__name__} from {type(below).__name__}"
        )
        return f"{told} at {' < '.join(places)}" if places else told
    except Exception:
        return "an exception"
