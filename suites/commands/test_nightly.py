"""What a nightly came to, from files that a real pytest wrote; and the issue about it, by a stand-in for `gh`."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from harness.nightly.history import KEPT, read_history
from harness.nightly.results import Failure, Nightly, NightlyState, RunInfo, read_nightly
from harness.report.nightly import issue_body, page, summary
from suites.support.builtin_pairs import ROOT
from suites.support.command import Command
from suites.support.schemas import read_valid

ARGUMENTS = ("-p", "no:cacheprovider")
RUN = RunInfo("gpu", "77", "2026-03-01 03:41", "0123456789abcdef", "https://example.org/runs/77")


@pytest.fixture
def run_pytest(recorded: Path, pytester: pytest.Pytester) -> Callable[..., Path]:
    """Run pytest on a recorded pair and return the folder of what it wrote."""
    pairs = pytester.path / "pairs"
    recorded.parent.rename(pairs)

    def run(*arguments: str | Path, wrong: bool = False) -> Path:
        if wrong:
            config, file = pairs / "draft" / "config.json", pairs / "random.pair.toml"
            config.write_text(config.read_text().replace("[-1, 1, 3]", "[-1, 1, 2]"))
            file.write_text(file.read_text() + "strict = true\n")
        out = pytester.path / "out"
        written = ("--acceptance-json", out / "results.json", "--junitxml", out / "junit.xml")
        pytester.runpytest_inprocess(*ARGUMENTS, *written, *(arguments or (pairs,)))
        read_valid("pytest", out / "results.json")
        return out

    return run


def _read(folder: Path, job: str = "success") -> Nightly:
    return read_nightly(RUN, results=folder / "results.json", junit=folder / "junit.xml", job=job)


def _report(harness: Command, folder: Path, *options: object) -> Any:
    files = ("--results", folder / "results.json", "--junit", folder / "junit.xml")
    done = harness("nightly", "report", folder / "report", *files, *options)
    if (folder / "report" / "nightly.json").exists():
        read_valid("nightly-report", folder / "report" / "nightly.json")
    return done


def test_green(run_pytest: Callable[..., Path], harness: Command) -> None:
    folder = run_pytest()
    done = _report(harness, folder)
    assert (done.status, done.out) == (0, "")
    assert "green: 6 tests passed" in done.err
    text = (folder / "report/summary.md").read_text()
    assert text.startswith("## Acceptance nightly gpu: green\n")
    assert re.search(
        r"\| random \| pass \| 8\.6±1\.2 \|  \| 1\.34 \| \+0\.0000 \| 6 \| reference:replay cpu float32 \|", text
    )
    assert "Failures" not in text


def test_red_carries_the_diagnosis_and_the_next_command(run_pytest: Callable[..., Path], harness: Command) -> None:
    folder = run_pytest(wrong=True)
    done = _report(harness, folder, "--job", "failure", "--json")
    assert done.status == 1
    assert (done.json["state"], done.json["green"]) == ("red", False)
    for name in ("summary.md", "issue.md"):
        text = (folder / "report" / name).read_text()
        assert "first stage that differs" in text
        assert "boundaries [0, 2, 3] are captured, [0, 2, 4] were" in text
        assert "restore eagle_config.eagle_aux_hidden_state_layer_ids = [-1, 1, 3]" in text
        assert re.search(r"^\*\*random\*\*: .*proposals", text, re.MULTILINE)
        # The report of a pair is told once, though several of its tests fail with it.
        assert text.count("restore eagle_config") == 1


def test_a_pair_that_cannot_be_measured_is_red_too(run_pytest: Callable[..., Path], pytester: pytest.Pytester) -> None:
    (pytester.path / "pairs" / "prompts.jsonl").write_text("{broken\n")
    nightly = _read(run_pytest(), "failure")
    assert nightly.state is NightlyState.RED
    assert nightly.pairs == ()
    (failure,) = nightly.failures
    assert "line 1: the line is not valid JSON" in failure.text
    assert len(failure.tests) == 7


def test_tests_of_ones_own_are_told_apart_by_what_they_failed_with(
    run_pytest: Callable[..., Path], pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        """
        import pytest
        @pytest.fixture
        def broken(): raise OSError("no such device")
        @pytest.mark.parametrize("n", range(12))
        def test_same(n, broken): pass
        def test_other(): assert 1 == 2, "another reason"
        """
    )
    nightly = _read(run_pytest(next(pytester.path.glob("test_*.py"))), "failure")
    assert [len(failure.tests) for failure in nightly.failures] == [12, 1]
    assert nightly.tests == {"passed": 0, "failed": 13, "skipped": 0}
    text = summary(nightly, [])
    assert "no such device" in text
    assert "another reason" in text
    assert "test\\_same\\[7\\] and 4 more" in text


def test_nothing_checked_is_not_green(run_pytest: Callable[..., Path], pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.skip(reason='no GPU')\ndef test_one(): pass\n")
    nightly = _read(run_pytest("test_nothing_checked_is_not_green.py"))
    assert (nightly.state, nightly.why) == (NightlyState.UNCHECKED, "nothing was checked: 1 tests were skipped")


def test_no_test_at_all_is_not_green(run_pytest: Callable[..., Path], pytester: pytest.Pytester) -> None:
    pytester.mkdir("empty")
    assert _read(run_pytest("empty"), "failure").state is NightlyState.UNFINISHED


@pytest.mark.parametrize("job", ["success", "failure", "cancelled"])
def test_a_run_that_left_nothing_is_unfinished(job: str, harness: Command, tmp_path: Path) -> None:
    done = _report(harness, tmp_path, "--job", job)
    assert done.status == 1
    text = (tmp_path / "report/issue.md").read_text()
    assert f"**unfinished**: the run ended ({job}) before pytest had written its results" in text


@pytest.mark.parametrize("job", ["failure", "cancelled"])
def test_a_job_that_ended_otherwise_is_not_green_though_no_test_failed(
    job: str, run_pytest: Callable[..., Path]
) -> None:
    assert _read(run_pytest(), job).state is NightlyState.UNFINISHED


def test_figures_that_are_missing_are_not_green(run_pytest: Callable[..., Path]) -> None:
    folder = run_pytest()
    (folder / "results.json").unlink()
    assert _read(folder).state is NightlyState.UNFINISHED


def test_history_grows_shows_its_trend_and_when_it_was_last_green(
    run_pytest: Callable[..., Path], harness: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = tmp_path / "kept" / "history.jsonl"
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://example.org")
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    folder = run_pytest()
    for run in ("1", "2"):
        monkeypatch.setenv("GITHUB_RUN_ID", run)
        monkeypatch.setenv("GITHUB_SHA", f"{run}" * 40)
        assert _report(harness, folder, "--history", history).status == 0
    folder = run_pytest(wrong=True)
    monkeypatch.setenv("GITHUB_RUN_ID", "3")
    for _ in range(2):
        assert _report(harness, folder, "--history", history, "--job", "failure").status == 1
    runs = read_history(history)
    assert [(run.id, run.state) for run in runs] == [("1", "green"), ("2", "green"), ("3", "red")]
    assert runs[1].url == "https://example.org/owner/name/actions/runs/2"
    text = (folder / "report/issue.md").read_text()
    assert re.search(r"Last green: \S+ \S+, commit 222222222222 \(\[log\]\(.*/runs/2\)\), 1 run ago\.", text)
    assert "### The last 3 runs" in text
    assert re.search(r"\| random \| changed \| 6\.0±0\.9 \| 8\.6±1\.2 \|", text)


def test_history_is_not_kept_for_ever(run_pytest: Callable[..., Path], harness: Command, tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    line = {"id": "1", "time": "t", "commit": "", "url": "", "state": "green", "pairs": {}}
    history.write_text("".join(json.dumps(line | {"id": f"old {n}"}) + "\n" for n in range(KEPT + 5)))
    assert _report(harness, run_pytest(), "--history", history).status == 0
    runs = read_history(history)
    assert (len(runs), runs[0].id) == (KEPT, "old 6")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("results.json", "{", "not valid JSON"),
        ("results.json", '{"schema_version": 2, "pairs": {}}', "expected schema_version 1"),
        ("results.json", '{"schema_version": 1, "pairs": {"a.pair.toml": {"pair": "a"}}}', "pairs.a.pair.toml"),
        ("junit.xml", "<testsuites", "not valid XML"),
        ("history.jsonl", "{}\n", "line 1"),
        ("history.jsonl", "broken\n", "line 1"),
    ],
)
def test_broken_files_are_told(
    name: str, content: str, says: str, run_pytest: Callable[..., Path], harness: Command
) -> None:
    folder = run_pytest()
    (folder / name).write_text(content)
    done = _report(harness, folder, "--history", folder / "history.jsonl", "--json")
    assert done.status == 2
    assert name in done.json["error"]["message"]
    assert says in done.json["error"]["message"]


def test_an_unknown_end_of_the_job_is_told(harness: Command, tmp_path: Path) -> None:
    done = _report(harness, tmp_path, "--job", "skipped", "--json")
    assert (done.status, done.json["error"]["key"]) == (2, "--job")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.asked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.asked += [value or "" for name, value in attrs if name == "src" or (name == "href" and tag != "a")]


def test_the_page_escapes_what_comes_from_files_and_loads_nothing() -> None:
    failure = Failure("<img src=x>", ("a & b",), "<script>alert(1)</script> ``` @everyone")
    nightly = Nightly(RUN, NightlyState.RED, "1 of 1 tests failed", {}, (), (failure,), ("1 marked gpu: <b>",))
    tags = _Tags()
    tags.feed(page(nightly, []))
    assert not {"script", "img", "b"} & set(tags.seen)
    assert tags.asked == []
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page(nightly, [])


def test_markdown_keeps_texts_in_their_block_and_mentions_nobody() -> None:
    failure = Failure("a|b @team", ("one",), "```\n@everyone\n```")
    nightly = Nightly(RUN, NightlyState.RED, "1 of 1 tests failed", {}, (), (failure,), ())
    text = summary(nightly, [])
    assert "````text\n```\n@everyone\n```\n````" in text
    assert "**a\\|b @\u2060team**" in text


def test_an_issue_never_grows_past_what_github_takes() -> None:
    failures = tuple(Failure(f"pair {n}", ("one",), "x" * 20_000) for n in range(40))
    nightly = Nightly(RUN, NightlyState.RED, "40 of 40 tests failed", {}, (), failures, ())
    text = issue_body(nightly, [])
    assert len(text) < 65_536
    assert "pair 0**: one" in text
    assert "pair 39 failed too: see the log." in text
    assert "… 14000 more characters in the log …" in text


# A stand-in for GitHub's `gh`, since no test reaches GitHub: it keeps issues in a file, and says no where asked.
_GH = """#!{python}
import json, os, pathlib, sys
store = pathlib.Path(os.environ["FAKE_GH"])
state = json.loads(store.read_text())
words = sys.argv[1:]
state["calls"].append(words)
options = dict(zip(words, words[1:]))
if "--body-file" in options:
    state["bodies"].append(pathlib.Path(options["--body-file"]).read_text())
