"""`python -m harness`, the same as the command `harness`."""

from harness.cli.app import run

run()
