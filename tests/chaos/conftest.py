from support.fixtures import loop, nothing_is_logged, place, plain

__all__ = ["loop", "nothing_is_logged", "place", "plain"]
