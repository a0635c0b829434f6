"""SGLang's model files as syntax trees, from a wheel, an unpacked release or the installed package; never imported."""

from __future__ import annotations

import ast
import importlib.util
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from harness.errors import InputError

__all__ = ["SETTER", "ModelClass", "SglangSources", "find_installed", "read_sources"]

SETTER = "set_eagle3_layers_to_capture"
_MODELS = "sglang/srt/models/"
_VERSION = re.compile(r"""^__version__\s*=.*?["']([^"']+)["']""", re.MULTILINE)


@dataclass(frozen=True)
class ModelClass:
    """A class of a model file.

    Attributes:
        module: The file's name below `sglang/srt/models`, dotted and without its extension.
        node: Its syntax tree.
    """

    module: str
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """The class' own name."""
        return self.node.name

    def method(self, name: str) -> ast.FunctionDef | None:
        """Return the method that its body defines under `name`, `None` if it does not define one."""
        found = [node for node in self.node.body if isinstance(node, ast.FunctionDef) and node.name == name]
        return found[-1] if found else None


@dataclass(frozen=True, eq=False)
class SglangSources:
    """A release's model files.

    Attributes:
        version: The release.
        origin: Where the files were read, for messages and reports.
        texts: The files' text, by module.
    """

    version: str
    origin: str
    texts: Mapping[str, str]

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """The files' syntax trees, by module.

        Raises:
            InputError: A file cannot be parsed by this version of Python.
        """
        trees = {}
        for module, text in self.texts.items():
            try:
                trees[module] = ast.parse(text)
            except (SyntaxError, ValueError) as error:
                raise InputError(
                    f"a model file of SGLang cannot be parsed: {error}",
                    file=f"{self.origin}/{module}.py",
                    next_step="use a Python that this release supports",
                ) from error
        return trees

    @cached_property
    def _classes(self) -> dict[tuple[str, str], ModelClass]:
        return {
            (module, node.name): ModelClass(module, node)
            for module, tree in self.trees.items()
            for node in tree.body
            if isinstance(node, ast.ClassDef)
        }

    @cached_property
    def _imported(self) -> dict[tuple[str, str], tuple[str, str]]:
        """From a module and a name that it imports to the module that defines it and its name there."""
        found: dict[tuple[str, str], tuple[str, str]] = {}
        for module, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (source := _models_module(module, node)) is not None:
                    found |= {(module, name.asname or name.name): (source, name.name) for name in node.names}
        return found

    def find_class(self, module: str, name: str) -> ModelClass | None:
        """Return the class that `name` means in a module, `None` if it is not in the model files."""
        here = (module, name)
        seen = set()
        while here not in self._classes:
            if here in seen or here not in self._imported:
                return None
            seen.add(here)
            here = self._imported[here]
        return self._classes[here]

    def resolve(self, module: str, node: ast.expr) -> ModelClass | None:
        """Return the class that an expression of a module names, such as `Base` or `qwen3_5.Base`."""
        if isinstance(node, ast.Name):
            return self.find_class(module, node.id)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            package, name = self._imported.get((module, node.value.id), ("", ""))
            return self.find_class(f"{package}.{name}".lstrip("."), node.attr)
        return None

    def lineage(self, cls: ModelClass) -> list[ModelClass]:
        """Return a class and its bases in the model files, in the order in which Python looks up a method."""
        order = [cls]
        for base in cls.node.bases:
            # A base from another package, such as nn.Module, does not define how states are captured.
            found = self.resolve(cls.module, base)
            if found is not None:
                order += self.lineage(found)
        # As in Python, a base that several classes share comes after all of them.
        last = {id(entry): index for index, entry in enumerate(order)}
        return [entry for index, entry in enumerate(order) if last[id(entry)] == index]

    def find_method(self, cls: ModelClass, name: str) -> tuple[ModelClass, ast.FunctionDef] | None:
        """Return the method that a class has under `name`, its own or inherited, with the class that defines it."""
        for entry in self.lineage(cls):
            method = entry.method(name)
            if method is not None:
                return entry, method
        return None

    def entry_classes(self) -> Iterator[ModelClass]:
        """Yield the classes that SGLang's registry offers, each under the architecture of its name."""
        for module, tree in self.trees.items():
            for node in tree.body:
                if not (
                    isinstance(node, ast.Assign) and any(_is_name(target, "EntryClass") for target in node.targets)
                ):
                    continue
                values = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
                for value in values:
                    found = self.resolve(module, value)
                    if found is not None:
                        yield found

    def capturing_classes(self) -> list[ModelClass]:
        """Return the registry's classes that have the setter, their own or inherited, by module and name."""
        found = [cls for cls in self.entry_classes() if self.find_method(cls, SETTER) is not None]
        return sorted(found, key=lambda cls: (cls.module, cls.name))


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _models_module(module: str, node: ast.ImportFrom) -> str | None:
    """Return the model file that an import reads from, `None` if it is another package's."""
    if node.level:
        package = module.split(".")[: -node.level]
        return ".".join([*package, *filter(None, [node.module])])
    package_name, name = _MODELS.strip("/").replace("/", "."), node.module or ""
    if name == package_name:
        return ""
    return name.removeprefix(f"{package_name}.") if name.startswith(f"{package_name}.") else None


