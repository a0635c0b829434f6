"""What a user asks of the real engine: check, with wires crossed on purpose, and trace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from harness.check import CheckResult, check, prepare
from harness.errors import InputError
from harness.pair.pair import load_prompts
from harness.recording import record
from harness.trace import trace_run, trace_static
from suites.builtin_pairs import IDS_KEY, copy_pair, layer_ids, read_config

# A round costs a good part of a second: the gate's level is set so that few prompts decide.
ALPHA = 0.01

pytestmark = pytest.mark.slow


def _record(folder: Path, name: str = "tiny") -> Path:
    """Write a copy of a built-in pair whose texts are short, with a golden of the reference engine's."""
    file = copy_pair(folder, name)
    text = file.read_text().replace("max_new_tokens = 96", "max_new_tokens = 16")
    assert "max_new_tokens = 16" in text
    text = text.replace(f'name = "{name}"', 'name = "short"\ngolden = "golden"')
    file.write_text(text.replace("[gate]", f"[gate]\nalpha = {ALPHA}"))
    record(prepare(file), reason=None)
    return file


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _record(tmp_path_factory.mktemp("recorded"))


def _copy(recorded: Path, folder: Path, ids: list[int] | None = None) -> Path:
    shutil.copytree(recorded.parent, folder / "pair")
    if ids is not None:
        _configure(folder / "pair/draft", {"eagle_config": {IDS_KEY: ids, "use_aux_hidden_state": True}})
    return folder / "pair" / recorded.name


