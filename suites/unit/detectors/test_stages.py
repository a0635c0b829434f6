"""The `stages` detector: what lies past the end of a continuation is not compared."""

from __future__ import annotations

from harness.commands.check import check
from harness.commands.prepare import prepare
from harness.golden.find import golden_in_use
from harness.golden.store import load_golden


def test_what_lies_past_the_end_of_a_continuation_is_not_compared() -> None:
    """The last steps before an EOS would read what lies there: padding, which differs with the prompts beside it."""
    pair = prepare("tiny")
    golden = load_golden(golden_in_use(pair))
    whole = pair.settings.decode.max_new_tokens + pair.settings.decode.num_steps
    ended = [prompt.id for prompt in golden.document.prompts if prompt.output < whole]
    assert len(ended) > 3
    for prompts in (*ended[:3], ",".join(ended[:3])):
        finding = check(pair, prompts=prompts).findings["stages"]
        assert str(finding.state) == "pass", finding.message
