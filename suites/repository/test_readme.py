"""The README's failing check is what its own pair file gives."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from harness.commands.check import check
from harness.commands.prepare import prepare
from harness.detectors.gate import is_failure
from harness.pair.pairfile import PairFile
from harness.report.check import failure
from suites.support.builtin_pairs import ROOT, copy_pair

README = (ROOT / "README.md").read_text(encoding="utf-8")


def _block(start: str) -> str:
    (text,) = re.findall(rf"^```\w*\n({re.escape(start)}.*?)^```", README, re.MULTILINE | re.DOTALL)
    return str(text)


def _template() -> PairFile:
    return PairFile.model_validate(tomllib.loads(_block("# llama.pair.toml")))


def _shape(text: str) -> str:
    """Return a text without its figures and the folder of its files: kernels differ in the last place."""
    return re.sub(r"[-+]?\d+(\.\d+)?", "#", re.sub(r"\S*/draft/config", "draft/config", text))


def test_the_template_sets_every_key_of_the_gate() -> None:
    gate = tomllib.loads(_block("# llama.pair.toml"))["gate"]
    assert set(gate) == {"floor", "margin", "alpha", "strict"}
    assert gate["strict"] is True


@pytest.mark.slow
def test_the_failing_check_is_what_the_template_gives(tmp_path: Path) -> None:
    """The built-in pair with one id off by one, judged by the gate of the README's pair file."""
    file = copy_pair(tmp_path, ids=[2, 3, 6])
    text, count = re.subn(r"\[gate\].*?(?=\n\[|\Z)", _gate(), file.read_text(), flags=re.DOTALL)
    assert count == 1
    file.write_text(text)
    pair = prepare(file)
    assert pair.settings.gate == _template().gate
    result = check(pair)
    shown = _block("CHANGED tiny")
    assert _shape(failure(result)) == _shape(shown.rstrip("\n"))
    assert result.exit_code == 1
    failing = [name for name, finding in result.findings.items() if is_failure(finding.state, result.exit_code)]
    assert failing[0] == "stages"


def _gate() -> str:
    (section,) = re.findall(r"\[gate\].*?(?=\n\n)", _block("# llama.pair.toml"), re.DOTALL)
    return str(section)
