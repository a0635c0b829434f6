"""The meaning of layer ids and flags to each engine and trainer, by version: plain data, without torch."""
