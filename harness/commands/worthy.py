"""What a golden may be made of: each thing is judged as early in a record as it is known."""

from __future__ import annotations

from collections.abc import Sequence

from harness.commands.kept_texts import KeptTexts
from harness.commands.measure import LOOP_LIMIT, require_finite
from harness.counts.acceptance import PromptCounts, columns, counts_of, figures, repeated_ngram_ratio
from harness.counts.run import PromptRecord
from harness.counts.statistics import Interval, rate_interval
from harness.counts.ties import NEAR_TIE
from harness.detectors.acceptance import judge_floor
from harness.detectors.base import Question, State, share_of
from harness.engines.base import Continuations
from harness.errors import InputError
from harness.golden.schema import LeftOutPrompt
from harness.pair.pair import Pair
from harness.pair.prompts import Prompt

__all__ = ["DEAD", "Standards", "require_worthy"]

DEAD = 0.01
"""The share of correct guesses below which a draft position counts as dead; guessing a text's most frequent token is
right more often."""
# Conditional position rates are judged from so many rounds on.
_LEAST_ROUNDS = 300
# Of a text's positions, and in any text: a token that rounding sent to another expert has a few successors at most.
_MOST_OTHERS, _FEW_OTHERS = 0.05, 2
# Of the prompts; a set with more loops than that says something about the target or the length of its texts.
_MOST_LOOPS = 0.1


class Standards:
    """The guide of a record: continuations are judged as they are decoded, records before noise is measured.

    Args:
        pair: The pair that is recorded.
        count: Number of prompts to record.
        skip_loops: Whether a prompt whose continuation is a loop is left out, instead of refusing the record.
        kept: Where continuations are kept until the golden is written; `None` if the engine's are not kept.

    Attributes:
        left_out: The prompts left out so far.
        resumed: Number of continuations that an earlier attempt had decoded.
    """

    def __init__(self, pair: Pair, count: int, *, skip_loops: bool, kept: KeptTexts | None) -> None:
        self._pair = pair
        self._count = count
        self._skip_loops = skip_loops
        self._kept = kept
        self._decoded = 0
        self.left_out: list[LeftOutPrompt] = []
        self.resumed = 0
        self._known: set[str] = set()

    def known(self, prompts: Sequence[Prompt]) -> Continuations:
        """Return the continuations that an earlier attempt has decoded; see `harness.engines.base.RecordGuide`."""
        known = {} if self._kept is None else self._kept.of(prompts)
        self._known = set(known)
        self.resumed = len(known)
        return known

    def decoded(self, prompt: Prompt, continuation: tuple[int, ...]) -> bool:
        """Take a continuation; return whether its prompt is recorded.

        Raises:
            InputError: The continuation is a loop, and loops are not left out, or there are too many of them.
        """
        if self._kept is not None and prompt.id not in self._known:
            self._kept.add(prompt, continuation)
        self._decoded += 1
        repeated = repeated_ngram_ratio(continuation)
        if repeated <= LOOP_LIMIT:
            return True
        self.left_out.append(LeftOutPrompt(id=prompt.id, hash=prompt.hash, repeated=round(repeated, 4)))
        loops = len(self.left_out)
        too_many = loops > max(1, self._count * _MOST_LOOPS)
        if self._skip_loops and not too_many:
            return False
        kept = "; what has been decoded is kept" if self._kept is not None else ""
        advice = f"leave them out with --skip-loops, or shorten decode.max_new_tokens{kept}"
        if too_many:
            advice = f"remove these prompts, or shorten decode.max_new_tokens{kept}"
        raise InputError(
            "some continuations are loops, which inflate acceptance",
            file=self._pair.prompts_file,
            key="id",
            found=f"{loops} of {self._decoded} decoded so far: {', '.join(one.id for one in self.left_out[:5])}",
            expected=f"continuations of which at most {LOOP_LIMIT:.0%} of the 8-grams repeat"
            + (f", but for at most {_MOST_LOOPS:.0%} of {self._count} prompts" if self._skip_loops else ""),
            next_step=advice,
        )

    def measured(self, records: Sequence[PromptRecord]) -> None:
        """Take the records; see `require_worthy`."""
        require_worthy(self._pair, records)


