"""Which releases of everything are installed, and whether they are ones that stallwatch is made for."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from stallwatch.cli.doctor.report import Finding, Section, note, ok, problem, warning
from stallwatch.cli.extras import importable
from stallwatch.instrumentor import OpenAIInstrumentor
from stallwatch.version import __version__

__all__ = ["NEWEST_TESTED", "installed", "versions"]

NEWEST_TESTED = {"openai": "3.57.0", "opentelemetry-api": "1.45.2", "wrapt": "2.5.2"}
"""The newest releases that the tests run on."""

_OTEL = (
    "opentelemetry-api",
    "opentelemetry-sdk",
    "opentelemetry-instrumentation",
    "opentelemetry-distro",
    "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry-exporter-otlp-proto-grpc",
)
_LIBRARIES = ("httpx", "httpx2")
_CONCURRENCY = ("uvloop", "trio", "gevent", "eventlet")


def installed(distribution: str) -> str | None:
    """Return the version of an installed distribution."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def versions() -> Section:
    """Look at what is installed."""
    return Section(key="versions", title="Versions", findings=tuple(_findings()))


def _findings() -> Iterator[Finding]:
    yield _stallwatch()
    yield _python()
    yield _system()
    yield _openai()
    yield _http()
    yield from _required()
    yield _telemetry()
    yield _concurrency()


def _stallwatch() -> Finding:
    if installed("stallwatch") is None:
        return warning(
            "stallwatch",
            "stallwatch",
            __version__,
            "pip install it, if a program is to be instrumented without a line of code",
            "imported from a folder, not installed: opentelemetry-instrument does not find it",
            version=__version__,
            installed=False,
        )
    return ok("stallwatch", "stallwatch", __version__, version=__version__, installed=True)


def _python() -> Finding:
    told, kind = platform.python_version(), platform.python_implementation()
    if kind != "CPython":
        return warning(
            "python",
            "Python",
            f"{kind} {told}",
            "use CPython, or try --probe before you rely on it",
            "tested on CPython only",
            version=told,
            implementation=kind,
        )
    return ok("python", "Python", told, version=told, implementation=kind)


def _system() -> Finding:
    system = platform.system()
    if system == "Linux":
        return ok("system", "system", system, system=system)
    return note(
        "system", "system", system, "tested on Linux; --probe shows whether it works here", system=system
    )


def _openai() -> Finding:
    (wanted,) = OpenAIInstrumentor().instrumentation_dependencies()
    here = installed("openai")
    supported = wanted.removeprefix("openai ")
    data = {"version": here, "supported": supported, "newest_tested": NEWEST_TESTED["openai"]}
    if here is None or not Requirement(wanted).specifier.contains(here, prereleases=True):
        return problem(
            "openai",
            "OpenAI SDK",
            here or "not installed",
            f"pip install 'openai{supported.replace(' ', '')}'",
            "not supported: opentelemetry-instrument and instrument() leave it alone",
            **data,
        )
    if _newer(here, NEWEST_TESTED["openai"]):
        return note(
            "openai", "OpenAI SDK", here, f"newer than the newest tested, {NEWEST_TESTED['openai']}", **data
        )
    return ok("openai", "OpenAI SDK", here, f"supported: {supported}", **data)


def _newer(here: str, tested: str) -> bool:
    try:
        return Version(here) > Version(tested)
    except InvalidVersion:
        return False


def _http() -> Finding:
    library = library_of_sdk()
    there = {name: installed(name) for name in _LIBRARIES}
    extras = {name: installed(name) for name in ("h2", "socksio", "httpx-aiohttp", "aiohttp")}
    others = [f"{name} {told}" for name, told in there.items() if told is not None and name != library]
    told = [f"beside it {', '.join(others)}, which the SDK does not use by itself"] if others else []
    told.append("HTTP/2 can be had (h2)" if extras["h2"] else "HTTP/1.1 only (no h2)")
    if extras["httpx-aiohttp"]:
        told.append("aiohttp as an async transport can be had")
    data = {"library": library, "installed": there, "extras": extras}
    return ok(
        "http-library", "HTTP library", f"{library} {there.get(library) or ''}", "; ".join(told), **data
    )


def library_of_sdk() -> str:
    """Return the name of the HTTP library that the SDK's own clients are made of."""
    import openai

    for kind in openai.DefaultHttpxClient.__mro__:
        name = kind.__module__.partition(".")[0]
        if name in _LIBRARIES:
            return name
    return "unknown"


def _required() -> Iterator[Finding]:
    """Yield the requirements of stallwatch itself that this environment does not meet."""
    if installed("stallwatch") is None:
        return
    for text in requires("stallwatch") or ():
        wanted = Requirement(text)
        if wanted.marker is not None or wanted.name == "openai":
            continue
        here = installed(wanted.name)
        if here is None or not wanted.specifier.contains(here, prereleases=True):
            yield problem(
                f"requires.{wanted.name}",
                wanted.name,
                here or "not installed",
                f"pip install '{wanted.name}{wanted.specifier}'",
                f"stallwatch needs {wanted.specifier}",
                version=here,
                required=str(wanted.specifier),
            )


def _telemetry() -> Finding:
    there = {name: installed(name) for name in (*_OTEL, "wrapt")}
    short = [
        f"{title} {told}"
        for title, name in (("API", "opentelemetry-api"), ("SDK", "opentelemetry-sdk"))
        if (told := there[name]) is not None
    ]
    rest = ", ".join(
        f"{name.removeprefix('opentelemetry-')} {told}"
        for name, told in there.items()
        if told is not None and name not in ("opentelemetry-api", "opentelemetry-sdk")
    )
    if there["opentelemetry-sdk"] is None:
        rest = "; ".join(filter(None, ["no SDK: calls are guarded, spans and metrics go nowhere", rest]))
        return note("opentelemetry", "OpenTelemetry", ", ".join(short), rest, packages=there)
    return ok("opentelemetry", "OpenTelemetry", ", ".join(short), rest, packages=there)


def _concurrency() -> Finding:
    there = {name: installed(name) for name in _CONCURRENCY if importable(name)}
    found = ", ".join(f"{name} {here}" for name, here in there.items())
    told = "asyncio and threads" + (f"; installed: {found}" if found else "")
    return ok("event-loops", "event loops", told, packages=there)
