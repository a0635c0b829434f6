"""What a user asks of the real engine where a wire is crossed: what is told before the start, and what after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from harness.commands.prepare import prepare
from harness.engines.sglang.rounds import read_capture
from harness.errors import InputError
from suites.sglang.serving import lending, serving
from suites.sglang.short_pair import (
    check_shortest,
    configure,
    copy_short,
    record_short,
    require_incident,
    states,
)
from suites.support.builtin_pairs import IDS_KEY, layer_ids

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_short(tmp_path_factory.mktemp("recorded"))


def test_every_id_one_lower_is_seen_in_the_states(recorded: Path, tmp_path: Path) -> None:
    result = check_shortest(copy_short(recorded, tmp_path, [0, 2, 5]), 4)
    assert result.exit_code == 1
    assert states(result)["stages"] == "changed"
    slots = [
        f"slot {slot}: boundary {served} served, boundary {served + 1} expected"
        for slot, served in enumerate((1, 3, 6))
    ]
    assert result.findings.stages.message.endswith(f"concat, {'; '.join(slots)}")


def test_the_incident_the_other_way_round(tmp_path: Path) -> None:
    """The draft trained on boundaries with the embedding among them is served those without."""
    file = record_short(tmp_path / "recorded", "tiny-embedding")
    result = check_shortest(copy_short(file, tmp_path, layer_ids("tiny")), 8)
    require_incident(result, [0, 2, 4], [2, 4, 7])


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
    file = copy_short(recorded, tmp_path, ids)
    if change:
        _tensors(file.parent / "draft", **change)

    def started(*_: Any, **__: Any) -> None:
        pytest.fail("the engine was started")

    monkeypatch.setattr("harness.engines.sglang.engine.launched", started)
    result = check_shortest(file, 1)
    assert (str(result.verdict), result.exit_code) == ("regression", 1)
    assert told in result.findings["contract"].message
    assert {state for name, state in states(result).items() if name != "contract"} == {"not_measured"}


def test_ids_that_sglang_does_not_find(recorded: Path, tmp_path: Path) -> None:
    """It serves its default layers, [2, 4, 5] of 8, and says nothing: ids at the top level, and none at all."""
    (tmp_path / "top").mkdir()
    top, none = copy_short(recorded, tmp_path / "top"), copy_short(recorded, tmp_path)
    configure(top.parent / "draft", {"eagle_config": None, IDS_KEY: [1, 3, 6]})
    configure(none.parent / "draft", {"eagle_config": {"use_aux_hidden_state": True}})
    with serving(prepare(top, engine="sglang")) as engine:
        capture = read_capture(engine.watch)
        with lending(engine):
            of_top, of_none = check_shortest(top, 1), check_shortest(none, 8)
    assert (capture.ids, capture.layers) == (None, (2, 4, 5))
    for result in (of_top, of_none):
        assert result.pair.wiring.served.boundaries == (2, 4, 5)
        assert result.exit_code == 1
    assert states(of_none)["proposals"] == "changed"
    assert f"does not read {IDS_KEY}, and takes its default" in of_top.findings["contract"].message


@pytest.mark.parametrize(("key", "value"), [("speculative_algorithm", '"EAGLE"'), ("speculative_adaptive", "true")])
def test_arguments_that_would_measure_something_else(key: str, value: str, recorded: Path, tmp_path: Path) -> None:
    file = copy_short(recorded, tmp_path)
    file.write_text(f"{file.read_text()}\n[engine.args]\n{key} = {value}\n")
    with pytest.raises(InputError, match=key):
        check_shortest(file, 1)
