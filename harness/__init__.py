"""Acceptance testing for EAGLE-3 speculative-decoding pairs."""

__version__ = "0.1.0"

__all__ = ["__version__"]
