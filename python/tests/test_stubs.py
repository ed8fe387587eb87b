"""The type stubs have the names, arguments and defaults of the extension module, and everything has a docstring."""

import ast
import inspect
from pathlib import Path

import pytest

from fewshot import _fewshot, heads

STUBS = ast.parse(Path(_fewshot.__file__).with_name("_fewshot.pyi").read_text())
PUBLIC = {name for name in dir(_fewshot) if not name.startswith("_")}
CLASSES = [node for node in STUBS.body if isinstance(node, ast.ClassDef)]
FUNCTIONS = [node for node in STUBS.body if isinstance(node, ast.FunctionDef)]


def arguments(node):
    """Names and defaults, without the instance or class."""
    given, keywords = node.args.args, node.args.kwonlyargs
    defaults = [None] * (len(given) - len(node.args.defaults)) + node.args.defaults
    pairs = list(zip(given, defaults)) + list(zip(keywords, node.args.kw_defaults))
    values = ((one.arg, ast.literal_eval(default) if default else inspect.Parameter.empty) for one, default in pairs)
    return [pair for pair in values if pair[0] not in ("self", "cls")]


def of_runtime(function):
    parameters = inspect.signature(function).parameters.values()
    return [(one.name, one.default) for one in parameters if one.name != "self"]


def test_the_stubs_have_every_public_name():
    constants = {node.target.id for node in STUBS.body if isinstance(node, ast.AnnAssign)}
    names = {node.name for node in CLASSES + FUNCTIONS} | {name for name in constants if not name.startswith("_")}
    assert names == PUBLIC


@pytest.mark.parametrize("node", FUNCTIONS, ids=lambda node: node.name)
def test_functions_are_as_in_the_stubs(node):
    assert arguments(node) == of_runtime(getattr(_fewshot, node.name))


@pytest.mark.parametrize("node", CLASSES, ids=lambda node: node.name)
def test_classes_are_as_in_the_stubs(node):
    kind = getattr(_fewshot, node.name)
    methods = {one.name: one for one in node.body}
    for name, method in methods.items():
        is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in method.decorator_list)
        if is_property:
            assert inspect.isgetsetdescriptor(getattr(kind, name)), name
        elif name == "__new__":
            assert arguments(method) == of_runtime(kind), name
        elif not name.startswith("_"):
            assert arguments(method) == of_runtime(getattr(kind, name)), name
    assert {name for name in vars(kind) if not name.startswith("_")} == {
        name for name in methods if not name.startswith("_")
    }


def test_everything_has_a_docstring():
    bare = [name for name in PUBLIC - {"METHODS"} if not getattr(_fewshot, name).__doc__]
    for node in CLASSES:
        kind = getattr(_fewshot, node.name)
        bare += [f"{node.name}.{name}" for name in vars(kind) if name[0] != "_" and not getattr(kind, name).__doc__]
    bare += [name for name in heads.__all__ if not getattr(heads, name).__doc__]
    assert not bare