def _configure(draft: Path, changes: dict[str, Any]) -> None:
    config = {**read_config(draft), **changes}
    (draft / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def _check(file: Path, prompts: int) -> CheckResult:
    """Check on the real engine, on the prompts that cost least."""
    pair = prepare(file, engine="sglang")
    shortest = sorted(load_prompts(pair), key=lambda prompt: (len(prompt.ids), prompt.id))[:prompts]
    return check(pair, prompts=",".join(prompt.id for prompt in shortest))


def _states(result: CheckResult) -> dict[str, str]:
    return {name: str(finding.state) for name, finding in result.findings.items()}


def test_the_pair_passes_and_counts_as_the_reference_does(recorded: Path) -> None:
    result = _check(recorded, 3)
    assert str(result.verdict) == "pass"
    assert _states(result) == {
        "contract": "pass",
        "target": "pass",
        "lossless": "pass",
        "stages": "not_applicable",
        "proposals": "pass",
        "likelihood": "not_applicable",
        "acceptance": "pass",
    }
    ids = ",".join(entry.id for entry in result.measurement.run.records)
    reference = check(prepare(recorded), prompts=ids)
    ours, theirs = ({entry.id: entry.histogram for entry in one.measurement.run.records} for one in (result, reference))
    assert ours == theirs


def test_every_id_one_lower_is_seen_in_the_proposals(recorded: Path, tmp_path: Path) -> None:
    result = _check(_copy(recorded, tmp_path, [0, 2, 5]), 6)
    assert result.exit_code == 1
    assert _states(result)["proposals"] == "changed"


def _require_incident(result: CheckResult, trained: list[int], served: list[int]) -> None:
    """Both figures, the verdict, and the cause: what is captured and what was."""
    assert (str(result.verdict), result.exit_code) == ("regression", 1)
    assert _states(result)["acceptance"] == "regression"
    assert list(result.pair.boundaries) == served
    golden = result.golden.document.totals.rate
    now = result.measurement.acceptance.rate
    assert golden is not None
    assert now is not None
    assert now < golden - 0.2
    cause = f"boundaries {served} are captured, {trained} were when the golden was recorded"
    assert any(cause in note for note in result.findings["contract"].notes)


def test_the_incident_is_a_regression(recorded: Path, tmp_path: Path) -> None:
    result = _check(_copy(recorded, tmp_path, layer_ids("tiny-embedding")), 10)
    _require_incident(result, [2, 4, 7], [0, 2, 4])


def test_the_incident_the_other_way_round(tmp_path: Path) -> None:
    """The draft trained on boundaries with the embedding among them is served those without."""
    file = _record(tmp_path / "recorded", "tiny-embedding")
    result = _check(_copy(file, tmp_path, layer_ids("tiny")), 10)
    _require_incident(result, [0, 2, 4], [2, 4, 7])


def _tensors(draft: Path, *, drop: str | None = None, rename: tuple[str, str] | None = None) -> None:
    file = draft / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    if drop is not None:
        del tensors[drop]
    if rename is not None:
        tensors[rename[1]] = tensors.pop(rename[0])
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("ids", "change", "told"),
    [
        ([2, 4, 7], {}, "captures boundaries [3, 5] of the [3, 5, 8]"),
        (None, {"drop": "lm_head.weight"}, "lm_head.weight"),
        (None, {"rename": ("fc.weight", "projection.weight")}, "projection.weight"),
    ],
    ids=["a boundary never reached", "no head", "an unknown name"],
)
def test_what_would_die_or_be_at_random_is_told_before_the_start(
    ids: list[int] | None,
    change: dict[str, Any],
    told: str,
    recorded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = _copy(recorded, tmp_path, ids)
    if change:
        _tensors(file.parent / "draft", **change)

    def started(*_: Any, **__: Any) -> None:
        pytest.fail("the engine was started")

    monkeypatch.setattr("harness.engines.sglang.engine.launched", started)
    result = _check(file, 1)
    assert (str(result.verdict), result.exit_code) == ("regression", 1)
    assert told in result.findings["contract"].message
    assert {state for name, state in _states(result).items() if name != "contract"} == {"not_measured"}


@pytest.mark.parametrize(
    ("changes", "prompts"),
    [({"eagle_config": None, IDS_KEY: [1, 3, 6]}, 1), ({"eagle_config": {"use_aux_hidden_state": True}}, 8)],
    ids=["ids at the top level", "no ids"],
)
def test_ids_that_sglang_does_not_find(changes: dict[str, Any], prompts: int, recorded: Path, tmp_path: Path) -> None:
    """It serves its default layers, [2, 4, 5] of 8, and says nothing."""
    file = _copy(recorded, tmp_path)
    _configure(file.parent / "draft", changes)
    result = _check(file, prompts)
    assert result.pair.wiring.served.boundaries == (2, 4, 5)
    assert result.exit_code == 1
    if IDS_KEY in changes:
        assert f"does not read {IDS_KEY}, and takes its default" in result.findings["contract"].message


@pytest.mark.parametrize(("key", "value"), [("speculative_algorithm", '"EAGLE"'), ("speculative_adaptive", "true")])
def test_arguments_that_would_measure_something_else(key: str, value: str, recorded: Path, tmp_path: Path) -> None:
    file = _copy(recorded, tmp_path)
    file.write_text(f"{file.read_text()}\n[engine.args]\n{key} = {value}\n")
    with pytest.raises(InputError, match=key):
        _check(file, 1)


def test_trace_shows_what_the_running_engine_does(recorded: Path) -> None:
    """Each step agrees, and the states are those that the reference engine captures."""
    ready = prepare(recorded, engine="sglang")
    real = trace_run(trace_static(str(recorded), ready.settings.served_by), ready)
    plain = trace_run(trace_static(str(recorded)), prepare(recorded))
    assert (real.first_wrong, plain.first_wrong) == (None, None)
    ours, theirs = ({step.name: step for step in one.steps} for one in (real, plain))
    assert ours["ids resolved"].value == [1, 3, 6]
    assert ours["layers to capture"].value == [2, 4, 7]
    assert ours["verification"].ok
    for slot in range(3):
        one, other = ours[f"captured, slot {slot}"].value, theirs[f"captured, slot {slot}"].value
        assert one["shape"] == other["shape"]
        assert one["norm"] == pytest.approx(other["norm"], rel=1e-4)
        assert one["first"] == pytest.approx(other["first"], abs=1e-3)
    assert ours["fc input"].ok
    assert ours["first proposals"].value == theirs["first proposals"].value
