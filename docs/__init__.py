"""The parts of the documentation that are made from the code; see generate.py."""
