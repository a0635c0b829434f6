"""How SGLang reads layer ids, by model class and version: from the model files of 24 released wheels.

The wheels: 0.4.10.post2, and every release from 0.5.1 to 0.5.23 except post-releases. `harness conformance` ran the
setters and read the forwards, and reports any row that is wrong. A version between two rows of a class was not read,
and is not guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.facts.rules import AS_IS, AS_IS_IF_LAST, PLUS_ONE, PLUS_ONE_IF_FIRST_IS_ONE, IdRule

__all__ = ["LAST", "MODEL_FILES", "SGLANG_ROWS", "EngineRow", "shared_class"]

FIRST, LAST = "0.4.10.post2", "0.5.23"


@dataclass(frozen=True)
class EngineRow:
    """One class's rule over a span of versions.

    Attributes:
        first: First version.
        last: Last version.
        rule: The rule for explicit ids.
        default_rule: The rule for SGLang's own default, [2, N//2, N-3].
        embedding: Whether boundary 0 can be captured. Rules that add one are asked for it by id -1; older loops added a
            residual that does not exist there yet, and raised.
        last_reached: Whether boundary N can be captured: most loops end before it.
    """

    first: str
    last: str
    rule: IdRule
    default_rule: IdRule = AS_IS
    embedding: bool = True
    last_reached: bool = False


def _embedding_from(version: str, before: str) -> tuple[EngineRow, ...]:
    """Return the common rule of a class that could not capture boundary 0 up to release `before`.

    Up to then its forward added the residual to every captured state; before the first block it is None: TypeError.
    """
    return (EngineRow(FIRST, before, PLUS_ONE, embedding=False), EngineRow(version, LAST, PLUS_ONE))


_COMMON = (EngineRow(FIRST, LAST, PLUS_ONE),)
_COMMON_WITH_LAST = (EngineRow(FIRST, LAST, PLUS_ONE, last_reached=True),)

SGLANG_ROWS: dict[str, tuple[EngineRow, ...]] = {
    **dict.fromkeys(
        (
            "bailing_moe",
            "glm5_next",
            "qwen2",
            "qwen2_5_vl",
            "qwen2_moe",
            "qwen3",
            "qwen3_5",
            "qwen3_moe",
            "qwen3_next",
            "qwen3_vl",
        ),
        _COMMON,
    ),
    **dict.fromkeys(("gemma3", "gemma4"), _COMMON_WITH_LAST),
    **dict.fromkeys(("apertus", "exaone_moe", "llama"), _embedding_from("0.5.22", before="0.5.21")),
    **dict.fromkeys(("glm4_moe", "llama4", "longcat_flash"), _embedding_from("0.5.21", before="0.5.20")),
    "minimax_m2": _embedding_from("0.5.11", before="0.5.10"),
    "minimax_m3": (EngineRow("0.5.16", "0.5.22", PLUS_ONE), EngineRow("0.5.23", LAST, PLUS_ONE, last_reached=True)),
    "deepseek_v2": (
        EngineRow("0.5.5", "0.5.12", PLUS_ONE, embedding=False),
        EngineRow("0.5.13", "0.5.13", PLUS_ONE_IF_FIRST_IS_ONE, embedding=False),
        EngineRow("0.5.14", LAST, PLUS_ONE_IF_FIRST_IS_ONE),
    ),
    # Up to 0.5.12 it inherits DeepSeek's setter and forward.
    "glm4_moe_lite": (
        EngineRow("0.5.8", "0.5.12", PLUS_ONE, embedding=False),
        EngineRow("0.5.13", "0.5.20", PLUS_ONE_IF_FIRST_IS_ONE, embedding=False),
        EngineRow("0.5.21", LAST, PLUS_ONE_IF_FIRST_IS_ONE),
    ),
    "gpt_oss": (
        EngineRow("0.5.1", "0.5.16", PLUS_ONE, embedding=False),
        EngineRow("0.5.17", LAST, AS_IS_IF_LAST, last_reached=True),
    ),
    "minimax_m3_vl": (
        EngineRow("0.5.18", "0.5.22", PLUS_ONE, default_rule=PLUS_ONE),
        EngineRow("0.5.23", LAST, PLUS_ONE, default_rule=PLUS_ONE, last_reached=True),
    ),
}

# The model file that defines an architecture's setter, by SGLang 0.5.23's registry and class bases.
MODEL_FILES: dict[str, str] = {
    "ApertusForCausalLM": "apertus",
    "BailingMoEForCausalLM": "bailing_moe",
    "BailingMoeForCausalLM": "bailing_moe",
    "BailingMoeV2ForCausalLM": "bailing_moe",
    "Cosmos3ForConditionalGeneration": "qwen3_vl",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV32ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v2",
    "ExaoneMoEForCausalLM": "exaone_moe",
    "ExaoneMoeForCausalLM": "exaone_moe",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3ForConditionalGeneration": "gemma3",
    "Gemma4ForCausalLM": "gemma4",
    "Gemma4ForConditionalGeneration": "gemma4",
    "Gemma4UnifiedForConditionalGeneration": "gemma4",
    "Glm4MoeForCausalLM": "glm4_moe",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
    "Glm5NextForConditionalGeneration": "glm5_next",
    "GlmMoeDsaForCausalLM": "deepseek_v2",
    "GptOssForCausalLM": "gpt_oss",
    "IQuestCoderForCausalLM": "llama",
    "InternLM3ForCausalLM": "llama",
    "InternS1ProForConditionalGeneration": "qwen3_vl",
    "InternS2MobiusForConditionalGeneration": "qwen3_5",
    "InternS2PreviewForConditionalGeneration": "qwen3_5",
    "KimiK25ForConditionalGeneration": "deepseek_v2",
    "Llama4ForCausalLM": "llama4",
    "Llama4ForConditionalGeneration": "llama4",
    "LlamaForCausalLM": "llama",
    "LongcatFlashForCausalLM": "longcat_flash",
    "MellumForCausalLM": "qwen3_moe",
    "MiniMaxM2ForCausalLM": "minimax_m2",
    "MiniMaxM3SparseForCausalLM": "minimax_m3",
    "MiniMaxM3SparseForConditionalGeneration": "minimax_m3_vl",
    "Ministral3ForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "MistralLarge3ForCausalLM": "deepseek_v2",
    "Phi3ForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "qwen3_next",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
    "Qwen3VLMoeForConditionalGeneration": "qwen3_vl",
    "Qwen3_5ForCausalLM": "qwen3_5",
    "Qwen3_5ForConditionalGeneration": "qwen3_5",
    "Qwen3_5MoeForCausalLM": "qwen3_5",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_5",
    "SarvamMoEForCausalLM": "bailing_moe",
    "TeleFLMForCausalLM": "llama",
}


def shared_class(architecture: str) -> str | None:
    """Return the model file that defines an architecture's setter, `None` if none is known."""
    return MODEL_FILES.get(architecture)
