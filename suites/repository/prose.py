"""How this project writes: ten turns of phrase that engineers of the field rarely use, and how often we do.

`python -m suites.repository.prose` prints the rate of each pattern per 10,000 words, and exits 1 if one is above its
limit or an Args or Attributes line says nothing; `--list` also prints every hit with its file and line. Four texts are
counted apart: `harness` (docstrings, comments, and the strings that are sentences), `readme`, `docs` (every other page
that is written by hand) and `help` (the help texts of every command). Code is left out: fenced blocks, what is in
backquotes, doctest lines.

`python -m suites.repository.prose --sources FOLDER` counts another project's Python files in the same way. That is how
the rates of the model codebases in `PATTERNS` were obtained.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.main

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "harness"
WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*")
# Left standing for code, so that a pattern can ask for code in a place without counting its words.
CODE = "`·`"
# Written by `harness conformance`: the sentences in it are strings of harness/ and are counted there.
GENERATED = frozenset({Path("docs/conformance.md")})


@dataclass(frozen=True)
class Pattern:
    """A turn of phrase and how often it may occur.

    Attributes:
        name: What the table calls it.
        expression: Matches one use of it; a space in it also matches a line break.
        limit: The highest rate that passes, in uses per 10,000 words.
        model: The highest rate that `--sources` finds in the model codebases: pluggy 1.7.0, pytest 9.2.0, httpx 0.28.1,
            hypothesis 6.170.17 and inspect_ai 0.3.285. The limit is at most twice that, rounded up.
    """

    name: str
    expression: str
    limit: float
    model: float

    @property
    def regex(self) -> re.Pattern[str]:
        """The compiled expression."""
        return re.compile(self.expression.replace(" ", r"\s"), re.MULTILINE)


# *Where* for *if* has no form of its own, so its commonest surroundings are counted: a sentence that begins with it
# ("Where nothing is measured, …"), a pronoun as its subject ("where there is one"), a clause with a verb of state
# ("where the engine has none"), and a value, a number or a particle before it ("0 where …", "else where …"). A clause
# after one of the words below names a place or answers a question ("says where it is") and is not counted.
_PLACES = (
    "say|says|said|tell|tells|told|show|shows|shown|know|knows|known|find|finds|found|see|sees|seen|look|"
    "looks|looked|ask|asks|from|of|about|on|to|is|was|name|names|decide|decides|determine|determines|"
    "place|places|point|position|file|line|folder|directory|step|case|cases|situation|situations|scenario|"
    "scenarios"
)
_NO_PLACE = "".join(rf"(?<!\b(?i:{word}) )" for word in _PLACES.split("|"))
_PRONOUN = (
    "(?:it|there|they|none|nothing|no|neither|either|that|this|these|those|all|both|any|anything|not|asked|only|even|one|"
    r"two|some|given|known|needed)\b"
)
_CLAUSE = (
    r"(?:the|a|an|its|their|his|every|each) (?:[\w'-]+ ){1,3}?"
    r"(?:is|are|has|have|does|do|was|were|can|cannot|could|knows?|holds?|says?|gives?|needs?|had|must|may)\b"
)
_WHERE = "|".join(
    (
        r"(?:^|[.!?;] )Where (?!to\b)[^.;:]*,",
        rf"{_NO_PLACE}\bwhere {_PRONOUN}",
        rf"{_NO_PLACE}(?<!, )\bwhere {_CLAUSE}",
        r"(?:[`\d]|\b(?:else|also|only|even|exit|except|but|not)) where\b",
    )
)
# An example without a verb of its own: ", as `sglang==0.5.23`." and not ", as SGLang does".
_EXAMPLE = rf"(?:{CODE}|[\d'\"-][\w.'\"-]*|[a-z]+(?:==|_)[\w.]+|(?!JSON\b|ISO\b|UTC\b)[A-Z]\w*[A-Z\d]\w*)"
_AS = rf"(?:, |\()as {_EXAMPLE}(?: (?:or|and) {_EXAMPLE})?(?=[.,;:)\n]|\Z)"

PATTERNS = (
    Pattern("where for if", _WHERE, 6, 4.3),
    Pattern("is/has/holds no", r"\b(?:is|are|was|were|be|has|have|had|holds?|held) no\b(?! longer\b)", 14, 9.3),
    Pattern("as X for such as", _AS, 1, 0.02),
    Pattern("stands", r"\b(?:stands?|stood)\b(?! for\b| in for\b|-)", 2, 0.6),
    Pattern("said/told/tells", r"\b(?:said|told|tells?)\b", 5, 2.1),
    Pattern("is none", r"\b(?:is|are|was|were|be) none\b", 1, 0.3),
    Pattern("puts out", r"\b(?:puts?|putting) out\b", 1, 0.0),
    Pattern("beside", r"\bbeside\b", 2, 0.6),
    Pattern("anew", r"\banew\b", 1, 0.02),
    Pattern("otherwise than", r"\b(?:otherwise(?= than)|[Ww]hoever|[Ss]omebody|[Nn]obody)\b", 1, 0.4),
)


@dataclass(frozen=True)
class Passage:
    """A piece of text without its code.

    Attributes:
        place: The file or command that it is from.
        line: The line at which it starts, 0 if it has none.
        text: The text.
    """

    place: str
    line: int
    text: str


@dataclass(frozen=True)
class Hit:
    """One use of a pattern."""

    place: str
    line: int
    excerpt: str


def undocumented(source: str) -> list[str]:
    """Return the public classes and functions that lack a docstring, and `module` if the file itself does."""
    tree = ast.parse(source)
    found = [] if ast.get_docstring(tree) else ["module"]

    def walk(body: Sequence[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith(
                "_"
            ):
                if not ast.get_docstring(node):
                    found.append(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    walk(node.body, f"{prefix}{node.name}.")

    walk(tree.body, "")
    return found


def idle_lines(source: str) -> list[tuple[int, str]]:
    """Return the Args and Attributes lines that repeat the name ("pair: The pair.") or start with Of, By or For."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0].lineno
            section = ""
            for number, line in enumerate((ast.get_docstring(node, clean=False) or "").split("\n")):
                section = (
                    re.sub(r"^\s+(Args|Attributes|Returns|Raises):$", r"\1", line) if line.endswith(":") else section
                )
                match = re.fullmatch(r"\s+(\w+): (.+)", line)
                if section in ("Args", "Attributes") and match and _idle(match[1], match[2]):
                    found.append((first + number, line.strip()))
    return found


