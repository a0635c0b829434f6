"""The command `harness`."""
