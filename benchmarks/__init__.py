"""Measurements behind the numbers in the docs; each module is run by itself."""
