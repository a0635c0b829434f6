"""A pair ready to be run: settings, shapes, boundaries and prompts, all read from its files and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.counts.rounds import Limits
from harness.errors import InputError
from harness.facts.layer_ids import states_text
from harness.files import is_file
from harness.pair.builtin import find_prompts
from harness.pair.draft_spec import DraftSpec, describe_draft
from harness.pair.hub import Checkpoint, fetch_weights
from harness.pair.locate import relative_path
from harness.pair.outline import PairOutline, read_outline
from harness.pair.pairfile import PairFile
from harness.pair.prompts import Prompt, read_prompt_lines, select_prompts
from harness.pair.target_spec import TargetSpec
from harness.pair.tokenize import tokenize_prompts
from harness.pair.wiring import Wiring

__all__ = ["Pair", "load_pair", "load_prompts"]


@dataclass(frozen=True)
class Pair:
    """A pair file with the descriptions of target and draft, which fit each other.

    Attributes:
        file: The path of the pair file.
        settings: The content of the pair file.
        target: The target's shape.
        draft: The draft as the engine that serves the pair takes it.
        wiring: The boundaries as trained and as served.
        prompts_file: The path of the prompts file.
        checkpoints: Where target and draft are, by `target` and `draft`.
        engine_info: What a server said about itself when the pair was prepared for it, so that it is asked once; only
            its engine reads it.
        user_named: The settings that the user gave, not the pair file: the addresses `endpoint` and `plain_endpoint`,
            and `num_steps`.
    """

    file: Path
    settings: PairFile
    target: TargetSpec
    draft: DraftSpec
    wiring: Wiring
    prompts_file: Path
    checkpoints: Mapping[str, Checkpoint]
    engine_info: object | None = None
    user_named: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The pair's name, under which its goldens are kept."""
        return self.settings.name

    @property
    def boundaries(self) -> tuple[int, ...]:
        """The boundaries captured by the rule of the serving engine, in the order in which they are concatenated."""
        return self.wiring.served.boundaries

    @property
    def limits(self) -> Limits:
        """What ends the pair's continuations."""
        decode = self.settings.decode
        return Limits(decode.max_new_tokens, decode.num_steps, self.target.eos_ids)

    def require_formable(self) -> None:
        """Refuse states that only the serving engine can give, since one of its known faults forms them.

        Raises:
            InputError: The engine that serves the pair captures states that are not any boundary's.
        """
        served = self.wiring.served
        if served.fault is not None:
            raise InputError(
                f"the reference engine cannot form the states that {served.convention} gives: {served.fault}",
                file=self.draft.config_file,
                key=self.draft.ids_key,
                found=f"{states_text(served.captured)} for ids {list(served.ids)}",
                expected=f"the states of boundaries {list(served.boundaries)}",
                next_step="leave served_by out to measure the pair as trained, or measure that release itself with "
                "--engine sglang",
            )

    def with_steps(self, num_steps: int) -> Pair:
        """Return the pair with another chain length, which the user gave."""
        decode = self.settings.decode.model_copy(update={"num_steps": num_steps, "num_draft_tokens": num_steps + 1})
        settings = self.settings.model_copy(update={"decode": decode})
        return replace(self, settings=settings, user_named=self.user_named | {"num_steps"})

    @property
    def steps_by(self) -> str:
        """What set the chain length, for a message: the option or the pair file."""
        return "--k" if "num_steps" in self.user_named else str(self.file)

    def served_as(self, convention: str) -> Pair:
        """Return the pair as an engine serves it, such as `sglang==0.5.23`; no file is read again.

        Raises:
            InputError: The engine's reading of this draft for this target is not known.
        """
        outline = self.outline.served_as(convention)
        served = _assemble(outline, outline.readings().require(), self.draft, self.prompts_file)
        return replace(self, settings=served.settings, draft=served.draft, wiring=served.wiring)

    @property
    def outline(self) -> PairOutline:
        """The pair file with its configs, as they were read."""
        return PairOutline(self.file, self.settings, self.target, self.draft.layers, self.checkpoints)

    @property
    def revisions(self) -> dict[str, str]:
        """The commits of a target and draft from the hub, by `target` and `draft`."""
        return {key: one.commit for key, one in self.checkpoints.items() if one.commit is not None}

    @property
    def runs_weights(self) -> bool:
        """Whether the pair is run from its files; a server has weights of its own, and those of the files go unread."""
        return self.settings.engine.name.partition(":")[0] != "server"

    def fetch_weights(self, *names: str) -> None:
        """Download weights from the hub that are not here yet; call it before they are read.

        Args:
            *names: `target`, `draft` or both, which is the default. The user's own folders are left alone.

        Raises:
            InputError: They cannot be had.
        """
        for name in names or tuple(self.checkpoints):
            fetch_weights(self.file, self.checkpoints[name])

    def with_engine(self, **changes: object) -> Pair:
        """Return the pair with other engine settings (`name`, `dtype`, `device`)."""
        engine = self.settings.engine.model_copy(update=changes)
        return replace(self, settings=self.settings.model_copy(update={"engine": engine}))


