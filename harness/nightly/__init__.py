"""What a nightly run on a GPU machine came to, from the files it left: its state, its history, the issue about it.

Runs on a machine that has neither torch nor the models: nothing of the harness that needs them is imported here.
"""
