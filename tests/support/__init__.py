"""What tests share: the two drivers, captured telemetry, leak checks."""
