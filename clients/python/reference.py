"""Writes docs/python-reference.md from the docstrings of the package.

python reference.py SOURCES > docs/python-reference.md
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

HEAD = """# Reference of the Python package

<!-- Written by clients/python/reference.py from the docstrings; after a change run: make generate -->

[python.md](python.md) introduces the package. `Client` and the classes that it leads to have the same members as the
asynchronous ones here; they wait where those are awaited, and are used with `with` and `for` in place of `async with`
and `async for`.
"""
MODULES = (
    "client",
    "models",
    "messages",
    "sandboxes",
    "evals",
    "runs",
    "tools",
    "blobs",
    "batches",
    "limits",
    "cache",
    "workers",
    "keys",
    "_error",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def page(sources: Path) -> str:
    """The page about the package in a folder."""
    package = sources / "evalfleet"
    names = _exported(package / "__init__.py")
    parts = [HEAD]
    for module in MODULES:
        body = ast.parse((package / f"{module}.py").read_text()).body
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name in names:
                parts += _class(node)
            elif isinstance(node, Function) and node.name in names:
                parts += [f"## {node.name}", _signature(node), _text(node)]
    parts += [
        "## Exceptions",
        "Each is an `EvalfleetError`, in `evalfleet.exceptions`.",
        "| Exception | Meaning |\n| --- | --- |",
    ]
    for module in ("exceptions", "_reasons"):
        for node in ast.parse((package / f"{module}.py").read_text()).body:
            if isinstance(node, ast.ClassDef):
                parts[-1] += f"\n| `{node.name}` | {_line(ast.get_docstring(node) or '')} |"
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _exported(module: Path) -> set[str]:
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise ValueError(f"{module} has no __all__")


def _class(node: ast.ClassDef) -> list[str]:
    parts = [f"## {node.name}"]
    methods = [item for item in node.body if isinstance(item, Function)]
    parts += [_signature(method, node.name) for method in methods if method.name == "__init__"]
    parts.append(_text(node))
    members = [f"- `{name}`: {text}" for name, text in _attributes(node)]
    for method in methods:
        if any(ast.unparse(decorator) == "property" for decorator in method.decorator_list):
            returns = f" ({ast.unparse(method.returns)})" if method.returns else ""
            members.append(f"- `{method.name}`{returns}: {_line(ast.get_docstring(method) or '')}")
    if members:
        parts.append("\n".join(members))
    for method in methods:
        if not method.name.startswith("_") and not method.decorator_list:
            parts += [f"### {node.name}.{method.name}", _signature(method), _text(method)]
    return parts


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Attributes with a docstring below them, of the class and of its instances."""
    bodies = [node.body, *(item.body for item in node.body if isinstance(item, Function) and item.name == "__init__")]
    for body in bodies:
        for item, following in pairwise(body):
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                target: ast.expr | None = item.target if isinstance(item, ast.AnnAssign) else None
                if isinstance(item, ast.Assign):
                    target = item.targets[0]
                if target is not None and isinstance(following.value.value, str):
                    yield ast.unparse(target).removeprefix("self."), _line(following.value.value)


def _signature(node: Function, name: str = "") -> str:
    word = "" if name else "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and not name else ""
    parameters = _parameters(node.args)
    text = f"{word}{name or node.name}({', '.join(parameters)}){returns}"
    if len(text) > 100:
        lines = "".join(f"    {parameter},\n" for parameter in parameters)
        text = f"{word}{name or node.name}(\n{lines}){returns}"
    return f"```python\n{text}\n```"


def _parameters(arguments: ast.arguments) -> list[str]:
    positional = [argument for argument in arguments.args if argument.arg != "self"]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    found = [_parameter(argument, default) for argument, default in zip(positional, defaults, strict=True)]
    if arguments.kwonlyargs:
        found.append("*")
    found += [_parameter(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return found + ([f"**{ast.unparse(arguments.kwarg)}"] if arguments.kwarg else [])


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")


def _text(node: ast.ClassDef | Function) -> str:
    """A docstring as Markdown: the arguments are a list, and indented lines are programs."""
    text, _, arguments = (ast.get_docstring(node) or "").partition("\nArgs:\n")
    text = re.sub(r"((?:^    .*\n?|^\n)+)", _program, text + "\n", flags=re.MULTILINE)
    items = re.sub(r"\n {8}", " ", arguments)
    items = re.sub(r"^    (\w+): ", r"- `\1`: ", items, flags=re.MULTILINE)
    return f"{text.strip()}\n\n{items.strip()}".strip()


def _program(found: re.Match[str]) -> str:
    lines = found[1].strip("\n")
    if not lines.strip():
        return found[0]
    plain = "\n".join(line.removeprefix("    ") for line in lines.splitlines())
    return f"\n```python\n{plain}\n```\n\n"


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1])))
