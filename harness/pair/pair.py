"""A pair with everything its files say, ready to be run: settings, shapes, boundaries, prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from harness.counts.rounds import Limits
from harness.errors import InputError, quote
from harness.facts.conventions import Reading, find_convention, read_ids, states_text
from harness.files import is_file, is_folder
from harness.pair.builtin import find_pair, find_prompts
from harness.pair.draft_flags import DraftFlags
from harness.pair.draft_spec import DraftSpec, read_draft_spec
from harness.pair.pairfile import PairFile, read_pair_file
from harness.pair.prompts import Prompt, read_prompt_lines, select_prompts
from harness.pair.target_spec import TargetSpec, read_target_spec
from harness.pair.tokenize import tokenize_prompts

__all__ = ["Pair", "Wiring", "checkpoint_folder", "load_pair", "load_prompts", "relative_path"]


@dataclass(frozen=True)
class Wiring:
    """What the draft's config means to whoever trained it and to whoever serves it.

    Attributes:
        trained: Its layer ids as trained.
        served: Those that whoever serves it looks at, as served.
        trained_flags: Its flags as trained.
        served_flags: Its flags as served.
        overlooked: What to say of layer ids that whoever serves it does not look at; `None` where it sees them.
    """

    trained: Reading
    served: Reading
    trained_flags: DraftFlags
    served_flags: DraftFlags
    overlooked: str | None = None

    @property
    def agree(self) -> bool:
        """Whether the states served are those of the boundaries trained on."""
        return self.served.captured == self.trained.boundaries

    @property
    def loses_states(self) -> bool:
        """Whether fewer states are captured than the draft was trained on: its `fc` would die with a shape error."""
        return len(self.served.captured) != len(self.trained.boundaries)


@dataclass(frozen=True)
class Pair:
    """A pair file with the descriptions it points to.

    Attributes:
        file: The pair file.
        settings: Its content.
        target: The target's shape.
        draft: The draft's description.
        wiring: The boundaries by training and by serving.
        prompts_file: The prompts file.
        engine_info: What a server said about itself when the pair was prepared for it, so that it is asked once; only
            its engine reads it.
    """

    file: Path
    settings: PairFile
    target: TargetSpec
    draft: DraftSpec
    wiring: Wiring
    prompts_file: Path
    engine_info: object | None = None

    @property
    def name(self) -> str:
        """The pair's name, under which its goldens are kept."""
        return self.settings.name

    @property
    def boundaries(self) -> tuple[int, ...]:
        """The boundaries captured, in the order in which they are concatenated."""
        return self.wiring.served.boundaries

    @property
    def limits(self) -> Limits:
        """What ends the pair's continuations."""
        decode = self.settings.decode
        return Limits(decode.max_new_tokens, decode.num_steps, self.target.eos_ids)

    def require_formable(self) -> None:
        """Refuse states that only the serving engine itself can give, since a known fault of it forms them.

        Raises:
            InputError: The engine that serves the pair does not capture the states of boundaries.
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
        """Return the pair with another chain length."""
        decode = self.settings.decode.model_copy(update={"num_steps": num_steps, "num_draft_tokens": num_steps + 1})
        return replace(self, settings=self.settings.model_copy(update={"decode": decode}))

    def served_as(self, convention: str) -> Pair:
        """Return the pair as an engine serves it, as `sglang==0.5.23`.

        Raises:
            InputError: It is not known how the engine reads this draft for this target.
        """
        return _assemble(self.file, self.settings.model_copy(update={"served_by": convention}), self.target)

    def with_engine(self, **changes: object) -> Pair:
        """Return the pair with other engine settings (`name`, `dtype`, `device`)."""
        engine = self.settings.engine.model_copy(update=changes)
        return replace(self, settings=self.settings.model_copy(update={"engine": engine}))


def load_pair(name_or_path: str | Path) -> Pair:
    """Read a pair file and the configs it points to, and check that they fit each other.

    Args:
        name_or_path: Path of a pair file, or the name of a built-in pair.

    Raises:
        InputError: Anything in the files that cannot be run as stated.
    """
    file = find_pair(str(name_or_path))
    settings = read_pair_file(file)
    made_by = settings.target_made_by
    folder = checkpoint_folder(file, "target", settings.target, settings.target_revision, made_by=made_by)
    return _assemble(file, settings, read_target_spec(folder))


def _assemble(file: Path, settings: PairFile, target: TargetSpec) -> Pair:
    draft = read_draft_spec(checkpoint_folder(file, "draft", settings.draft, None), _trained_as(file, settings, target))
    served = draft if settings.served_by is None else draft.served_by(settings.served_by)
    wiring = _read_wiring(settings, draft, served, target)
    _check_fit(file, served, target)
    prompts = find_prompts(file, settings.prompts, relative_path(file, "prompts", settings.prompts))
    pair = Pair(file, settings, target, served, wiring, prompts)
    if settings.decode.topk != 1:
        raise InputError(
            "trees are not decoded by any engine here",
            file=file,
            key="decode.topk",
            found=settings.decode.topk,
            expected="1 (a chain)",
        )
    if settings.decode.temperature != 0:
        raise InputError(
            "sampling is not decoded by any engine here",
            file=file,
            key="decode.temperature",
            found=settings.decode.temperature,
            expected="0.0 (greedy)",
        )
    return pair


def load_prompts(pair: Pair, selection: str | None = None) -> list[Prompt]:
    """Read the pair's prompts as token ids.

    Args:
        pair: The pair.
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
            f"draft less a prompt and num_steps = {decode.num_steps}",
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


