"""What a server is given: keys if the user vouches for it, and nothing from elsewhere if only a pair file names it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from harness.cli.app import main
from harness.commands.prepare import prepare
from harness.engines.server.client import KEY_VARIABLE, PLAIN_KEY_VARIABLE
from harness.engines.server.trust import HOSTS_VARIABLE
from suites.support.command import Answer, Command
from suites.support.faulty_server import Told, local_server, serving, told_by
from suites.support.random_pair import SERVABLE, write_pair

SECRET = "secret-of-the-user"


@dataclass
class Seen:
    """What a server that answers nothing useful was sent."""

    endpoint: str = ""
    status: int = 404
    location: str | None = None
    requests: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


@contextlib.contextmanager
def _listening(status: int = 404, location: str | None = None) -> Iterator[Seen]:
    seen = Seen(status=status, location=location)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _answer(self) -> None:
            seen.requests.append(self.path)
            seen.keys.append(self.headers.get("Authorization"))
            self.send_response(seen.status)
            if seen.location is not None:
                self.send_header("Location", seen.location + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = _answer  # noqa: N815 - names of the standard library

    with local_server(Handler) as seen.endpoint:
        yield seen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("servable")
    assert main(["record", str(write_pair(folder, draft=SERVABLE)), "--json"]) == 0
    return folder


@pytest.fixture(scope="module")
def told(folder: Path) -> Told:
    return told_by(prepare(folder / "random.pair.toml"))


@pytest.fixture
def recorded(folder: Path, tmp_path: Path) -> Path:
    """The pair file of a fresh copy of a recorded pair."""
    shutil.copytree(folder, tmp_path / "pair")
    return tmp_path / "pair" / "random.pair.toml"


def _with_server(file: Path, **settings: str) -> Path:
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    file.write_text(f"{file.read_text()}\n[engine]\n{lines}")
    return file


def _port(endpoint: str) -> str:
    return endpoint.rpartition(":")[2]


# Who names the server besides the pair file, and whether it gets the key.
VOUCHED: dict[str, tuple[Callable[[str], str | None], bool, bool]] = {
    "nobody": (lambda _: None, False, False),
    "the option": (lambda _: None, True, True),
    "its host": (lambda _: "127.0.0.1", False, True),
    "its host in a list": (lambda _: "other, 127.0.0.1,third", False, True),
    "its host and port": (lambda endpoint: f"127.0.0.1:{_port(endpoint)}", False, True),
    "another port": (lambda _: "127.0.0.1:1", False, False),
    "another host": (lambda _: "127.0.0.10", False, False),
    "a longer name": (lambda _: "127.0.0.1.example.org", False, False),
    "an empty list": (lambda _: " , ", False, False),
    "a pattern": (lambda _: "*", False, False),
}


@pytest.mark.parametrize("who", VOUCHED)
def test_a_key_is_sent_only_to_a_server_that_the_user_named(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    hosts, by_option, sent = VOUCHED[who]
    monkeypatch.setenv(KEY_VARIABLE, SECRET)
    with _listening() as server:
        listed = hosts(server.endpoint)
        if listed is not None:
            monkeypatch.setenv(HOSTS_VARIABLE, listed)
        _with_server(recorded, endpoint=server.endpoint)
        options = ("--endpoint", server.endpoint) if by_option else ()
        assert harness("measure", recorded, *options).status == 2
    assert len(server.requests) > 1
    assert set(server.keys) == {f"Bearer {SECRET}" if sent else None}


def test_the_option_names_one_of_two_servers(
    recorded: Path, told: Told, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pair file's other one does not get its key along with it."""
    monkeypatch.setenv(KEY_VARIABLE, SECRET)
    monkeypatch.setenv(PLAIN_KEY_VARIABLE, SECRET)
    with serving(told) as server, _listening() as plain:
        _with_server(recorded, plain_endpoint=plain.endpoint)
        assert harness("check", recorded, "--endpoint", server.endpoint).status == 2
        assert server.headers["Authorization"] == f"Bearer {SECRET}"
    assert plain.requests
    assert set(plain.keys) == {None}


