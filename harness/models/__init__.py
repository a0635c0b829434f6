"""Models as torch modules: capture from a transformers target, and the EAGLE-3 draft."""
