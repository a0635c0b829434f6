"""The main job: the tiny pair, measured and gated against its golden baseline."""

from __future__ import annotations

import json
import subprocess
import sys

from harness.counts.acceptance import Acceptance
from harness.golden.store import Golden
from harness.pair.pair import Pair
from suites.support.schemas import require_valid


def test_the_tiny_pair_accepts_as_many_tokens_as_it_should(acceptance: Acceptance, golden: Golden) -> None:
    assert acceptance.rate is not None
    assert acceptance.rate >= 0.70
    assert acceptance.rate == golden.document.totals.rate
    assert acceptance.prompts >= 64


def test_it_is_wired_as_it_was_trained(pair: Pair) -> None:
    assert pair.wiring.agree
    assert pair.boundaries == (2, 4, 7)


def test_the_command_says_so_too() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "harness", "check", "tiny", "--json"], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    body = json.loads(result.stdout)
    assert body["verdict"] == "pass"
    assert set(body) >= {"pair", "engine", "detectors", "acceptance", "golden", "drop", "seconds"}
    figures = {"rate", "length", "step_accuracy", "position_rates", "rounds", "accepted", "prompts"}
    assert set(body["acceptance"]) >= figures
    require_valid("check", body)
    assert set(body["drop"]) >= {"estimate", "low", "high"}
    verdicts = {name: finding["verdict"] for name, finding in body["detectors"].items()}
    assert verdicts.pop("lossless") == "not_applicable"
    assert verdicts == dict.fromkeys(("contract", "target", "stages", "proposals", "likelihood", "acceptance"), "pass")
    assert body["first_stage"] is None