def require_worthy(pair: Pair, records: Sequence[PromptRecord]) -> None:
    """Refuse records that no golden may hold: empty, NaN, a spoiled text, a dead position, a floor that chance decides.

    Raises:
        InputError: The golden would be misleading.
    """
    require_finite(pair, records)
    _require_own_texts(pair, records)
    gate = pair.settings.gate
    counts = [counts_of(entry) for entry in records]
    rate = rate_interval(
        [entry.accepted for entry in counts], [entry.proposed for entry in counts], share_of(gate.alpha, Question.FLOOR)
    )
    if rate is None:
        raise InputError(
            "nothing was measured: not one verify round was counted",
            file=pair.file,
            key="decode.max_new_tokens",
            next_step="raise decode.max_new_tokens",
        )
    _require_alive(pair, counts)
    _require_floor(pair, rate)


def _require_own_texts(pair: Pair, records: Sequence[PromptRecord]) -> None:
    """Refuse a text that the target, run over it, does not choose: the cache that it was decoded with spoiled it."""
    engine = pair.settings.engine
    # A server's dtype is its own affair, and its rounding may be the coarsest.
    tie = NEAR_TIE[engine.dtype] if engine.name != "server" else max(NEAR_TIE.values())
    for entry in records:
        if entry.target is None:
            continue
        evaluated = len(entry.target.agrees)
        others = int(entry.target.drifts(tie).sum())
        if others > max(_FEW_OTHERS, _MOST_OTHERS * evaluated):
            raise InputError(
                "the target, run over a text that was decoded with it, chooses other tokens",
                file=pair.file,
                key=entry.id,
                found=f"{others} of {evaluated} positions, by more than a near-tie",
                expected=f"at most {_MOST_OTHERS:.0%}: decoding with a cache must compute what one forward does",
                next_step=f"try another release of transformers, or whether {engine.device} computes the "
                'same twice; engine.dtype = "float32" rules out rounding',
            )


def _require_alive(pair: Pair, counts: Sequence[PromptCounts]) -> None:
    """Refuse a draft with a position that is right less often than a constant guess would be."""
    steps = pair.settings.decode.num_steps
    forced = any(entry.evaluated for entry in counts)
    for step in range(steps):
        right, asked = (sum(part) for part in columns(counts, figures(steps)[f"{'t' if forced else 'c'}{step}"]))
        # Few rounds reach a late position, and chance alone can leave it without a correct guess. Teacher-forced, every
        # position is asked about every step.
        if asked < (1 if forced else _LEAST_ROUNDS) or right >= DEAD * asked:
            continue
        how = "even with the known continuation as its input" if forced else "once the tokens before it are accepted"
        trace = f"check the wiring with harness trace {pair.file}"
        raise InputError(
            f"a draft position is dead: there the draft is hardly ever right, {how}",
            file=pair.file,
            key=f"step {step}",
            found=f"{right} of {asked} right ({right / asked:.2%})",
            expected=f"at least {DEAD:.0%}: always guessing a text's most frequent token is right more often",
            next_step=f"{trace}, or set decode.num_steps = {step}" if step else trace,
        )


def _require_floor(pair: Pair, rate: Interval) -> None:
    floor = pair.settings.gate.floor
    state = judge_floor(rate, floor)
    if state is State.PASS:
        return
    raise InputError(
        "the acceptance rate is below the floor"
        if state is State.REGRESSION or rate.estimate < floor
        else "the floor is so close to the rate that chance would decide",
        file=pair.file,
        key="gate.floor",
        found=f"rate {rate.estimate:.4f} [{rate.low:.4f}, {rate.high:.4f}]",
        expected=f"an interval entirely above the floor {floor}",
        next_step="correct the pair, add prompts, or set gate.floor below the interval",
    )
