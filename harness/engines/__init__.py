"""Engines: each turns a pair and its prompts into records. Nothing after them asks which one ran."""
