"""Replacing a method of the SDK from within the function, so that every reference to it is covered.

Other tools wrap ``OpenAI.request`` on a subclass or on one client. Their wrapper holds the function it found, and goes
on holding it: an attribute of the base class that is set afterwards is never looked up again, and every call would go
unguarded. Some put the function they found back as an attribute of the subclass when they let go, with the same
result. So the function itself is changed: its code object gives way to a few lines that ask here. Whoever holds the
function, in whatever order tools came and went, calls them; and every tool that wraps the function is outside, with
its span open, when a run begins. The attribute stays the object it always was.

The code that was there moves to a twin, which is what is called on. Only a plain function of the SDK without free
variables can be changed like this; ``graft`` returns None for anything else.

The stand-in has its graft among its constants, and looks nothing up by name: a program may load this module anew, or
drop it from ``sys.modules``, while the SDK's functions are changed. It also keeps the graft for as long as somebody may
call it, and no longer.
"""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

__all__ = ["Graft", "graft"]

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]

_PLACE = "the place of the graft"


class Graft:
    """A function whose code is replaced; ``wrapper`` is called as ``wrapper(wrapped, instance, args, kwargs)``."""

    def __init__(self, function: FunctionType, wrapper: Wrapper) -> None:
        self.function = function
        self._theirs = function.__code__
        self._twin = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__
        )
        self._twin.__kwdefaults__ = function.__kwdefaults__
        self._twin.__qualname__ = function.__qualname__
        self._wrapper = wrapper
        self._active = True
        ours = _stand_in(function, self.call)
        # Weakly: it holds this, and no collection looks into code.
        self._ours = weakref.ref(ours)
        self._signature = inspect.signature(function)
        _give(function, ours)
        function.__signature__ = self._signature  # type: ignore[attr-defined]

    def remove(self) -> None:
        """Give the function its code back; where another tool has changed it since, ours passes calls through."""
        self._active = False
        if self.function.__code__ is self._ours():
            _give(self.function, self._theirs)
        if vars(self.function).get("__signature__") is self._signature:
            del self.function.__signature__  # type: ignore[attr-defined]

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the wrapper, or the twin alone when the graft has been removed."""
        if not self._active or not args:
            return self._twin(*args, **kwargs)
        instance, *given = args
        return self._wrapper(MethodType(self._twin, instance), instance, tuple(given), kwargs)


def graft(method: Any, module: ModuleType, wrapper: Wrapper) -> Graft | None:
    """Replace the code of the SDK's function under ``method``, which other tools may have wrapped.

    None when no plain function of ``module`` is found there.
    """
    function = method
    while not isinstance(function, FunctionType) or function.__globals__ is not vars(module):
        # A wrapper made with functools.wraps is a function, too, and even names the SDK's module as its own.
        function = getattr(function, "__wrapped__", None)
        if function is None:
            return None
    return None if function.__closure__ else Graft(function, wrapper)


def _give(function: FunctionType, code: CodeType) -> None:
    # Python 3.13 and later warn when a generator's place is taken by a plain function, which is meant here: what it
    # returns is the iterator itself.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        function.__code__ = code


def _stand_in(function: FunctionType, enter: Callable[..., Any]) -> CodeType:
    code = (_asynchronous if inspect.iscoroutinefunction(function) else _synchronous).__code__
    return code.replace(
        co_consts=tuple(enter if constant == _PLACE else constant for constant in code.co_consts),
        co_name=function.__name__,
        co_qualname=function.__qualname__,
    )


# Run with the globals of the SDK's module, so no name of this one is known to them.


def _synchronous(*args: Any, **kwargs: Any) -> Any:
    enter: Any = "the place of the graft"
    return enter(args, kwargs)


async def _asynchronous(*args: Any, **kwargs: Any) -> Any:
    enter: Any = "the place of the graft"
    return await enter(args, kwargs)