def relative_path(pair_file: Path, key: str, value: str) -> Path:
    """Return the path that a key of a pair file means: relative to the file, or below a home folder.

    Raises:
        InputError: No file system has such a path.
    """
    try:
        if "\0" not in value:
            return pair_file.parent / Path(value).expanduser()
    except RuntimeError:
        # There is no such user.
        pass
    raise InputError("the value is not usable", file=pair_file, key=key, found=quote(value), expected="a path")


def checkpoint_folder(
    pair_file: Path, key: str, value: str, revision: str | None, *, made_by: str | None = None
) -> Path:
    """Return the folder of a checkpoint: a path, or a hub id through the hub's own cache.

    Args:
        pair_file: The pair file, for messages.
        key: Its key.
        value: What the key says.
        revision: The revision of a hub id.
        made_by: The command that makes the folder where it is not there.

    Raises:
        InputError: There is no such checkpoint.
    """
    path = relative_path(pair_file, key, value)
    if is_folder(path):
        return path
    is_path = value.startswith((".", "/", "~")) or value.count("/") != 1
    if is_path or is_file(path) or is_folder(path.parent):
        raise InputError(
            f"the {key} is no checkpoint folder",
            file=pair_file,
            key=key,
            found=str(path),
            expected="a folder with config.json and safetensors, or a hub id",
            next_step=None if made_by is None else f"make it: {made_by}",
        )
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(value, revision=revision))
    except Exception as error:  # noqa: BLE001 - the hub client raises many kinds; each means "not to be had"
        raise InputError(
            f"the {key} is neither a folder nor to be had from the hub",
            file=pair_file,
            key=key,
            found=value,
            expected="a folder with config.json and safetensors, or a hub id",
            next_step=f"check the path ({path}) or the id; the hub said: {type(error).__name__} {error}",
        ) from None


def _check_fit(file: Path, draft: DraftSpec, target: TargetSpec) -> None:
    config = draft.config_file
    if draft.vocab_size != target.vocab_size:
        raise InputError(
            "the draft was made for another vocabulary",
            file=config,
            key="vocab_size",
            found=draft.vocab_size,
            expected=f"{target.vocab_size}, as the target at {target.path} has",
            next_step=f"give the pair file {file.name} the draft of this target",
        )
    if draft.target_hidden_size != target.hidden_size:
        raise InputError(
            "the draft was made for another hidden size",
            file=config,
            key="target_hidden_size or hidden_size",
            found=draft.target_hidden_size,
            expected=f"{target.hidden_size}, as the target at {target.path} has",
            next_step=f"give the pair file {file.name} the draft of this target",
        )
    if not draft.use_aux_hidden_state:
        raise InputError(
            "this draft reads the target's state after the final norm, which is no boundary",
            file=config,
            key="use_aux_hidden_state",
            found="false",
            expected="true",
        )


def _trained_as(file: Path, settings: PairFile, target: TargetSpec) -> str:
    """Return who wrote the draft's config; that and who serves it must be known for the target."""
    for key, name in (("trained_as", settings.trained_as), ("served_by", settings.served_by)):
        if name is not None:
            find_convention(name, architecture=target.architecture, file=file, key=key)
    if settings.trained_as is None:
        raise InputError(
            "the checkpoint does not say which convention its layer ids were written in",
            file=file,
            key="trained_as",
            expected="specforge, modelopt, eagle or vllm",
            next_step="name who trained the draft; SpecForge and ModelOpt count block outputs (boundary = id + 1), "
            "EAGLE and vLLM the state before a block (boundary = id)",
        )
    return settings.trained_as


def _read_wiring(settings: PairFile, draft: DraftSpec, served_draft: DraftSpec, target: TargetSpec) -> Wiring:
    """Return both readings of the draft's config; `served_draft` is the draft as whoever serves it takes it."""
    layers = draft.layers

    def read(ids: tuple[int, ...] | None, convention: str) -> Reading:
        return read_ids(
            ids,
            convention,
            num_layers=target.num_layers,
            architecture=target.architecture,
            file=draft.config_file,
            key=draft.ids_key,
        )

    trained_as, served_by = str(settings.trained_as), settings.served_by
    trained = read(layers.ids, trained_as)
    if served_by is None:
        # The reference captures what the ids mean. The convention tells their numbering; a fault of the engine that it
        # is named after does not touch the reference.
        return Wiring(trained, replace(trained, fault=None), draft.flags, draft.flags)
    served = read(layers.seen_by(served_by), served_by)
    return Wiring(trained, served, draft.flags, served_draft.flags, layers.overlooked_by(served_by))
