"""How a decoder's forward captures, read from its syntax tree.

The setter says which layers are meant; the forward's loop over layers decides whether anything is captured.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from harness.facts.reading.sources import ModelClass, SglangSources

__all__ = ["FLAG", "LIST", "CaptureLoop", "read_loop"]

LIST = "layers_to_capture"
FLAG = "_is_layer_to_capture"


@dataclass(frozen=True)
class CaptureLoop:
    """How a forward decides what to capture.

    Attributes:
        source: Its file and class.
        tests_list: Whether the loop tests if a layer's index is in `layers_to_capture`.
        tests_flags: Whether it tests the flag `_is_layer_to_capture` of the layer.
        after_last: Whether the forward tests the list for N once more after the loop.
        counted: Whether it counts the captured tensors against the list, and raises if the counts differ.
        embedding_raises: Whether it adds the residual unconditionally, which fails at boundary 0, before the first one.
        without_residual: Whether the loop keeps a residual stream that the captured tensors leave out.
    """

    source: str
    tests_list: bool
    tests_flags: bool
    after_last: bool
    counted: bool
    embedding_raises: bool
    without_residual: bool

    @property
    def tests(self) -> tuple[str, ...]:
        """The marks that the loop tests: `layers_to_capture`, `_is_layer_to_capture`, both or neither."""
        return tuple(name for name, tested in ((LIST, self.tests_list), (FLAG, self.tests_flags)) if tested)

    def captured(self, num_layers: int, listed: list[int] | None, flagged: set[int]) -> tuple[int | None, ...] | None:
        """Return the boundaries that a forward captures, ascending; `None` as a whole if it raises instead.

        A state without its residual is not any boundary's, and is `None`; the embedding does not have a residual yet.

        Args:
            num_layers: The decoder's number of blocks, N.
            listed: `layers_to_capture` as the setter left it.
            flagged: The layers on which it set the flag.
        """
        asked = set(listed or ())
        found = [
            index
            for index in range(num_layers)
            if (self.tests_list and index in asked) or (self.tests_flags and index in flagged)
        ]
        if 0 in found and self.embedding_raises:
            return None
        if self.after_last and num_layers in asked:
            found.append(num_layers)
        if self.counted and len(found) != len(listed or ()):
            return None
        return tuple(None if index and self.without_residual else index for index in found)


def read_loop(sources: SglangSources, decoder: ModelClass) -> CaptureLoop | None:
    """Return how a decoder's forward captures, `None` if its forward is not in the model files."""
    lineage = [entry for entry in sources.lineage(decoder) if entry.method("forward") is not None]
    # A forward that only calls its base's does not capture anything itself.
    while len(lineage) > 1 and _calls_super(_forward(lineage[0])):
        del lineage[0]
    if not lineage:
        return None
    owner, forward = lineage[0], _forward(lineage[0])
    loops = [node for node in ast.walk(forward) if isinstance(node, ast.For)]
    inside = {id(node) for loop in loops for node in ast.walk(loop)}
    list_tests = [node for node in ast.walk(forward) if _tests_list(node)]
    captures = [
        node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.If) and _tests_list(node.test)
    ]
    return CaptureLoop(
        source=f"{owner.module}.py: {owner.name}",
        tests_list=any(id(node) in inside for node in list_tests),
        tests_flags=any(_tests_flag(node) for loop in loops for node in ast.walk(loop)),
        after_last=any(id(node) not in inside for node in list_tests),
        counted=any(_named(node, "AuxHiddenStatePacker") for node in ast.walk(forward)),
        embedding_raises=any(_adds_residual(node) for capture in captures for node in capture.body),
        without_residual=any(_leaves_residual_out(node) for node in captures)
        and any(_carries_residual(loop) for loop in loops),
    )


def _forward(cls: ModelClass) -> ast.FunctionDef:
    forward = cls.method("forward")
    assert forward is not None
    return forward


def _calls_super(forward: ast.FunctionDef) -> bool:
    """Whether a forward calls `super().forward(…)`."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "forward"
        and isinstance(node.value, ast.Call)
        and _named(node.value.func, "super")
        for node in ast.walk(forward)
    )


def _tests_list(node: ast.AST) -> bool:
    """Whether a node is `… in self.layers_to_capture`."""
    return (
        isinstance(node, ast.Compare)
        and any(isinstance(operator, ast.In) for operator in node.ops)
        and any(isinstance(side, ast.Attribute) and side.attr == LIST for side in node.comparators)
    )


def _tests_flag(node: ast.AST) -> bool:
    """Whether a node reads the flag, as an attribute or by `getattr`."""
    if isinstance(node, ast.Attribute):
        return node.attr == FLAG and isinstance(node.ctx, ast.Load)
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and any(isinstance(argument, ast.Constant) and argument.value == FLAG for argument in node.args)
    )


def _named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _adds_residual(node: ast.AST) -> bool:
    """Whether a statement adds `residual` without testing whether there is one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _named(node.right, "residual"):
        return True
    return any(_adds_residual(child) for child in _unconditional(node))


def _unconditional(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node's children, except those that depend on a test of the residual."""
    if isinstance(node, ast.IfExp | ast.If) and any(_named(part, "residual") for part in ast.walk(node.test)):
        return
    yield from ast.iter_child_nodes(node)


def _leaves_residual_out(capture: ast.If) -> bool:
    """Whether a capture appends plain names only and does not mention the residual, nor calls what might add it."""
    parts = [part for statement in capture.body for part in ast.walk(statement)]
    appended = [part for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)]
    plain = [part for part in appended if all(isinstance(argument, ast.Name) for argument in part.args)]
    return bool(plain) and len(plain) == len(appended) and not any(_named(part, "residual") for part in parts)


def _carries_residual(loop: ast.For) -> bool:
    """Whether the loop takes a residual from one layer to the next: `hidden_states, residual = layer(…)`."""
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and any(
            isinstance(target, ast.Tuple) and any(_named(part, "residual") for part in target.elts)
            for target in node.targets
        )
        for node in ast.walk(loop)
    )
