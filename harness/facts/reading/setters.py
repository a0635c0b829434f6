"""The boundaries that a class' setter asks its decoder to capture: the setter's own code, run on stand-in objects.

The stand-ins are fakes and are named so: they have a config of N layers, N empty layers and a last pipeline rank, and
none of a model's other parts. The marks that the setter leaves on them, together with the marks that the decoder's
forward tests (`harness.facts.reading.loops`), say which boundaries would be captured.
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.facts.layer_ids import states_text
from harness.facts.reading.loops import FLAG, LIST, CaptureLoop, read_loop
from harness.facts.reading.sources import SETTER, ModelClass, SglangSources

__all__ = ["CaptureOutcome", "SetterReading", "run_setter"]

# Everything that a setter may call. It makes lists and sets attributes; with these it cannot open a file or a module.
_BUILTINS: dict[str, Any] = {
    known.__name__: known
    for known in (
        *(AttributeError, IndexError, RuntimeError, TypeError, ValueError),
        *(all, any, enumerate, getattr, hasattr, isinstance, len, max, min, range, reversed, setattr, sorted, sum, zip),
        *(bool, dict, int, list, set, str, tuple),
    )
}


@dataclass(frozen=True)
class CaptureOutcome:
    """The result of asking a class for layer ids.

    Attributes:
        boundaries: The boundary of each captured tensor, in order, `None` for one that is not any boundary's; `None` as
            a whole if `error` kept it from capturing.
        error: The error, one line; `None` if there was none.
    """

    boundaries: tuple[int | None, ...] | None
    error: str | None = None

    def __str__(self) -> str:
        if self.boundaries is None:
            return f"raises {self.error}"
        return states_text(self.boundaries)


@dataclass(frozen=True)
class SetterReading:
    """One run of a class' setter.

    Attributes:
        outcome: The boundaries that would be captured.
        sets: The marks that it left on the decoder: `layers_to_capture`, `_is_layer_to_capture`, both or neither.
        decoder: The decoder's file and class, the last that the setters passed on to; `None` if none was reached.
        loop: How that decoder's forward captures.
        not_followed: Why the run does not have an outcome; `None` if it has one.
    """

    outcome: CaptureOutcome | None
    sets: tuple[str, ...] = ()
    decoder: str | None = None
    loop: CaptureLoop | None = None
    not_followed: str | None = None

    @property
    def same_mechanism(self) -> bool:
        """Whether the forward tests a mark that the setter set; if not, it captures nothing."""
        return self.loop is not None and any(name in self.sets for name in self.loop.tests)


class _NotFollowedError(Exception):
    """The setter needs an object that cannot be stood in for."""


class _Anything:
    """Stand-in for a name that the setter takes from its module: every attribute and result is itself, and true."""

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_args: object, **_kwargs: object) -> _Anything:
        return self


class _StandInLayer:
    """Stand-in for a decoder block: accepts flags."""


class _StandInConfig:
    """Stand-in for a target's config: N layers, also in its text config."""

    def __init__(self, num_layers: int) -> None:
        self.num_hidden_layers = num_layers

    @property
    def text_config(self) -> _StandInConfig:
        return self


class _StandIn:
    """Stand-in for an object of a model class: its methods are the class' own code, its parts are stand-ins."""

    def __init__(self, sources: SglangSources, cls: ModelClass, num_layers: int) -> None:
        self._sources, self._cls, self._num_layers = sources, cls, num_layers
        self.config = _StandInConfig(num_layers)
        self.pp_group = _Anything()
        self.layers = [_StandInLayer() for _ in range(num_layers)]

    def __getattr__(self, name: str) -> Any:
        # Python calls this only for an attribute that the object does not have yet.
        if name.startswith("__"):
            raise AttributeError(name)
        found = self._sources.find_method(self._cls, name)
        if found is not None:
            return types.MethodType(_compile(*found), self)
        part = _part(self._sources, self._cls, name)
        if part is None:
            raise AttributeError(f"{self._cls.name} does not have {name}")
        made = _StandIn(self._sources, part, self._num_layers)
        setattr(self, name, made)
        return made

    def parts(self) -> list[_StandIn]:
        """Return this stand-in and those that were reached through it."""
        own = [value for value in vars(self).values() if isinstance(value, _StandIn)]
        return [self, *(part for value in own for part in value.parts())]


def _compile(owner: ModelClass, method: ast.FunctionDef) -> types.FunctionType:
    """Return a method's own code as a function; names of its module are stand-ins with every attribute."""
    bare = copy.deepcopy(method)
    bare.decorator_list, bare.returns = [], None
    for argument in [*bare.args.posonlyargs, *bare.args.args, *bare.args.kwonlyargs]:
        argument.annotation = None
    names = {node.id for node in ast.walk(bare) if isinstance(node, ast.Name)}
    space: dict[str, Any] = {name: _Anything() for name in names if name not in _BUILTINS}
    space["__builtins__"] = _BUILTINS
    module = ast.fix_missing_locations(ast.Module([bare], type_ignores=[]))
    exec(compile(module, f"{owner.module}.py", "exec"), space)  # noqa: S102 - a release's own setter, with no way out
    function: types.FunctionType = space[method.name]
    return function