if state.get("fails") == words[:2]:
    store.write_text(json.dumps(state))
    sys.exit("HTTP 403: Resource not accessible by integration")
if words[:2] == ["issue", "list"]:
    shown = [i for i in state["issues"] if i["open"] and i["label"] == options["--label"]]
    print(state.get("answer") or json.dumps([{{k: i[k] for k in ("number", "title", "url")}} for i in shown]))
elif words[:2] == ["issue", "create"]:
    number = len(state["issues"]) + 1
    url = f"https://example.org/issues/{{number}}"
    issue = {{"number": number, "title": options["--title"], "url": url, "label": options["--label"], "open": True}}
    state["issues"].append(issue)
    print(url)
elif words[:2] == ["issue", "close"]:
    state["issues"][int(words[2]) - 1]["open"] = False
store.write_text(json.dumps(state))
"""


@dataclasses.dataclass
class FakeGh:
    """The stand-in's store."""

    file: Path

    @property
    def state(self) -> dict[str, Any]:
        state = json.loads(self.file.read_text())
        assert isinstance(state, dict)
        return state

    def set(self, **changes: Any) -> None:
        self.file.write_text(json.dumps(self.state | changes))

    def calls(self) -> list[str]:
        """Return what was called since the last time: the first two words of each."""
        calls = [" ".join(words[:2]) for words in self.state["calls"]]
        self.set(calls=[])
        return calls


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGh:
    fake = FakeGh(tmp_path / "gh.json")
    fake.file.write_text(json.dumps({"issues": [], "calls": [], "bodies": []}))
    command = tmp_path / "bin" / "gh"
    command.parent.mkdir()
    command.write_text(_GH.format(python=sys.executable))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    monkeypatch.setenv("FAKE_GH", str(fake.file))
    return fake


