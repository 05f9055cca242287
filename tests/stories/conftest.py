from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from stallwatch.testing import Done, EmptyDelta, FaultGateway, Finish, Role, Token
from support import leaks
from support.bounds import LIMITS
from support.drivers import DRIVERS, Driver
from support.telemetry import Captured, instrumented


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
        # An event of a type the SDK does not know makes it build the validators of all the types it knows.
        gateway.script(
            "m", [Role(), EmptyDelta("no_choices"), EmptyDelta("empty"), Token("Hel"), Finish(), Done()]
        )
        for driver in DRIVERS:
            for api in ("chat", "completions", "responses"):
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


@pytest.fixture
def gateway() -> Iterator[FaultGateway]:
    with FaultGateway() as started:
        yield started


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
