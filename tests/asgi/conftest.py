from support.fixtures import plain

__all__ = ["plain"]