def _tonight(harness: Command, folder: Path, state: NightlyState, name: str = "gpu", *options: str) -> Any:
    """Publish a nightly of a given state; what it read is of no matter here."""
    folder.mkdir(exist_ok=True)
    green = state is NightlyState.GREEN
    title = f"Acceptance nightly is not green: {name}"
    (folder / "nightly.json").write_text(json.dumps({"title": title, "green": green}))
    (folder / "issue.md").write_text(f"tonight: {state}\n")
    return harness("nightly", "publish", folder, "--repo", "owner/name", "--json", *options)


def test_one_issue_is_opened_commented_and_closed(gh: FakeGh, harness: Command, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    expected = [
        (NightlyState.GREEN, "nothing", ["issue list"]),
        (NightlyState.RED, "opened", ["issue list", "label create", "issue create"]),
        (NightlyState.UNFINISHED, "commented", ["issue list", "issue comment"]),
        (NightlyState.RED, "commented", ["issue list", "issue comment"]),
        (NightlyState.GREEN, "closed", ["issue list", "issue comment", "issue close"]),
        (NightlyState.GREEN, "nothing", ["issue list"]),
        (NightlyState.UNCHECKED, "opened", ["issue list", "label create", "issue create"]),
    ]
    for state, done, calls in expected:
        answer = _tonight(harness, folder, state)
        assert (answer.status, answer.json["done"], gh.calls()) == (0, done, calls), state
    assert [(issue["number"], issue["open"]) for issue in gh.state["issues"]] == [(1, False), (2, True)]
    said = ["red", "unfinished", "red", "green", "unchecked"]
    assert gh.state["bodies"] == [f"tonight: {state}\n" for state in said]


def test_each_nightly_has_an_issue_of_its_own(gh: FakeGh, harness: Command, tmp_path: Path) -> None:
    for name in ("h100", "b200"):
        assert _tonight(harness, tmp_path / "report", NightlyState.RED, name).json["done"] == "opened"
    assert _tonight(harness, tmp_path / "report", NightlyState.GREEN, "h100").json["done"] == "closed"
    assert [issue["open"] for issue in gh.state["issues"]] == [False, True]


def test_an_issue_that_somebody_else_wrote_is_left_alone(gh: FakeGh, harness: Command, tmp_path: Path) -> None:
    foreign = {"number": 1, "title": "A question", "url": "u", "label": "acceptance-nightly", "open": True}
    gh.set(issues=[foreign])
    assert _tonight(harness, tmp_path / "report", NightlyState.GREEN).json["done"] == "nothing"
    assert _tonight(harness, tmp_path / "report", NightlyState.RED).json["done"] == "opened"
    assert gh.state["issues"][0] == foreign


@pytest.mark.parametrize("call", ["issue list", "label create", "issue create"])
def test_a_gh_that_fails_is_told(call: str, gh: FakeGh, harness: Command, tmp_path: Path) -> None:
    gh.set(fails=call.split())
    done = _tonight(harness, tmp_path / "report", NightlyState.RED)
    assert done.status == 4
    message = done.json["error"]["message"]
    assert "Resource not accessible" in message
    assert "issues: write" in message
    assert all(word in message for word in call.split())


@pytest.mark.parametrize("answer", ["not json", '{"number": 1}', "[1]", '[{"number": 1}]'])
def test_an_answer_of_another_form_is_told(answer: str, gh: FakeGh, harness: Command, tmp_path: Path) -> None:
    gh.set(answer=answer)
    done = _tonight(harness, tmp_path / "report", NightlyState.RED)
    assert done.status == 4
    assert "did not answer with a list of issues" in done.json["error"]["message"]


def test_without_gh_the_remedy_is_told(harness: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = _tonight(harness, tmp_path / "report", NightlyState.RED)
    assert done.status == 2
    assert "gh is not installed" in done.json["error"]["message"]


def test_publishing_what_was_not_reported_is_told(harness: Command, tmp_path: Path) -> None:
    done = harness("nightly", "publish", tmp_path, "--repo", "owner/name", "--json")
    assert done.status == 2
    assert "harness nightly report" in done.json["error"]["message"]
    (tmp_path / "nightly.json").write_text('{"green": "yes"}')
    assert harness("nightly", "publish", tmp_path, "--repo", "owner/name", "--json").status == 2
    assert harness("nightly", "publish", tmp_path, "--json").json["error"]["key"] == "--repo"


def test_it_runs_where_there_is_no_torch_and_no_numpy(tmp_path: Path) -> None:
    """The job that tells runs on a small machine that has typer and jinja2 only, and what these need."""
    blocked = ("torch", "transformers", "numpy", "scipy", "safetensors", "packaging", "pytest")
    code = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {blocked}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "from harness.cli.app import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    arguments = ["nightly", "report", "out", "--results", "none", "--junit", "none", "--job", "failure", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, json.loads(done.stdout)["state"]) == (1, "unfinished"), done.stderr
