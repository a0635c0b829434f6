"""What the real SGLang classes capture, tensor by tensor: transformers' states at the boundaries that the facts say.

One process for each class, with tiny random weights on the CPU; loading costs 10 to 20 s, a list of ids 0.2 s.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterator

import hypothesis
import hypothesis.strategies as st
import pytest

from harness.conformance.asked import NUM_LAYERS, asked_lists
from harness.conformance.forward import ForwardSession
from harness.conformance.matrix import AGREES, KNOWN_DIFFERENCE, find_facts, judge
from harness.facts.known import find_known
from harness.facts.reading.setters import CaptureOutcome, run_setter
from harness.facts.reading.sources import SglangSources, find_installed, read_sources

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="sglang is not installed"),
]

CLASSES = [
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Glm4MoeForCausalLM",
    "GptOssForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "Gemma3ForCausalLM",
]

ID_LISTS = st.lists(st.integers(-3, NUM_LAYERS + 2), min_size=1, max_size=6)


@functools.cache
def _installed() -> SglangSources:
    folder = find_installed()
    assert folder is not None
    return read_sources(folder)


@pytest.fixture(scope="module", params=CLASSES)
def session(request: pytest.FixtureRequest) -> Iterator[ForwardSession]:
    with ForwardSession(request.param) as opened:
        yield opened


def _verdict(session: ForwardSession, ids: list[int] | None, outcome: CaptureOutcome) -> str:
    version = _installed().version
    facts = find_facts(session.architecture, version, ids, session.num_layers)
    return judge(outcome, facts, find_known(session.architecture, version))


def _allowed(session: ForwardSession) -> set[str]:
    known = find_known(session.architecture, _installed().version)
    return {AGREES} if known is None else {AGREES, KNOWN_DIFFERENCE}


def _by_setter(session: ForwardSession, ids: list[int] | None) -> CaptureOutcome:
    (cls,) = [cls for cls in _installed().capturing_classes() if cls.name == session.architecture]
    outcome = run_setter(_installed(), cls, ids, session.num_layers).outcome
    assert outcome is not None
    return outcome


@hypothesis.settings(max_examples=12, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(ids=ID_LISTS)
def test_captured_states_are_the_boundaries_that_the_facts_say(session: ForwardSession, ids: list[int]) -> None:
    """Any order, repeats, ids past either end: what is served, lost and refused."""
    outcome = session.ask(ids)
    assert _verdict(session, ids, outcome) in _allowed(session), f"{session.architecture} {ids}: {outcome}"
    # Without running anything, its setter and its forward's syntax tree say the same; a loop that finds nothing at all
    # is an error only where the model unpacks what it returns.
    assert (_by_setter(session, ids).boundaries or None) == (outcome.boundaries or None), ids


def test_the_lists_of_the_matrix(session: ForwardSession) -> None:
    verdicts = {}
    for entry in asked_lists(session.num_layers):
        ids = None if entry.ids is None else list(entry.ids)
        outcome = session.ask(ids)
        verdicts[entry.name] = _verdict(session, ids, outcome)
        assert verdicts[entry.name] in _allowed(session), f"{session.architecture} {entry}: {outcome}"
    # A known difference shows, and where none is known some list is served as it stands.
    known = find_known(session.architecture, _installed().version)
    assert (KNOWN_DIFFERENCE in verdicts.values()) is (known is not None)


def test_a_list_leaves_nothing_behind_for_the_next(session: ForwardSession) -> None:
    first = session.ask([1, 3])
    session.ask([2, 5])
    assert session.ask([1, 3]) == first


def test_the_ids_are_what_decides(session: ForwardSession) -> None:
    """Two lists give two captures: nothing here would agree whatever was asked."""
    assert session.ask([1, 3, 6]) != session.ask([0]) != session.ask([-1, 2])
