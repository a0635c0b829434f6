"""The pages: the words that readers from other projects search for, and links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli.app import main
from suites.repository.prose import GENERATED, ROOT, pages

TERMS = [
    *("target", "draft", "block", "boundary", "slot", "window", "fc", "d2t, t2d"),
    *("verify round", "bonus token", "acceptance rate", "acceptance length", "step accuracy", "repeated 8-gram ratio"),
    *("reference continuation", "golden", "golden class", "noise floor", "sketch"),
]
PAGES = [Path("README.md"), *pages(), *sorted(GENERATED)]


@pytest.mark.parametrize("page", ["README.md", "docs/glossary.md"])
def test_a_page_has_the_name_that_sglang_and_vllm_use(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.count("boundary k = aux hidden state after block k") == 1
    assert "aux hidden states" in text.replace("\n> ", " ")


@pytest.mark.parametrize("command", ["trace", "layers"])
def test_a_command_has_the_name_that_sglang_and_vllm_use(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "aux hidden state" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("term", TERMS)
def test_the_glossary_explains_a_term(term: str) -> None:
    assert re.search(rf"^\| {term} \| \S", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_to_this_repository_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        file = (ROOT / page).parent / name if name else ROOT / page
        assert file.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(_anchor, headings), link
