"""What a server is given: an API key only if the user named it, and no text from outside if only a pair file did."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx

from harness.errors import InputError
from harness.files import is_folder
from harness.golden.find import golden_folder
from harness.pair.builtin import builtin_root
from harness.pair.locate import relative_path
from harness.pair.pair import Pair

__all__ = [
    "HOSTS_VARIABLE",
    "how_to_trust",
    "is_trusted",
    "option_of",
    "require_own_golden_texts",
    "require_own_texts",
]

HOSTS_VARIABLE = "HARNESS_API_HOSTS"


def is_trusted(pair: Pair, key: str) -> bool:
    """Return whether the user vouches for a server: named on the command line, or its host listed in the environment.

    Args:
        pair: Its engine settings have the address.
        key: The setting that has the address, `endpoint` or `plain_endpoint`.

    Raises:
        InputError: The list of hosts cannot be read.
    """
    return key in pair.user_named or _is_listed(str(getattr(pair.settings.engine, key)))


def option_of(key: str) -> str:
    """Return the option by which a user names the address of a setting."""
    return f"--{key.replace('_', '-')}"


def how_to_trust(pair: Pair, key: str) -> str:
    """Return what a user does to vouch for a server that a pair file names, in an instruction's words."""
    address = getattr(pair.settings.engine, key)
    return (
        f"name it yourself: {option_of(key)} {address}, or list its host in the environment variable {HOSTS_VARIABLE}"
    )


def _is_listed(endpoint: str) -> bool:
    listed = list(_listed_hosts())
    try:
        url = httpx.URL(endpoint)
    except (httpx.InvalidURL, ValueError):
        # Refused as an address by the client, which says why.
        return False
    return any(host == url.host and port in (None, url.port or _PORTS.get(url.scheme)) for host, port in listed)


_PORTS = {"http": 80, "https": 443}


def _listed_hosts() -> Iterator[tuple[str, int | None]]:
    """Yield each host that the environment lists, with its port if it names one."""
    for entry in re.split(r"[,\s]+", os.environ.get(HOSTS_VARIABLE, "").strip(", \t\n")):
        if not entry:
            continue
        try:
            # httpx leaves out the default port of a scheme; this scheme does not have one.
            url = httpx.URL(f"host://{entry}")
            usable = bool(url.host) and entry.lower() in (url.host, url.netloc.decode(), f"[{url.host}]")
        except (httpx.InvalidURL, ValueError):
            usable = False
        if not usable:
            raise InputError(
                "the value is not a list of hosts",
                key=HOSTS_VARIABLE,
                found=entry,
                expected="host or host:port, separated by commas; IPv6 addresses in brackets",
            )
        yield url.host, url.port


def require_own_texts(pair: Pair, key: str) -> None:
    """Refuse to send a server what only a pair file asks to be sent: texts from outside of the pair's repository.

    Prompts and chat template must be in the pair file's repository, or in its folder if that is not in a repository,
    and may not be hidden files. A checkpoint may be anywhere, but its files must be its own, not links to others. What
    is built in, and the hub's cache, belong to everyone.

    Args:
        pair: Its files would be sent.
        key: The setting that has the server's address.

    Raises:
        InputError: A file whose text would be sent is from elsewhere.
    """
    settings = pair.settings
    files = [("prompts", pair.prompts_file)]
    if settings.chat_template not in ("target", "none"):
        files.append(("chat_template", relative_path(pair.file, "chat_template", settings.chat_template)))
    for name, file in files:
        if not any(_is_inside(file, own) for own in _territories(pair.file, "fixtures/prompts")):
            raise _foreign(pair, key, name, file, _territory(pair.file))
    home = pair.target.path.resolve()
    for file in _files_below(pair.target.path):
        if not any(file.resolve().is_relative_to(own) for own in (home, *_shared_folders(home))):
            raise _foreign(pair, key, "target", file, home)


def require_own_golden_texts(pair: Pair, key: str) -> None:
    """Refuse to send a server the recorded continuations of another repository's golden; see `require_own_texts`.

    Raises:
        InputError: The golden's folder is elsewhere.
    """
    folder = golden_folder(pair)
    if folder is not None and not any(_is_inside(folder, own) for own in _territories(pair.file, "golden")):
        raise _foreign(pair, key, "golden", folder, _territory(pair.file))


def _territories(pair_file: Path, builtin: str) -> tuple[Path, ...]:
    """Return the folders that a pair file speaks for, and the built-in one that everyone may name."""
    # Its own folder too, which may be a hidden one of its repository.
    return (_territory(pair_file), pair_file.resolve().parent, builtin_root() / builtin)


def _territory(pair_file: Path) -> Path:
    """Return the folder that a pair file speaks for: its repository, or its own folder."""
    folder = pair_file.resolve().parent
    homes = (Path.home().resolve(), *Path.home().resolve().parents)
    for place in (folder, *folder.parents):
        # Some keep their whole home folder in a repository: that is not what a pair file in it speaks for.
        if place in homes:
            break
        if os.path.lexists(place / ".git"):
            return place
    return folder


def _is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path is below a folder once links are followed, and not hidden in it."""
    real, root = path.resolve(), folder.resolve()
    return real.is_relative_to(root) and not any(part.startswith(".") for part in real.relative_to(root).parts)


def _shared_folders(target: Path) -> list[Path]:
    """Return where the files of a checkpoint in the hub's cache really are: the snapshots of a model link to its blobs.

    Source: the layout in huggingface_hub's guide "Understand caching": models--OWNER--NAME/snapshots/COMMIT.
    """
    model = target.parent.parent
    in_cache = target.parent.name == "snapshots" and model.name.startswith("models--")
    return [model / "blobs"] if in_cache else []


# Weights are often links to a large disk, and nothing in them is text.
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield what a tokenizer may be read from: the files of a checkpoint's folder, and of the folders in it."""
    for path in sorted(folder.iterdir()):
        if path.suffix not in _WEIGHTS:
            yield path
        if is_folder(path):
            yield from (file for file in sorted(path.iterdir()) if file.suffix not in _WEIGHTS)


def _foreign(pair: Pair, key: str, name: str, file: Path, root: Path) -> InputError:
    address = getattr(pair.settings.engine, key)
    return InputError(
        f"text from elsewhere is not sent to {address}, an address that only the pair file names",
        file=pair.file,
        key=name,
        found=str(file.resolve()),
        expected=f"a file in {root} that is not hidden",
        next_step=f"if you trust that server, {how_to_trust(pair, key)}",
    )
