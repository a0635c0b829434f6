"""Golden baselines: their schema, where they are stored, and which runs may be compared with them."""
