"""Counts and the arithmetic on them: what engines return, the round rule, rates, intervals. Imports no torch."""