def load_pair(source: str | Path | PairOutline) -> Pair:
    """Read a pair file and the configs it points to, and check that they fit each other.

    Args:
        source: Path of a pair file, the name of a built-in pair, or either as it has been read.

    Raises:
        InputError: Anything in the files that cannot be run as stated.
    """
    outline = source if isinstance(source, PairOutline) else read_outline(source)
    file, settings = outline.file, outline.settings
    wiring = outline.readings().require()
    draft = describe_draft(outline.layers, wiring.trained_flags)
    prompts = find_prompts(file, settings.prompts, relative_path(file, "prompts", settings.prompts))
    pair = _assemble(outline, wiring, draft, prompts)
    _require_greedy_chain(pair)
    return pair


def _assemble(outline: PairOutline, wiring: Wiring, draft: DraftSpec, prompts_file: Path) -> Pair:
    """Return the pair of these parts, if they fit; its draft is the one that the serving engine makes of `draft`."""
    served = draft.taken_with(wiring.trained_flags, wiring.served_flags)
    _check_fit(outline.file, served, outline.target)
    return Pair(outline.file, outline.settings, outline.target, served, wiring, prompts_file, outline.checkpoints)


def _require_greedy_chain(pair: Pair) -> None:
    decode = pair.settings.decode
    if decode.topk != 1:
        raise InputError(
            "none of the engines decodes trees",
            file=pair.file,
            key="decode.topk",
            found=decode.topk,
            expected="1 (a chain)",
        )
    if decode.temperature != 0:
        raise InputError(
            "none of the engines samples",
            file=pair.file,
            key="decode.temperature",
            found=decode.temperature,
            expected="0.0 (greedy)",
        )


def load_prompts(pair: Pair, selection: str | None = None) -> list[Prompt]:
    """Read the pair's prompts as token ids.

    Args:
        pair: The pair whose prompts file and tokenizer are used.
        selection: `--prompts`: a number N for the first N, or ids separated by commas.

    Raises:
        InputError: The prompts cannot be read, or one does not fit the models.
    """
    decode = pair.settings.decode
    positions = min(pair.target.max_positions, pair.draft.max_positions)
    longest = positions - decode.max_new_tokens - decode.num_steps
    if longest < 1:
        raise InputError(
            "the text to decode does not fit the pair",
            file=pair.file,
            key="decode.max_new_tokens",
            found=decode.max_new_tokens,
            expected=f"at most {positions - decode.num_steps - 1}: max_position_embeddings = {positions} of target or "
            f"draft less a prompt and num_steps = {decode.num_steps}, by {pair.steps_by}",
        )
    template = pair.settings.chat_template
    if template not in ("target", "none"):
        path = relative_path(pair.file, "chat_template", template)
        if not is_file(path):
            raise InputError(
                "the chat template does not exist",
                file=pair.file,
                key="chat_template",
                found=str(path),
                expected="target, none or a Jinja file",
            )
        template = str(path)
    return tokenize_prompts(
        select_prompts(read_prompt_lines(pair.prompts_file), selection, pair.prompts_file),
        file=pair.prompts_file,
        pair_file=pair.file,
        target=pair.target.path,
        vocab_size=pair.target.vocab_size,
        longest=longest,
        chat_template=template,
        thinking=pair.settings.thinking,
    )


def _check_fit(file: Path, draft: DraftSpec, target: TargetSpec) -> None:
    config = draft.config_file
    if draft.vocab_size != target.vocab_size:
        raise InputError(
            "the draft was made for another vocabulary",
            file=config,
            key="vocab_size",
            found=draft.vocab_size,
            expected=f"{target.vocab_size}, the vocab_size of the target at {target.path}",
            next_step=f"give the pair file {file.name} the draft of this target",
        )
    if draft.target_hidden_size != target.hidden_size:
        raise InputError(
            "the draft was made for another hidden size",
            file=config,
            key="target_hidden_size or hidden_size",
            found=draft.target_hidden_size,
            expected=f"{target.hidden_size}, the hidden_size of the target at {target.path}",
            next_step=f"give the pair file {file.name} the draft of this target",
        )
    if not draft.use_aux_hidden_state:
        raise InputError(
            "this draft reads the target's state after the final norm, which is not a boundary",
            file=config,
            key="use_aux_hidden_state",
            found="false",
            expected="true",
        )
