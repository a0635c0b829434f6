"""The source holds to docs/security.md: no code of a checkpoint, no pickle with code, and only known programs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from suites.repository.structure import ROOT

# Who starts processes: an engine's driver, a class of SGLang's for `harness conformance`, and `gh` for an issue.
_STARTERS = {"harness/engines/shared/process.py", "harness/conformance/forward.py", "harness/nightly/issue.py"}
# Measurements that workers of one run share, in a folder of this user's; the setter of an installed release of SGLang.
_RUNNERS = {"harness/plugin/session.py": {"pickle.loads"}, "harness/facts/reading/setters.py": {"exec"}}
_RUNNING = {"subprocess", "os.system", "os.popen", "os.execv", "os.execve", "os.execvp", "os.spawnv", "os.posix_spawn"}


def _calls(source: str) -> Iterator[tuple[str, dict[str, ast.expr]]]:
    """Yield each call's dotted name, as far as it has one, and its keywords."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {word.arg: word.value for word in node.keywords if word.arg is not None}


def _is(value: ast.expr | None, expected: bool) -> bool:
    return isinstance(value, ast.Constant) and value.value is expected


def faults(source: str, file: str) -> list[str]:
    """Return what a file of the harness does that none of it may."""
    found = []
    for name, words in _calls(source):
        last = name.rpartition(".")[2]
        if last in ("from_pretrained", "from_config") and not _is(words.get("trust_remote_code"), False):
            found.append(f"{name} without trust_remote_code=False")
        if "trust_remote_code" in words and not _is(words["trust_remote_code"], False):
            found.append(f"{name} with trust_remote_code")
        if name == "torch.load" and not _is(words.get("weights_only"), True):
            found.append("torch.load without weights_only=True")
        if name in ("pickle.load", "pickle.loads", "eval", "exec") and name not in _RUNNERS.get(file, ()):
            found.append(name)
        if (name in _RUNNING or name.startswith("subprocess.")) and file not in _STARTERS:
            found.append(name)
        if any(word == "shell" for word in words):
            found.append(f"{name} with a shell")
    return found


@pytest.mark.parametrize("file", sorted((ROOT / "harness").rglob("*.py")), ids=lambda file: file.stem)
def test_a_file_runs_nothing_of_a_pairs(file: Path) -> None:
    assert faults(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT))) == []


@pytest.mark.parametrize(
    "line",
    [
        "AutoModel.from_pretrained(folder)",
        "auto.from_config(config, trust_remote_code=trusted)",
        "AutoTokenizer.from_pretrained(folder, trust_remote_code=True)",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "pickle.loads(data)",
        "subprocess.run(['git', 'describe'])",
        "os.system('git describe')",
        "start(command, shell=True)",
        "exec(code)",
    ],
)
def test_a_fault_is_found(line: str) -> None:
    assert faults(line, "harness/golden/provenance.py") != []


def test_the_exceptions_exist() -> None:
    assert all((ROOT / file).is_file() for file in _STARTERS | _RUNNERS.keys())