def _idle(name: str, text: str) -> bool:
    said = set(re.findall(r"[a-z]+", text.lower())) - {"the", "a", "an", "its", "s"}
    return bool(re.match(r"(?:Of|By|For)\b", text)) or (text.endswith(".") and said <= set(name.lower().split("_")))


def words(passages: Sequence[Passage]) -> int:
    """Return the number of words."""
    return sum(len(WORD.findall(passage.text)) for passage in passages)


def find(pattern: Pattern, passages: Sequence[Passage]) -> list[Hit]:
    """Return every use of a pattern."""
    regex = pattern.regex
    return [
        Hit(
            passage.place,
            passage.line + passage.text.count("\n", 0, match.start()) if passage.line else 0,
            " ".join(passage.text[max(0, match.start() - 40) : match.end() + 40].split()),
        )
        for passage in passages
        for match in regex.finditer(passage.text)
    ]


def _without_code(text: str) -> str:
    text = re.sub(r"^ *```.*?^ *```", lambda match: "\n" * match[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(`+)[^`]+\1", lambda match: CODE + "\n" * match[0].count("\n"), text)
    text = re.sub(r"^ *(?:>>>|\.\.\. ).*$", "", text, flags=re.MULTILINE)
    # Words of one paragraph are then apart by one character, which is what a pattern's space stands for.
    return re.sub(r" *\n *|  +", lambda match: "\n" if "\n" in match[0] else " ", text)


def markdown(text: str, place: str) -> list[Passage]:
    """Return a page's text: the words of its links without their addresses, tables with their figures."""
    text = re.sub(r"<!--.*?-->", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    text = _without_code(text)
    return [Passage(place, 1, re.sub(r"\]\([^)]*\)", "]", text))]


def _comments(source: str, place: str) -> Iterator[Passage]:
    """Yield the comments, those of neighbouring lines as one."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and block:
            yield Passage(place, first, _without_code("\n".join(block)))
            block = []
        if not block:
            first = token.start[0]
        last = token.start[0]
        directive = r"(?:noqa|type: ignore|fmt|pragma|pylint|mypy)\b[:\s]*[\w\[\], :-]*?(?: - |$)"
        block.append(re.sub(directive, "", token.string.lstrip("#! ")))
    if block:
        yield Passage(place, first, _without_code("\n".join(block)))


class _Strings(ast.NodeVisitor):
    """Collects docstrings and the literals that are sentences; a placeholder of an f-string stays as `{}`."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            self.found.append((node.value.lineno, node.value.value))
        else:
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._literal(node.lineno, node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        parts = []
        for value in node.values:
            if isinstance(value, ast.Constant):
                parts.append(str(value.value))
            elif isinstance(value, ast.FormattedValue):
                parts.append("{}")
                self.visit(value.value)
        self._literal(node.lineno, "".join(parts))

    def _literal(self, line: int, text: str) -> None:
        # Keys, names and formats are not prose: three words in a row are.
        if re.search(r"[A-Za-z]{2,},? [A-Za-z]+ [A-Za-z]{2,}", text):
            self.found.append((line, text))


def python(source: str, place: str) -> list[Passage]:
    """Return the docstrings, the comments and the literals that are sentences."""
    strings = _Strings()
    strings.visit(ast.parse(source))
    return [*(Passage(place, line, _without_code(text)) for line, text in strings.found), *_comments(source, place)]


def sources(folder: Path) -> list[Passage]:
    """Return the prose of every Python file in a folder."""
    return [
        passage
        for file in sorted(folder.rglob("*.py"))
        for passage in python(file.read_text(encoding="utf-8"), str(file))
    ]


def pages() -> list[Path]:
    """Return every page of this repository that is written by hand, relative to its root, README.md left out."""
    folders = ("docs", "examples", "fixtures", "plugins")
    found = [*ROOT.glob("*.md"), *(file for folder in folders for file in (ROOT / folder).rglob("*.md"))]
    relative = sorted(file.relative_to(ROOT) for file in found)
    return [file for file in relative if file != Path("README.md") and file not in GENERATED]


def _help(command: Any, name: str) -> Iterator[Passage]:
    parts = [command.help, command.epilog]
    parts += [getattr(parameter, "help", None) for parameter in command.params]
    for part in parts:
        if part:
            yield Passage(f"harness {name} --help".replace("  ", " "), 0, _without_code(part))
    for child, below in getattr(command, "commands", {}).items():
        yield from _help(below, f"{name} {child}".strip())


def helps() -> list[Passage]:
    """Return the help texts of every command, its options and its arguments."""
    from harness.cli.app import app

    return list(_help(typer.main.get_command(app), ""))


def texts() -> dict[str, list[Passage]]:
    """Return the four texts of this project."""

    def page(file: Path) -> list[Passage]:
        return markdown((ROOT / file).read_text(encoding="utf-8"), str(file))

    return {
        "harness": sources(ROOT / PACKAGE),
        "readme": page(Path("README.md")),
        "docs": [passage for file in pages() for passage in page(file)],
        "help": helps(),
    }


def rates(passages: Sequence[Passage]) -> dict[str, float]:
    """Return the rate of each pattern per 10,000 words."""
    total = words(passages)
    return {pattern.name: 10_000 * len(find(pattern, passages)) / max(1, total) for pattern in PATTERNS}


def above(passages: Sequence[Passage]) -> dict[str, float]:
    """Return the rates that are above their limits."""
    limits = {pattern.name: pattern.limit for pattern in PATTERNS}
    return {name: rate for name, rate in rates(passages).items() if rate > limits[name]}


def table(counted: dict[str, list[Passage]]) -> Iterator[str]:
    """Yield the table's lines: a row for each pattern, a column for each text, `!` at what is above its limit."""
    found = {name: rates(passages) for name, passages in counted.items()}
    yield f"{'per 10,000 words':18}{'limit':>7}{'model':>7}" + "".join(f"{name:>10} " for name in counted)
    for pattern in PATTERNS:
        cells = "".join(
            f"{rates_of[pattern.name]:10.1f}{'!' if rates_of[pattern.name] > pattern.limit else ' '}"
            for rates_of in found.values()
        )
        yield f"{pattern.name:18}{pattern.limit:7g}{pattern.model:7g}{cells}"
    yield f"{'words':32}" + "".join(f"{words(passages):10} " for passages in counted.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and return 1 if a rate is above its limit."""
    parser = argparse.ArgumentParser(prog="python -m suites.repository.prose", description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="print every hit with its file and line")
    parser.add_argument("--sources", type=Path, nargs="+", help="count the Python files in these folders instead")
    options = parser.parse_args(arguments)
    folders: list[Path] = options.sources or []
    counted = {folder.name: sources(folder) for folder in folders} or texts()
    write = sys.stdout.write
    if options.list:
        for name, passages in counted.items():
            for pattern in PATTERNS:
                for hit in find(pattern, passages):
                    place = hit.place.removeprefix(f"{ROOT}/")
                    write(f"{name} [{pattern.name}] {place}:{hit.line}: {hit.excerpt}\n")
    files = [file for folder in folders or [ROOT / PACKAGE] for file in sorted(folder.rglob("*.py"))]
    idle = [(file, *line) for file in files for line in idle_lines(file.read_text(encoding="utf-8"))]
    if options.list:
        write(
            "".join(f"[idle line] {str(file).removeprefix(f'{ROOT}/')}:{line}: {text}\n" for file, line, text in idle)
        )
    write("\n".join(table(counted)) + "\n")
    write(f"{len(idle)} Args or Attributes lines repeat the name or start with Of, By or For (limit 0)\n")
    return int(bool(idle) or any(above(passages) for passages in counted.values()))


if __name__ == "__main__":
    sys.exit(main())
