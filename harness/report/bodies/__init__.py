"""The JSON bodies of commands, one module for each command; their types give the shipped schemas."""
