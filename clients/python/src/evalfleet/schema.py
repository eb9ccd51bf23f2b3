"""JSON Schemas of functions, from their signatures and docstrings."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean"}


def describe(
    function: Callable[..., Any], *, skip: int = 0, parameters: Mapping[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    """The description of a function and the schema of its parameters, without the first `skip` of them.

    A schema that is given as `parameters` is used in place of the signature.
    The description is the docstring up to its section `Args:`, which describes the parameters.
    """
    text, about = _docstring(inspect.getdoc(function) or "")
    if parameters is not None:
        return text, dict(parameters)
    hints = typing.get_type_hints(function)
    properties: dict[str, Any] = {}
    required = []
    for parameter in list(inspect.signature(function).parameters.values())[skip:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function.__name__}: parameter {parameter} cannot be described; name each parameter")
        schema = of_type(hints.get(parameter.name, Any))
        if parameter.name in about:
            schema["description"] = about[parameter.name]
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif parameter.default is not None:
            schema["default"] = parameter.default
        properties[parameter.name] = schema
    # A function takes no argument that it does not name.
    return text, {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def of_type(hint: Any) -> dict[str, Any]:
    """The schema of a type: the simple ones, lists, maps, `Literal`, and unions of them."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if hint is type(None):
        return {"type": "null"}
    if origin is Literal:
        kinds = {type(argument) for argument in arguments}
        return {**(of_type(kinds.pop()) if len(kinds) == 1 else {}), "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [of_type(argument) for argument in arguments]}
    if hint is list or origin in (list, Sequence):
        return {"type": "array", "items": of_type(arguments[0]) if arguments else {}}
    if hint is dict or origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": of_type(arguments[1]) if arguments else {}}
    raise TypeError(f"no schema is known for {hint!r}; pass `parameters`, a JSON Schema, in place of it")


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """A docstring's text before `Args:`, and the descriptions of the parameters there."""
    before, _, after = text.partition("\nArgs:\n")
    about: dict[str, str] = {}
    name = None
    for line in after.splitlines():
        if line and not line.startswith(" "):
            break
        if found := re.match(r" {1,4}(\w+)(?: \(.*?\))?: *(.*)", line):
            name = found[1]
            about[name] = found[2]
        elif name and line.strip():
            about[name] += " " + line.strip()
    return " ".join(before.split()), about
