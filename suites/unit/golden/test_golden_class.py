"""The class of a golden: one spelling for files, options, pairs and runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.commands.prepare import prepare
from harness.counts.run import Run
from harness.errors import InputError
from harness.golden.find import recording_file
from harness.golden.golden_class import DEFAULT, GoldenClass


@pytest.mark.parametrize(
    ("engine", "device", "dtype", "text"),
    [
        ("reference", "cpu", "float32", "reference-cpu-float32"),
        ("reference:sequential", "cpu", "float64", "reference-cpu-float64"),
        ("reference:batched", "cuda:1", "bfloat16", "reference-cuda-bfloat16"),
    ],
)
def test_a_run_and_a_pair_have_one_class(recorded: Path, engine: str, device: str, dtype: str, text: str) -> None:
    pair = prepare(recorded, engine=engine, device=device, dtype=dtype)
    golden_class = GoldenClass.of_pair(pair)
    assert str(golden_class) == text
    assert golden_class == GoldenClass.of_run(Run(engine, device, dtype, 4, ())) == GoldenClass.parse(text)
    assert golden_class.file == recording_file(pair).name == f"{text}.json"


def test_a_running_server_has_a_class_without_its_kind() -> None:
    assert str(GoldenClass.of_run(Run("server:vllm", "cuda:0", "float16", 4, ()))) == "server-cuda-float16"


def test_the_default_class_is_that_of_a_pair_without_engine_settings(recorded: Path) -> None:
    assert GoldenClass.of_pair(prepare(recorded)) == DEFAULT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "reference",
        "reference-cpu",
        "reference-cpu-float32-x",
        "reference-cpu-float31",
        "reference:sequential-cpu-float32",
        "reference-cuda:1-float32",
        "../secret-cpu-float32",
        "-cpu-float32",
        "Reference-cpu-float32",
    ],
)
def test_what_is_not_a_class_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^--class: .*expected engine-device-dtype, such as reference-cpu-float32"):
        GoldenClass.parse(text, key="--class")
