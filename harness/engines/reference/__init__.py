"""The reference engine: a transformers target with the harness' own draft module."""
