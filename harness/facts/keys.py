"""The keys under which a draft's config keeps its layer ids and flags."""

from __future__ import annotations

__all__ = ["EAGLE_SECTION", "IDS_KEY", "NESTED", "NESTED_IDS_KEY", "TOP"]

IDS_KEY = "eagle_aux_hidden_state_layer_ids"
"""The layer ids; under `eagle_config`, where SGLang reads them, or at the top level, where speculators writes them."""

EAGLE_SECTION = "eagle_config"
NESTED, TOP = f"{EAGLE_SECTION}.", ""
"""The prefix of a key in messages, by its place in the config."""

NESTED_IDS_KEY = f"{NESTED}{IDS_KEY}"