def find_installed() -> Path | None:
    """Return the folder of the installed sglang, `None` if it is not installed; imports nothing."""
    found = importlib.util.find_spec("sglang")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations)))


def read_sources(path: Path) -> SglangSources:
    """Read a release's model files.

    Args:
        path: A wheel; or a folder that is, or contains, the package `sglang`: an unpacked wheel, a checkout's `python`.

    Raises:
        InputError: SGLang is not there, or its release cannot be told.
    """
    if path.is_file():
        return _read_wheel(path)
    for folder in (path, path / "sglang", path / "python" / "sglang"):
        models = folder / "srt" / "models"
        if models.is_dir():
            texts = {_module(file.relative_to(models)): _text(file.read_bytes(), file) for file in models.rglob("*.py")}
            return SglangSources(_folder_version(folder), str(folder), texts)
    raise InputError(
        "SGLang's model files are not here",
        file=path,
        found="neither a wheel nor a folder with srt/models",
        expected="a wheel of sglang, or the folder of an unpacked one",
        next_step="pip download --no-deps sglang==VERSION and give the wheel",
    )


def _read_wheel(path: Path) -> SglangSources:
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise InputError("this file is not a wheel", file=path, expected="sglang-VERSION-….whl") from error
    if name != "sglang":
        raise InputError("this wheel is of another package", file=path, found=name, expected="sglang")
    try:
        with zipfile.ZipFile(path) as wheel:
            names = [name for name in wheel.namelist() if name.startswith(_MODELS) and name.endswith(".py")]
            texts = {_module(Path(name.removeprefix(_MODELS))): _text(wheel.read(name), name) for name in names}
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"this wheel cannot be read: {error}", file=path, next_step="download it again") from error
    if not texts:
        raise InputError("this wheel does not have model files", file=path, expected=f"files below {_MODELS}")
    return SglangSources(str(version), path.name, texts)


def _module(file: Path) -> str:
    return ".".join(file.with_suffix("").parts)


def _text(content: bytes, file: object) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("a model file of SGLang is not UTF-8 text", file=str(file)) from error


def _folder_version(folder: Path) -> str:
    """Return the release named in a package's folder."""
    for file in (folder / "_version.py", folder / "version.py"):
        said = _VERSION.search(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else None
        if said is not None:
            return said[1]
    raise InputError(
        "these files do not say which release they are",
        file=folder,
        key="_version.py",
        expected="a line __version__ = '0.5.23'",
        next_step="give the release's wheel, or its unpacked folder whole",
    )
