"""What a program can ask of an object without using it, as plain data."""

from __future__ import annotations

import copy
import inspect
import pickle
import weakref
from collections.abc import Callable
from typing import Any

from surfaces.observed import steady

__all__ = ["told_of"]


def _tried(ask: Callable[[], Any]) -> str:
    try:
        answer = ask()
    except Exception as error:
        return steady(f"raises {type(error).__name__}: {error}")
    return steady(answer if isinstance(answer, str) else repr(answer))


def _class(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def told_of(thing: Any) -> dict[str, str]:
    """Return all that can be asked, by question."""
    questions: dict[str, Callable[[], Any]] = {
        "type": lambda: _class(thing),
        "__class__": lambda: f"{thing.__class__.__module__}.{thing.__class__.__qualname__}",
        "mro": lambda: [each.__qualname__ for each in type(thing).__mro__],
        "dir": lambda: sorted(dir(thing)),
        "vars": lambda: sorted(vars(thing)),
        "extensions": lambda: sorted(thing.extensions),
        "signature": lambda: str(inspect.signature(thing)),
        "source": lambda: inspect.getsource(thing),
        "file": lambda: inspect.getfile(thing),
        "doc": lambda: thing.__doc__,
        "module": lambda: thing.__module__,
        "qualname": lambda: thing.__qualname__,
        "name": lambda: thing.__name__,
        "annotations": lambda: thing.__annotations__,
        "defaults": lambda: (thing.__defaults__, thing.__kwdefaults__),
        "repr": lambda: repr(thing),
        "str": lambda: str(thing),
        "callable": lambda: callable(thing),
        "truth": lambda: bool(thing),
        "length": lambda: len(thing),
        "coroutine function": lambda: inspect.iscoroutinefunction(thing),
        "generator function": lambda: inspect.isgeneratorfunction(thing),
        "async generator function": lambda: inspect.isasyncgenfunction(thing),
        "generator": lambda: inspect.isgenerator(thing),
        "async generator": lambda: inspect.isasyncgen(thing),
        "awaitable": lambda: inspect.isawaitable(thing),
        "method": lambda: inspect.ismethod(thing),
        "function": lambda: inspect.isfunction(thing),
        "routine": lambda: inspect.isroutine(thing),
        "hash": lambda: hash(thing) == hash(thing),
        "equal to itself": lambda: thing == thing,  # noqa: PLR0124 - the question
        "equal to another": lambda: thing == object(),
        "weakref": lambda: weakref.ref(thing)() is thing or "another",
        "pickle": lambda: _class(pickle.loads(pickle.dumps(thing))),
        "copy": lambda: _class(copy.copy(thing)),
        "deepcopy": lambda: _class(copy.deepcopy(thing)),
        "iterable": lambda: (hasattr(thing, "__iter__"), hasattr(thing, "__aiter__")),
        "iterator": lambda: (hasattr(thing, "__next__"), hasattr(thing, "__anext__")),
        "manager": lambda: (hasattr(thing, "__enter__"), hasattr(thing, "__aenter__")),
        "closing": lambda: (hasattr(thing, "close"), hasattr(thing, "aclose")),
        "unwrapped": lambda: inspect.unwrap(thing) is thing,
    }
    told = {question: _tried(ask) for question, ask in questions.items()}
    for name, value in getattr(thing, "__dict__", {}).items():
        told[f"class of .{name}"] = _class(value)
    return told
