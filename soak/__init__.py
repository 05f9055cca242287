"""Mixed traffic for a long time, and the books of it: ``make soak``."""
