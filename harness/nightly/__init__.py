"""Summarising a nightly GPU run from the files it left: its state, the runs before it, and the issue about it.

This runs on machines without torch and without the models, so it imports nothing that needs them.
"""
