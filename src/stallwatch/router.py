"""One call over several routes: fallback and hedging, with the SDK's own call shape and the SDK's own results.

    router = Router([Route(client=a, model="m1"), Route(client=b, model="m2")])
    router.chat.completions.create(messages=..., stream=True)

What is decided is decided in ``core.hedging``; how a leg is run, read and interrupted is in ``routing``. This module is
what users see: the routes, the settings and the entry points. A streamed call returns once there is progress, because
only then is it known that this route answers; the role and empty chunks before it are kept and come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from stallwatch.core.hedging import HedgeShare, LearnedDelay
from stallwatch.core.words import FailureKind, FailureReason
from stallwatch.durations import Duration
from stallwatch.governing import guard, is_governed
from stallwatch.policy import HedgePolicy, Policy, RetryPolicy
from stallwatch.policy_blocks import policy_of_route
from stallwatch.routing.async_race import AsyncRacer
from stallwatch.routing.call import Call
from stallwatch.routing.side_effects import leaves_traces
from stallwatch.routing.sync_race import Racer

__all__ = ["AsyncRouter", "Route", "Router"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a call may go: a client, the model to ask for there, and what else is different there.

    ``model`` None keeps the call's own. ``overrides`` are further arguments of the call (``temperature=...``,
    ``extra_body={...}``) that this route sets. ``policy`` counts for calls on this route, and beats that of the client.
    ``name`` is what telemetry calls it in a fallback event; by default the model and the host. Raises ValueError.
    """

    client: Any
    model: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    policy: Policy | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not hasattr(self.client, "_client") or not hasattr(self.client, "chat"):
            raise ValueError(
                f"client={type(self.client).__name__} is not allowed: give an OpenAI client object"
            )
        for name in ("model", "name"):
            value: object = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise ValueError(f"{name}={value!r} is not allowed: give a text that is not empty")
        if not isinstance(self.overrides, Mapping):
            raise ValueError(f"overrides={self.overrides!r} is not allowed: give a dict of arguments")
        if "model" in self.overrides:
            raise ValueError("overrides={'model': ...} is not allowed: set the route's model")
        if self.policy is not None and not isinstance(self.policy, Policy):
            raise ValueError(f"policy={self.policy!r} is not allowed: give a Policy, e.g. Policy.of(idle=30)")

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call as this route makes it."""
        model = {} if self.model is None else {"model": self.model}
        return {**given, **model, **self.overrides}

    def title(self, given: Mapping[str, Any]) -> str:
        """Name the route for people."""
        if self.name is not None:
            return self.name
        host = getattr(getattr(self.client, "base_url", None), "host", "?")
        return f"{self.arguments(given).get('model', '?')} at {host}"


_Kind = TypeVar("_Kind", Racer, AsyncRacer)


class _Routed(Generic[_Kind]):
    """What both kinds share: the settings, and the SDK's names."""

    _racer: _Kind
    _is_async: bool

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        hedge: HedgePolicy | Duration | None = None,
        retry: RetryPolicy | int | None = None,
        fall_back_on: Iterable[FailureKind | FailureReason | str] = (),
    ) -> None:
        self.routes = _routes(routes)
        # A bare number can only mean one thing.
        self.hedge = HedgePolicy(delay=hedge) if isinstance(hedge, (int, float, str, timedelta)) else hedge
        self.retry = RetryPolicy(max_retries=retry) if isinstance(retry, int) else retry
        self._check()
        self._eligible = _eligible(fall_back_on)
        for route in self.routes:
            if not is_governed(route.client):
                guard(route.client)
        self._share = None if self.hedge is None else HedgeShare(self.hedge.max_share)
        self._learned: dict[tuple[str, bool], LearnedDelay] = {}
        self.chat = _Chat(self._call)
        self.responses = _Entry(self._call, lambda client: client.responses.create, "responses")

    def _check(self) -> None:
        for route in self.routes:
            if hasattr(route.client, "__aenter__") is not self._is_async:
                wanted = "AsyncOpenAI" if self._is_async else "OpenAI"
                raise ValueError(
                    f"client={type(route.client).__name__} is not allowed here: give an {wanted} client"
                )
        for name, value, kind in (("hedge", self.hedge, HedgePolicy), ("retry", self.retry, RetryPolicy)):
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name}={value!r} is not allowed: give a {kind.__name__}")

    def _leaves_traces(self, api: str, given: Mapping[str, Any]) -> bool:
        """Tell whether what would be asked twice does so."""
        return any(leaves_traces(api, route.arguments(given)) for route in self.routes[:2])

    def _call(self, method: Callable[[Any], Callable[..., Any]], api: str, given: dict[str, Any]) -> Any:
        # What can be read once only would be used up by the first route.
        given = {name: list(value) if isinstance(value, Iterator) else value for name, value in given.items()}

        def send(index: int) -> Any:
            route = self.routes[index]
            with policy_of_route(route.policy or Policy()):
                return method(route.client)(**route.arguments(given))

        async def send_async(index: int) -> Any:
            route = self.routes[index]
            with policy_of_route(route.policy or Policy()):
                return await method(route.client)(**route.arguments(given))

        hedge, retry, learned = self.hedge, self.retry, None
        if hedge is not None and not hedge.side_effects and self._leaves_traces(api, given):
            hedge = None
        delay = hedge.delay if hedge is not None and isinstance(hedge.delay, float) else None
        if hedge is not None and hedge.percentile is not None:
            # What is streamed makes progress with its first token, what is not only with its last.
            key = (api, bool(given.get("stream")))
            learned = self._learned.setdefault(key, LearnedDelay(hedge.percentile))
            delay = learned.delay()
        return self._racer.call(
            Call(
                send_async if self._is_async else send,
                lambda index: self.routes[index].title(given),
                routes=len(self.routes),
                retries=retry.max_retries
                if retry is not None and isinstance(retry.max_retries, int)
                else None,
                eligible=self._eligible,
                delay=delay,
                share=None if hedge is None else self._share,
                learned=learned,
            )
        )


