"""Two routes on two ports, a router over them, and what both gateways and the one span tell of a call."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trustme

import stallwatch
from stallwatch.testing import Done, EmptyDelta, FaultGateway, Finish, Role, Token
from support import leaks
from support.bounds import LIMITS
from support.drivers import DRIVERS, MESSAGES, Driver
from support.stage import Stage
from support.telemetry import Captured, instrumented

Route = stallwatch.Route


@pytest.fixture(scope="session", autouse=True)
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[trustme.CA]:
    """The only authority the clients trust; to load all the world's takes 50 ms for each of the many clients."""
    made = trustme.CA()
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    made.cert_pem.write_to_path(str(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield made


@pytest.fixture(scope="session", autouse=True)
def warm(authority: trustme.CA) -> None:
    """Load what the SDK loads on first use, so that no story measures it."""
    with FaultGateway() as gateway, instrumented():
        gateway.script(
            "m", [Role(), EmptyDelta("no_choices"), EmptyDelta("empty"), Token("Hel"), Finish(), Done()]
        )
        for driver in DRIVERS:
            for api in ("chat", "responses"):
                driver.tell(gateway.base_url, "m", api=api)


@pytest.fixture(scope="session", autouse=True)
def helper_thread_ends(warm: None) -> Iterator[None]:
    """Once for all stories, because it takes about two seconds: the helper thread ends itself."""
    yield
    leaks.sweeper_has_ended()


@pytest.fixture(autouse=True)
def leaves_nothing(warm: None) -> Iterator[None]:
    with leaks.leaves_nothing():
        yield


@pytest.fixture(autouse=True)
def says_nothing(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing goes to stderr, and nothing is logged that a host would see."""
    yield
    assert capfd.readouterr().err == ""
    noise = [record for record in caplog.get_records("call") if record.levelno >= logging.WARNING]
    assert not noise, noise


@pytest.fixture(autouse=True)
def quick_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallwatch.core.budget.FIRST_BACK_OFF", 0.05)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.05)


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.kind)
def driver(request: pytest.FixtureRequest) -> Driver:
    chosen: Driver = request.param
    return chosen


@pytest.fixture
def captured() -> Iterator[Captured]:
    """Telemetry of an instrumented SDK with the usual limits."""
    with instrumented(**LIMITS) as telemetry:
        yield telemetry


@pytest.fixture
def guarded() -> Any:
    """Instrument with the usual limits, some of them changed."""
    return lambda **changes: instrumented(**{**LIMITS, **changes})


class Scene:
    """Two gateways; the routes are called ``m1`` and ``m2``, after the models that each is asked for."""

    def __init__(self, first: FaultGateway, second: FaultGateway) -> None:
        self.gateways = (first, second)
        self.first, self.second = first, second

    def script(self, first: Sequence[Any] | str, second: Sequence[Any] | str) -> None:
        """Let each route play these steps, on every request."""
        self.first.script("m1", first)
        self.second.script("m2", second)

    @asynccontextmanager
    async def router(
        self,
        stage: Stage,
        *,
        urls: Sequence[str] | None = None,
        routes: int = 2,
        options: dict[str, Any] | None = None,
        route: Sequence[dict[str, Any]] = ({}, {}),
        **settings: Any,
    ) -> AsyncGenerator[Any]:
        """Make a router with a client for each route; ``route`` holds further arguments of each."""
        where = urls or [gateway.base_url for gateway in self.gateways]
        async with AsyncExitStack() as stack:
            made = []
            for number in range(routes):
                client = await stack.enter_async_context(
                    stage.inside(stage.client(where[number], **(options or {})))
                )
                arguments: dict[str, Any] = {"model": f"m{number + 1}", **route[number]}
                made.append(Route(client=client, **arguments))
            kind = stallwatch.AsyncRouter if stage.is_async else stallwatch.Router
            yield kind(made, **settings)

    async def ask(self, stage: Stage, router: Any, api: str = "chat", **request: Any) -> Any:
        """Make a call that streams unless told otherwise."""
        asked = {"stream": True, **request}
        if api == "chat":
            return await stage.of(router.chat.completions.create(**{"messages": MESSAGES, **asked}))
        return await stage.of(
            router.responses.create(**{"input": "Tell me a story.", "store": False, **asked})
        )

    @property
    def asked(self) -> tuple[int, int]:
        """How many requests each gateway has got."""
        return len(self.first.ledger().requests), len(self.second.ledger().requests)

    async def until(self, stage: Stage, gateway: FaultGateway, condition: Callable[[Any], Any]) -> None:
        """Wait until the condition holds for the gateway's ledger."""
        await stage.of((gateway.wait_for_async if stage.is_async else gateway.wait_for)(condition))


@pytest.fixture
def scene() -> Iterator[Scene]:
    with FaultGateway() as first, FaultGateway() as second:
        yield Scene(first, second)


@pytest.fixture
def attempts() -> Callable[[Captured], list[dict[str, Any]]]:
    """The attempt events of the one span, by number, without the part of their names that is common."""

    def read(captured: Captured) -> list[dict[str, Any]]:
        found = [
            {name.removeprefix("stallwatch."): value for name, value in (event.attributes or {}).items()}
            for event in captured.span.events
            if event.name == "stallwatch.attempt"
        ]
        return sorted(found, key=lambda attempt: attempt["attempt.number"])

    return read


@pytest.fixture
def meanwhile() -> Callable[..., Any]:
    """Do something in another thread or task when a condition holds, while the story goes on."""

    @asynccontextmanager
    async def run(
        stage: Stage, gateway: FaultGateway, condition: Callable[[Any], Any], act: Callable[[], object]
    ) -> AsyncGenerator[None]:
        if stage.is_async:

            async def wait_async() -> None:
                await gateway.wait_for_async(condition)
                act()

            task = asyncio.create_task(wait_async())
            yield
            await task
            return

        def wait() -> None:
            gateway.wait_for(condition)
            act()

        thread = threading.Thread(target=wait)
        thread.start()
        try:
            yield
        finally:
            thread.join()

    return run
