"""The version, readable without importing anything."""

__all__ = ["__version__"]

__version__ = "0.1.0"
