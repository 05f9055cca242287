"""Other tools hold the SDK's ``request`` themselves: whoever came first, every call is guarded, inside of theirs."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import sys
import weakref
from collections.abc import Callable
from functools import partial, wraps
from types import FunctionType, ModuleType
from typing import Any

import openai
import openai._base_client as base
import pytest
from wrapt import wrap_function_wrapper

import stallwatch
from stallwatch.sdk.grafting import graft
from support.drivers import DRIVERS, Driver
from support.places import Place
from support.stage import Stage, play
from support.telemetry import Captured

CLASSES = {"sync": openai.OpenAI, "async": openai.AsyncOpenAI}
BASES = {"sync": base.SyncAPIClient, "async": base.AsyncAPIClient}
GUARDS = ("SyncGuard", "AsyncGuard")


class Tool:
    """Wraps ``request`` of a subclass and keeps what it found there, as the tools of this kind do."""

    def __init__(self, driver: Driver, client: Any) -> None:
        self.owner: Any = client if type(self).on_the_client else CLASSES[driver.kind]
        self.seen: list[str] = []

    on_the_client = False

    def come(self) -> None:
        raise NotImplementedError

    def go(self) -> None:
        self.owner.request = self.found

    def __call__(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        self.seen.append(type(instance).__name__)
        return wrapped(*args, **kwargs)


class Wrapt(Tool):
    """Leaves what it found on the subclass when it goes, where there was nothing before."""

    def come(self) -> None:
        self.found = self.owner.request
        wrap_function_wrapper("openai", f"{self.owner.__name__}.request", self)


class Closure(Tool):
    """A plain function around the one that was found, with its name and module."""

    def come(self) -> None:
        self.found = self.owner.request
        found = self.found

        @wraps(found)
        def request(*args: Any, **kwargs: Any) -> Any:
            return self(found, args[0], args, kwargs)

        self.owner.request = request


class OnTheClient(Closure):
    """The same on one client."""

    on_the_client = True


@pytest.fixture(autouse=True)
def restored() -> Any:
    before = {owner: dict(vars(owner)) for owner in CLASSES.values()}
    yield
    for owner, attributes in before.items():
        if "request" in vars(owner) and "request" not in attributes:
            delattr(owner, "request")
    assert all("request" not in vars(owner) for owner in CLASSES.values())


class Ours:
    """stallwatch, coming and going."""

    def __init__(self) -> None:
        self.captured = Captured()

    def come(self) -> None:
        stallwatch.OpenAIInstrumentor().instrument(
            tracer_provider=self.captured.tracer_provider,
            meter_provider=self.captured.meter_provider,
            skip_dep_check=True,
        )

    def go(self) -> None:
        stallwatch.OpenAIInstrumentor().uninstrument()


ORDERS = [
    order
    for order in itertools.permutations(["ours+", "theirs+", "ours-", "theirs-", "ours+"])
    if order.index("theirs+") < order.index("theirs-")
    and [step for step in order if step.startswith("ours")] == ["ours+", "ours-", "ours+"]
]


@pytest.mark.parametrize("tool", [Wrapt, Closure, OnTheClient])
@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.kind)
def test_in_every_order_calls_are_guarded_while_instrumented_and_bare_otherwise(
    plain: Place, driver: Driver, tool: type[Tool]
) -> None:
    async def story(stage: Stage) -> None:
        async with stage.inside(stage.client(plain.base_url)) as client:
            for order in sorted(set(ORDERS)):
                await go_through(stage, client, tool(driver, client), order)

    play(driver, story)


async def go_through(stage: Stage, client: Any, theirs: Tool, order: tuple[str, ...]) -> None:
    ours = Ours()
    steps: dict[str, Callable[[], None]] = {
        "ours+": ours.come,
        "ours-": ours.go,
        "theirs+": theirs.come,
        "theirs-": theirs.go,
    }
    present = {"ours": False, "theirs": False}
    try:
        for number, step in enumerate(order):
            steps[step]()
            present[step[:-1]] = step.endswith("+")
            spans, seen = len(ours.captured.spans), len(theirs.seen)
            stream = await stage.chat(client, "healthy:tokens=1,gap=0")
            assert (type(stream._iterator).__name__ in GUARDS) is present["ours"], order[: number + 1]
            assert len(await stage.all(stream)) == 3
            assert len(ours.captured.spans) - spans == present["ours"]
            assert len(theirs.seen) - seen == present["theirs"]
    finally:
        ours.go()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_function_is_the_same_object_and_tells_the_same_of_itself(kind: str) -> None:
    function = BASES[kind].__dict__["request"]
    signature, code, attributes = inspect.signature(function), function.__code__, dict(vars(function))
    ours = Ours()
    ours.come()
    try:
        assert BASES[kind].__dict__["request"] is function
        assert function.__code__ is not code
        assert inspect.signature(function) == signature
        assert inspect.iscoroutinefunction(function) is (kind == "async")
        assert (function.__code__.co_name, function.__code__.co_qualname) == (code.co_name, code.co_qualname)
    finally:
        ours.go()
    assert function.__code__ is code
    assert vars(function) == attributes


def _module(source: str) -> ModuleType:
    module = ModuleType("made")
    exec(source, vars(module))
    return module


def _doubled(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    return "ours", wrapped(*args, **kwargs)


def test_what_is_no_plain_function_of_the_module_is_left_alone() -> None:
    module = _module(
        "def of(x):\n    def f(self): return x\n    return f\nclosed = of(1)\ndef plain(self): return 1"
    )
    assert graft(None, module, _doubled) is None
    assert graft(partial(print), module, _doubled) is None
    assert graft(lambda self: 1, module, _doubled) is None
    assert graft(module.closed, module, _doubled) is None
    assert module.closed(0) == 1


def test_a_graft_below_another_that_has_changed_the_same_function_passes_through_for_good() -> None:
    module = _module("def plain(self, a, *, b=2): return a, b")
    lower = graft(module.plain, module, _doubled)
    upper = graft(module.plain, module, lambda wrapped, _, args, kwargs: ("other", wrapped(*args, **kwargs)))
    assert lower is not None
    assert upper is not None
    assert module.plain(0, 1) == ("other", ("ours", (1, 2)))
    lower.remove()
    assert module.plain(0, 1, b=3) == ("other", (1, 3))
    again = graft(module.plain, module, _doubled)
    assert again is not None
    assert module.plain(0, 1) == ("ours", ("other", (1, 2)))
    again.remove()
    upper.remove()
    assert module.plain(0, 1) == (1, 2)


def test_a_call_without_its_instance_fails_as_it_does_without_us() -> None:
    module = _module("def plain(self): return 1")
    made = graft(module.plain, module, _doubled)
    assert made is not None
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'self'"):
        module.plain()
    made.remove()


async def _doubled_async(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    return "ours", await wrapped(*args, **kwargs)


def test_calls_need_nothing_that_a_program_may_load_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reloaders and test suites drop modules, this one included, while the SDK's functions are changed."""
    module = _module("def plain(self): return 1\nasync def awaited(self): return 2")
    made = [graft(module.plain, module, _doubled), graft(module.awaited, module, _doubled_async)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "stallwatch"]:
        monkeypatch.delitem(sys.modules, name)
    assert module.plain(0) == ("ours", 1)
    assert asyncio.run(module.awaited(0)) == ("ours", 2)
    for each in made:
        assert each is not None
        each.remove()
    assert module.plain(0) == 1
    assert asyncio.run(module.awaited(0)) == 2


def test_a_graft_is_freed_when_nobody_can_call_it_any_more() -> None:
    module = _module("def plain(self): return 1")
    made = graft(module.plain, module, _doubled)
    assert made is not None
    held, stand_in = weakref.ref(made), weakref.ref(module.plain.__code__)
    copied = FunctionType(module.plain.__code__, vars(module))
    made.remove()
    del made
    gc.collect()
    assert held() is not None
    assert copied(0) == 1
    del copied
    gc.collect()
    assert held() is None
    assert stand_in() is None
