"""Writes the schema that the Python package gives a function of one parameter, for each declared type that it reads."""

import dataclasses
import datetime
import enum
import json
import sys
from typing import Any, Literal

from evalfleet.schema import describe

Color = enum.Enum("Color", {"RED": "red", "BLUE": "blue"})
Record = dataclasses.make_dataclass("Record", [("left", str), ("right", int, 0)])

NAMED = {
    "integer": int,
    "number": float,
    "boolean": bool,
    "string": str,
    "any": Any,
    "list": list,
    "lists": list[int],
    "map": dict,
    "date": datetime.date,
    "datetime": datetime.datetime,
    "time": datetime.time,
    "null": None,
    "literal": Literal["a", "b"],
    "enum": Color,
}


class Unread(Exception):
    """A declared type that is not read here."""


def declared(words: str) -> Any:
    if words in NAMED:
        return NAMED[words]
    if words.startswith("list of "):
        return list[declared(words.removeprefix("list of "))]
    if words.startswith("map of "):
        return dict[str, declared(words.removeprefix("map of "))]
    if words.startswith("optional "):
        return declared(words.removeprefix("optional ")) | None
    if words.startswith("set of "):
        return set[declared(words.removeprefix("set of "))]
    if words.startswith("tuple of "):
        return tuple[*map(declared, words.removeprefix("tuple of ").split(" and "))]
    if words.startswith("literal "):
        values = words.removeprefix("literal ").split(", ")
        return Literal[*(int(value) if value.isdigit() else value for value in values)]
    if " or " in words:
        first, *others = map(declared, words.split(" or "))
        for other in others:
            first = first | other
        return first
    if "record" in words or words == "typed map":
        return Record
    raise Unread(words)


def schema(case: dict[str, Any]) -> dict[str, Any]:
    def function(value):
        """Does it.

        Args:
            value: What it takes.
        """

    if "default" in case:
        function.__defaults__ = (case["default"],)
    try:
        function.__annotations__["value"] = declared(case["declared"])
        return {"schema": describe(function)[1]}
    except Unread as error:
        return {"unread": str(error)}
    except TypeError as error:
        return {"refused": str(error)}


json.dump([schema(case) for case in json.load(sys.stdin)], sys.stdout)
