"""A pair as its files state it: pair file, draft and target descriptions, prompts. No weights are read here."""