def _part(sources: SglangSources, cls: ModelClass, name: str) -> ModelClass | None:
    """Return the class of the object that a class' constructors put under `self.name`, `None` if they put none there.

    Raises:
        _NotFollowedError: The object's class is not in the model files.
    """
    lineage = sources.lineage(cls)
    unknown: str | None = None
    for entry in lineage:
        constructor = entry.method("__init__")
        if constructor is None:
            continue
        for node in ast.walk(constructor):
            value = _assigned(node, name)
            if not isinstance(value, ast.Call):
                continue
            made = _callee(sources, lineage, entry, value.func)
            if made is not None:
                return made
            unknown = ast.unparse(value.func)
    if unknown is not None:
        raise _NotFollowedError(f"{cls.name}.{name} is made by {unknown}, which is not a class of SGLang's model files")
    return None


def _assigned(node: ast.AST, name: str) -> ast.expr | None:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        if isinstance(target, ast.Attribute) and target.attr == name and _is_self(target.value):
            return node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    return None


def _is_self(node: ast.AST) -> bool:
    return _is_name(node, "self")


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _callee(
    sources: SglangSources, lineage: Sequence[ModelClass], owner: ModelClass, callee: ast.expr
) -> ModelClass | None:
    """Return the class that a constructor calls: by name, by a parameter's default or by an attribute of the class."""
    if isinstance(callee, ast.Name):
        return _parameter(sources, lineage, callee.id) or sources.find_class(owner.module, callee.id)
    if isinstance(callee, ast.Attribute) and _is_self(callee.value):
        method = sources.find_method(lineage[0], callee.attr)
        if method is not None:
            return _returned(sources, *method)
        for entry in lineage:
            for node in entry.node.body:
                if isinstance(node, ast.Assign) and any(_is_name(target, callee.attr) for target in node.targets):
                    return sources.resolve(entry.module, node.value)
    return None


def _returned(sources: SglangSources, owner: ModelClass, method: ast.FunctionDef) -> ModelClass | None:
    """Return the class of the object that a method makes and returns."""
    for node in ast.walk(method):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            return sources.resolve(owner.module, node.value.func)
    return None


def _parameter(sources: SglangSources, lineage: Sequence[ModelClass], name: str) -> ModelClass | None:
    """Return the class that is a constructor parameter's default, the most derived constructor's first."""
    for entry in lineage:
        constructor = entry.method("__init__")
        if constructor is None:
            continue
        arguments = constructor.args.args
        defaults = dict(zip(reversed(arguments), reversed(constructor.args.defaults), strict=False))
        for argument, default in defaults.items():
            if argument.arg == name:
                return sources.resolve(entry.module, default)
    return None


def run_setter(sources: SglangSources, cls: ModelClass, ids: Sequence[int] | None, num_layers: int) -> SetterReading:
    """Run a class' setter on stand-ins for a target of `num_layers` blocks.

    Args:
        sources: The release.
        cls: A class of the release that has the setter.
        ids: The layer ids asked for, `None` for SGLang's default.
        num_layers: The number of blocks, N.
    """
    stand_in = _StandIn(sources, cls, num_layers)
    error: str | None = None
    try:
        getattr(stand_in, SETTER)(None if ids is None else list(ids))
    except _NotFollowedError as problem:
        return SetterReading(None, not_followed=str(problem))
    except Exception as problem:  # noqa: BLE001 - whatever a setter raises is what SGLang would raise
        error = f"{type(problem).__name__} in the setter: {problem}"
    decoders = [part for part in stand_in.parts() if _sets(part)]
    if not decoders:
        if error is not None:
            return SetterReading(CaptureOutcome(None, error))
        return SetterReading(None, not_followed=f"{cls.name}'s setter leaves neither {LIST} nor {FLAG} on anything")
    decoder = decoders[-1]
    sets, owner = _sets(decoder), decoder._cls
    loop = read_loop(sources, owner)
    named = f"{owner.module}.py: {owner.name}"
    if error is not None:
        return SetterReading(CaptureOutcome(None, error), sets, named, loop)
    if loop is None:
        return SetterReading(None, sets, named, None, f"the forward of {named} is not in the model files")
    listed = vars(decoder).get(LIST)
    flagged = {index for index, layer in enumerate(decoder.layers) if getattr(layer, FLAG, False)}
    captured = loop.captured(num_layers, None if listed is None else list(listed), flagged)
    if captured is None:
        why = f"in the forward, asked to capture {list(listed or ())}"
        return SetterReading(CaptureOutcome(None, why), sets, named, loop)
    return SetterReading(CaptureOutcome(captured), sets, named, loop)


def _sets(part: _StandIn) -> tuple[str, ...]:
    """Return the marks that a setter left on a stand-in."""
    marks = ((LIST, LIST in vars(part)), (FLAG, any(vars(layer) for layer in part.layers)))
    return tuple(name for name, found in marks if found)