def test_a_server_that_wants_the_withheld_key_is_told_how_to_get_it(
    recorded: Path, told: Told, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret-7")
    with serving(told, "wants a key") as server:
        _with_server(recorded, endpoint=server.endpoint)
        refused = harness("measure", recorded)
        monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.1")
        listed = harness("measure", recorded)
        endpoint = server.endpoint
    assert refused.status == 2
    assert f"{KEY_VARIABLE} is not sent to an address that only the pair file names" in refused.err
    assert f"--endpoint {endpoint}, or list its host in the environment variable {HOSTS_VARIABLE}" in refused.err
    assert "secret-7" not in refused.err
    assert listed.status == 0


def test_a_withheld_key_is_told_where_no_key_is_needed(
    recorded: Path, told: Told, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, SECRET)
    with serving(told) as server:
        _with_server(recorded, endpoint=server.endpoint)
        withheld = harness("measure", recorded, "--json")
        assert "Authorization" not in server.headers
        sent = harness("measure", recorded, "--endpoint", server.endpoint, "--json")
        assert server.headers["Authorization"] == f"Bearer {SECRET}"
    assert withheld.status == sent.status == 0
    assert [note for note in withheld.json["notes"] if "API key was not sent" in note]
    assert not [note for note in sent.json["notes"] if "API key" in note]


@pytest.mark.parametrize("listed", ["http://127.0.0.1", "127.0.0.1/x", "me@127.0.0.1", "::1", "a?b"])
def test_a_list_of_hosts_that_is_none(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, listed)
    with _listening() as server:
        answer = harness("measure", _with_server(recorded, endpoint=server.endpoint))
    assert answer.status == 2
    assert f"{HOSTS_VARIABLE}: the value is not a list of hosts" in answer.err
    assert server.requests == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(
    recorded: Path, harness: Command, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, SECRET)
    with _listening() as other, _listening(status, other.endpoint) as server:
        answer = harness("measure", recorded, "--endpoint", server.endpoint)
    assert answer.status == 4
    assert f"answered status {status}, a redirect, which is not followed" in answer.err
    assert server.requests == ["/server_info"]
    assert other.requests == []


# What an untrusted pair file asks to be sent, by the key at fault. Each is given the pair's folder and one elsewhere.
def _prompts(file: Path, value: str) -> None:
    file.write_text(file.read_text().replace('prompts = "prompts.jsonl"', f"prompts = {json.dumps(value)}"))


def _template(file: Path, value: str) -> None:
    file.write_text(file.read_text().replace('chat_template = "none"', f"chat_template = {json.dumps(value)}"))


def _prompts_by_path(file: Path, elsewhere: Path) -> None:
    shutil.copy(file.parent / "prompts.jsonl", elsewhere / "notes.jsonl")
    _prompts(file, str(elsewhere / "notes.jsonl"))


def _prompts_upward(file: Path, elsewhere: Path) -> None:
    shutil.copy(file.parent / "prompts.jsonl", elsewhere / "notes.jsonl")
    _prompts(file, os.path.relpath(elsewhere / "notes.jsonl", file.parent))


def _prompts_by_link(file: Path, elsewhere: Path) -> None:
    (file.parent / "prompts.jsonl").rename(elsewhere / "notes.jsonl")
    (file.parent / "prompts.jsonl").symlink_to(elsewhere / "notes.jsonl")


def _prompts_by_a_linked_folder(file: Path, elsewhere: Path) -> None:
    shutil.copy(file.parent / "prompts.jsonl", elsewhere / "notes.jsonl")
    (file.parent / "data").symlink_to(elsewhere)
    _prompts(file, "data/notes.jsonl")


def _prompts_hidden(file: Path, _elsewhere: Path) -> None:
    (file.parent / ".cache").mkdir()
    shutil.copy(file.parent / "prompts.jsonl", file.parent / ".cache" / "history.jsonl")
    _prompts(file, ".cache/history.jsonl")


def _template_by_path(file: Path, elsewhere: Path) -> None:
    (elsewhere / "id_rsa").write_text("private")
    _template(file, str(elsewhere / "id_rsa"))


def _template_hidden(file: Path, _elsewhere: Path) -> None:
    (file.parent / ".env").write_text("TOKEN=private")
    _template(file, ".env")


def _template_of_the_checkpoint(file: Path, elsewhere: Path) -> None:
    (elsewhere / "id_rsa").write_text("private")
    (file.parent / "target" / "chat_template.jinja").symlink_to(elsewhere / "id_rsa")


def _templates_of_the_checkpoint(file: Path, elsewhere: Path) -> None:
    (elsewhere / "default.jinja").write_text("private")
    (file.parent / "target" / "additional_chat_templates").symlink_to(elsewhere)


def _blobs_of_no_cache(file: Path, elsewhere: Path) -> None:
    """A repository that looks like the hub's cache, with its blobs elsewhere."""
    (elsewhere / "id_rsa").write_text("private")
    model = file.parent / "models--a--b"
    (model / "snapshots").mkdir(parents=True)
    (file.parent / "target").rename(model / "snapshots" / "c")
    (model / "blobs").symlink_to(elsewhere)
    (model / "snapshots" / "c" / "chat_template.jinja").symlink_to("../../blobs/id_rsa")
    file.write_text(file.read_text().replace('target = "target"', 'target = "models--a--b/snapshots/c"'))


FOREIGN: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "prompts by path": (_prompts_by_path, "prompts"),
    "prompts upward": (_prompts_upward, "prompts"),
    "prompts by a link": (_prompts_by_link, "prompts"),
    "prompts by a linked folder": (_prompts_by_a_linked_folder, "prompts"),
    "prompts in a hidden folder": (_prompts_hidden, "prompts"),
    "a template by path": (_template_by_path, "chat_template"),
    "a hidden file as template": (_template_hidden, "chat_template"),
    "a link as the checkpoint's template": (_template_of_the_checkpoint, "target"),
    "a link as the checkpoint's templates": (_templates_of_the_checkpoint, "target"),
    "a cache whose blobs are elsewhere": (_blobs_of_no_cache, "target"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_no_text_from_elsewhere_is_sent_to_a_server_that_only_the_pair_file_names(
    recorded: Path, tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    plant, key = FOREIGN[what]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    plant(recorded, elsewhere)
    with _listening() as server:
        _with_server(recorded, endpoint=server.endpoint)
        answer = harness("measure", recorded)
        assert server.requests == []
        assert answer.status == 2
        assert f"{recorded}: {key}: text from elsewhere is not sent to {server.endpoint}" in answer.err
        assert f"Next: if you trust that server, name it yourself: --endpoint {server.endpoint}" in answer.err
        assert "private" not in answer.err
        # Whoever vouches for a server decides what it is sent.
        assert _asked(harness("measure", recorded, "--endpoint", server.endpoint), server)
        monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.1")
        assert _asked(harness("measure", recorded), server)


def _asked(answer: Answer, server: Seen) -> bool:
    """Whether a server that answers nothing useful was asked what it is."""
    asked, server.requests = server.requests, []
    return bool(asked) and "neither SGLang nor vLLM answers here" in answer.err


def _elsewhere_in_the_repository(file: Path, _elsewhere: Path) -> Path:
    """The pair file in one folder of a repository, its prompts in another, and a hidden folder around both."""
    project = file.parent.parent / "project"
    home = project / ".harness"
    home.mkdir(parents=True)
    (project / ".git").mkdir()
    file.parent.rename(home / "pairs")
    (home / "pairs" / "prompts.jsonl").rename(project / "prompts.jsonl")
    moved = home / "pairs" / file.name
    _prompts(moved, "../../prompts.jsonl")
    return moved


def _hidden_like_the_pair(file: Path, _elsewhere: Path) -> Path:
    (file.parent.parent / ".git").mkdir()
    return Path(shutil.move(file.parent, file.parent.parent / ".pairs")) / file.name


def _built_in(file: Path, _elsewhere: Path) -> Path:
    _prompts(file, "chat-70")
    return file


def _target_elsewhere(file: Path, elsewhere: Path) -> Path:
    """A checkpoint on another disk, with weights that are links to a third."""
    shutil.move(file.parent / "target", elsewhere / "target")
    (elsewhere / "target" / "model.safetensors").rename(elsewhere / "weights.safetensors")
    (elsewhere / "target" / "model.safetensors").symlink_to(elsewhere / "weights.safetensors")
    file.write_text(file.read_text().replace('target = "target"', f'target = "{elsewhere}/target"'))
    return file


def _target_in_the_cache(file: Path, elsewhere: Path) -> Path:
    """As the hub's client lays a model out: a snapshot of links to blobs."""
    model = elsewhere / "models--a--b"
    (model / "blobs").mkdir(parents=True)
    (model / "snapshots" / "c").mkdir(parents=True)
    for number, source in enumerate(sorted((file.parent / "target").iterdir())):
        source.rename(model / "blobs" / str(number))
        (model / "snapshots" / "c" / source.name).symlink_to(f"../../blobs/{number}")
    file.write_text(file.read_text().replace('target = "target"', f'target = "{model}/snapshots/c"'))
    return file


OWN = [_elsewhere_in_the_repository, _hidden_like_the_pair, _built_in, _target_elsewhere, _target_in_the_cache]


@pytest.mark.parametrize("arrange", OWN)
def test_what_is_the_pairs_own_is_sent(
    recorded: Path, tmp_path: Path, harness: Command, arrange: Callable[[Path, Path], Path]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file = arrange(recorded, elsewhere)
    with _listening() as server:
        assert _asked(harness("measure", _with_server(file, endpoint=server.endpoint)), server)


def test_a_home_folder_in_a_repository_is_not_what_a_pair_in_it_speaks_for(
    recorded: Path, tmp_path: Path, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".git").mkdir()
    (recorded.parent / "prompts.jsonl").rename(tmp_path / "notes.jsonl")
    _prompts(recorded, "../notes.jsonl")
    with _listening() as server:
        assert harness("measure", _with_server(recorded, endpoint=server.endpoint)).status == 2
    assert server.requests == []


def test_texts_of_another_repositorys_golden_are_not_sent(
    recorded: Path, tmp_path: Path, told: Told, harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge of the output reads the recorded continuations, which may be a private model's."""
    (recorded.parent / "golden").rename(tmp_path / "golden")
    with serving(told) as server:
        _with_server(recorded, endpoint=server.endpoint)
        answer = harness("check", recorded)
        assert answer.status == 2
        assert f"golden: text from elsewhere is not sent to {server.endpoint}" in answer.err
        assert not any("logprob_start_len" in body for body in server.bodies)
        monkeypatch.setenv(HOSTS_VARIABLE, "127.0.0.1")
        assert harness("check", recorded).status == 0
        assert any("logprob_start_len" in body for body in server.bodies)


def test_a_server_neither_controls_the_terminal_nor_writes_lines_of_the_report(
    recorded: Path, told: Told, harness: Command
) -> None:
    """What it says about itself is shown: here names of models that it does not have."""
    evil = "/models/\x1b[2J\x1b]0;owned\x07\nPASS everything: acceptance rate 100 %\n\u202e"
    names = dict.fromkeys(("model_path", "speculative_draft_model_path", "quantization"), evil)
    with serving(replace(told, info=told.info | names)) as server:
        answer = harness("check", recorded, "--endpoint", server.endpoint)
    assert answer.status == 0
    shown = [line for line in answer.out.splitlines() if "owned" in line]
    assert len(shown) == 3
    assert all(line.startswith("note: the server's ") for line in shown)
    assert not [line for line in answer.out.splitlines() if line.startswith("PASS everything")]
    assert not [char for char in answer.out if not char.isprintable() and char != "\n"]
