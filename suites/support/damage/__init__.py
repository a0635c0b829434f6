"""Ways in which a user's files get damaged, each with what the error must say.

Every entry of `DAMAGES` takes the folder of a whole, recorded random pair and spoils one thing in it. A module for each
kind of file; `editing` has the changes that they are made of.
"""

from __future__ import annotations

from suites.support.damage.draft import DRAFT
from suites.support.damage.editing import (
    DRAFT_WEIGHTS,
    FILES,
    GOLDEN,
    PAIR,
    PROMPTS,
    RESULT,
    TARGET_WEIGHTS,
    Damage,
    add_tokenizer,
    edit_arrays,
    edit_json,
    edit_prompts,
    edit_tensors,
    replace_golden_tensors,
    replace_text,
    snapshot,
)
from suites.support.damage.golden import GOLDEN_JSON
from suites.support.damage.golden_commands import GOLDEN_COMMANDS
from suites.support.damage.golden_tensors import GOLDEN_TENSORS
from suites.support.damage.options import OPTIONS
from suites.support.damage.pairfile import PAIR_FILE
from suites.support.damage.prompts import PROMPTS_FILE
from suites.support.damage.result import RESULTS
from suites.support.damage.target import TARGET

__all__ = [
    "DAMAGES",
    "DRAFT_WEIGHTS",
    "FILES",
    "GOLDEN",
    "PAIR",
    "PROMPTS",
    "RESULT",
    "TARGET_WEIGHTS",
    "Damage",
    "add_tokenizer",
    "edit_arrays",
    "edit_json",
    "edit_prompts",
    "edit_tensors",
    "replace_golden_tensors",
    "replace_text",
    "snapshot",
]

DAMAGES = [
    *PAIR_FILE,
    *OPTIONS,
    *PROMPTS_FILE,
    *TARGET,
    *DRAFT,
    *GOLDEN_JSON,
    *GOLDEN_TENSORS,
    *GOLDEN_COMMANDS,
    *RESULTS,
]
