"""Golden baselines: their form, where they are kept, and what may be compared with them."""
