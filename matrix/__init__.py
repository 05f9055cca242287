"""The test suite over the supported versions: which cells there are, how they are run, and what came of it."""