class _Entry:
    """One of the SDK's entry points."""

    def __init__(
        self, call: Callable[..., Any], method: Callable[[Any], Callable[..., Any]], api: str
    ) -> None:
        self._call = call
        self._method = method
        self._api = api

    def create(self, **arguments: Any) -> Any:
        """Make the call on the first route that answers; arguments and result are the SDK's."""
        return self._call(self._method, self._api, arguments)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a router makes create() only: for {name} use a client")


class _Chat:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.completions = _Entry(call, lambda client: client.chat.completions.create, "chat")


class Router(_Routed[Racer]):
    """Makes a call on the first of several routes that answers; ``AsyncRouter`` likewise with ``await``.

    ``router.chat.completions.create(...)`` and ``router.responses.create(...)`` take and return what the SDK's do,
    streamed or not. The next route is asked after a stall, a failure that may be retried, a rate limit or overload, as
    long as there was no progress; ``fall_back_on`` adds kinds and reasons (``"quota"``, ``"auth"``). Each route begins
    with clocks of its own; the total and the user's cancel are the call's. When all have failed, the last route's error
    is raised with those of the earlier ones chained to it. ``retry``: how often a route is tried again before the next
    is asked; by default as often as a policy sets for it, and not at all where none does. ``hedge``: a HedgePolicy, or
    its delay; off by default. Clients that are not governed yet are guarded. Raises ValueError for bad settings.
    """

    _is_async = False
    _racer = Racer()


class AsyncRouter(_Routed[AsyncRacer]):
    """``Router`` for asynchronous clients: ``await router.chat.completions.create(...)``."""

    _is_async = True
    _racer = AsyncRacer()


def _routes(given: object) -> tuple[Route, ...]:
    routes = tuple(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else ()
    if not routes or not all(isinstance(route, Route) for route in routes):
        raise ValueError(f"routes={given!r} is not allowed: give a list of at least one Route")
    return routes


def _eligible(given: object) -> frozenset[FailureKind | FailureReason]:
    allowed = {str(each) for kind in (FailureReason, FailureKind) for each in kind} - {"cancel", "cancelled"}
    items = list(given) if isinstance(given, Iterable) and not isinstance(given, (str, bytes)) else [None]
    for item in items:
        if not isinstance(item, str) or item not in allowed:
            wrong = given if item is None else item
            raise ValueError(
                f"fall_back_on={wrong!r} is not allowed: give a list of {', '.join(sorted(allowed))}"
            )
    return frozenset(each for kind in (FailureReason, FailureKind) for each in kind if each in items)
