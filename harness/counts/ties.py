"""Near-ties: by how much two logits may differ and still change places by rounding."""

from __future__ import annotations

__all__ = ["NEAR_TIE"]

NEAR_TIE = {"float64": 1e-9, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
"""By dtype, the greatest gap between two logits that rounding can turn over, for logits that spread over about 10. A
larger gap cannot come from another kernel of the same precision."""
