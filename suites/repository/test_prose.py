"""The limits on how this project writes, and that the counting sees what it should."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from suites.repository import prose
from suites.repository.prose import (
    PATTERNS,
    ROOT,
    above,
    find,
    idle_lines,
    markdown,
    python,
    texts,
    undocumented,
    words,
)

BY_NAME = {pattern.name: pattern for pattern in PATTERNS}

HITS = {
    "where for if": [
        "Where nothing was measured, the rate is None.",
        "Zero where there are none.",
        "The golden's where the engine has one of its own.",
        "1 where CUDA does not work",
    ],
    "is/has/holds no": ["It has no golden.", "The id is no\nboundary."],
    "as X for such as": [
        "A release, as `sglang==0.5.23`.",
        "a drop (as 0.02)",
        "a class, as LlamaForCausalLM or Qwen3ForCausalLM",
    ],
    "stands": ["It stands in the file."],
    "said/told/tells": ["That is told."],
    "is none": ["The address is none."],
    "puts out": ["What the engine put\nout."],
    "beside": ["beside the pair file"],
    "anew": ["It is recorded anew."],
    "otherwise than": ["served otherwise than trained", "Nobody else uses it.", "whoever wrote it"],
}
MISSES = {
    "where for if": [
        "It says where the golden is.",
        "the place where it is read",
        "Where to look for it.",
        "From where it was read.",
        "y = x + 1, where x is the id",
        "pairs, where the first is the id",
    ],
    "is/has/holds no": ["It is no longer used.", "It is not a boundary."],
    "as X for such as": ["It is known as `tiny`.", "ids are read, as SGLang reads them", "written as `x`"],
    "stands": ["b stands for a boundary", "a stand-in", "it stands in for a GPU"],
    "said/told/tells": ["It says so."],
    "is none": ["The value is None."],
    "puts out": ["It outputs a token."],
    "beside": ["besides"],
    "anew": ["a new one"],
    "otherwise than": ["otherwise, it is refused"],
}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_pattern_matches_its_turn_of_phrase_and_not_its_neighbours(name: str) -> None:
    for text in HITS[name]:
        assert find(BY_NAME[name], markdown(text, "page")), text
    for text in MISSES[name]:
        assert not find(BY_NAME[name], markdown(text, "page")), text


def test_ten_patterns_with_limits_of_at_most_twice_the_rate_of_the_model_codebases() -> None:
    assert len(PATTERNS) == 10
    for pattern in PATTERNS:
        assert pattern.limit <= max(1, math.ceil(2 * pattern.model)), pattern.name


def test_code_is_left_out_and_lines_are_counted() -> None:
    text = "One.\n```\nit is told\n```\nSee `is told` and [tells](said.md).\n<!-- told -->\nIt is\ntold.\n"
    (passage,) = markdown(text, "page")
    hits = find(BY_NAME["said/told/tells"], [passage])
    assert [hit.line for hit in hits] == [5, 8]


def test_docstrings_comments_and_sentences_are_counted_and_keys_are_not() -> None:
    source = '''"""It stands here."""
KEY = "stands"
# It stands here too,  # noqa: E501
# and stands on.
def f(x):
    """Return {x}."""
    raise ValueError(f"the file {x!r} stands where nothing stands")
'''
    passages = python(source, "module.py")
    hits = find(BY_NAME["stands"], passages)
    assert sorted(hit.line for hit in hits) == [1, 3, 4, 7, 7]
    assert words(passages) < 30


def test_every_command_has_its_help_texts_counted() -> None:
    places = {passage.place for passage in prose.helps()}
    assert {"harness --help", "harness check --help", "harness golden diff --help"} <= places


def test_the_script_fails_above_a_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "module.py").write_text('"""Nobody is told anew."""\n')
    assert prose.main(["--sources", str(tmp_path), "--list"]) == 1
    out = capsys.readouterr().out
    assert "module.py:1: Nobody is told anew." in out
    assert "2500.0!" in out
    (tmp_path / "module.py").write_text('"""Return the rate."""\n')
    assert prose.main(["--sources", str(tmp_path)]) == 0


@pytest.mark.parametrize("name", ["harness", "readme", "docs", "help"])
def test_no_pattern_is_above_its_limit(name: str) -> None:
    assert above(texts()[name]) == {}, "python -m suites.repository.prose --list shows every place"


def test_public_names_without_a_docstring_are_found_in_private_modules_too() -> None:
    shown = "class A:\n    '''A.'''\n    def f(self): ...\n    def _g(self): ...\n"
    source = shown + "class _B:\n    def f(self): ...\ndef h(): ...\n"
    assert undocumented(source) == ["module", "A.f", "h"]


def test_idle_lines_are_found() -> None:
    source = '''def f(pair, progress, file, k):
    """Do it.

    Args:
        pair: The pair.
        progress: For messages.
        file: The golden's file, as it was read.
        k: Length of a chain.

    Returns:
        pair: The pair.
    """
'''
    assert idle_lines(source) == [(5, "pair: The pair."), (6, "progress: For messages.")]


def test_every_public_name_has_a_docstring() -> None:
    files = [
        file for file in sorted((ROOT / "harness").rglob("*.py")) if file.name != "__init__.py" or file.stat().st_size
    ]
    missing = {str(file.relative_to(ROOT)): undocumented(file.read_text(encoding="utf-8")) for file in files}
    assert {file: names for file, names in missing.items() if names} == {}
