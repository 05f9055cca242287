"""A client object of the user's own program: found by name, and looked at."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from stallwatch.cli.doctor.network import proof_of
from stallwatch.cli.doctor.report import Finding, Section, note, ok, warning
from stallwatch.cli.doctor.secrets import origin
from stallwatch.cli.extras import CannotRun
from stallwatch.governing import in_force
from stallwatch.policy import Policy
from stallwatch.resolution import ResolvedPolicy
from stallwatch.sdk.requests import base_url_of

__all__ = ["find", "is_client", "own_base_url", "own_policy", "your_client"]

_WRITTEN = "write it as module:name, e.g. shop.llm:client, or module:function() for what a function returns"


def find(name: str) -> Any:
    """Import a module and return the client it names; raises CannotRun with what is wrong.

    What the module prints goes to stderr, since stdout may be a JSON document.
    """
    module, colon, path = name.partition(":")
    if not (colon and module and path):
        raise CannotRun(f"--client {name!r} is not allowed: {_WRITTEN}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with redirect_stdout(sys.stderr):
        found: Any = _imported(module)
        for part in path.removesuffix("()").split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise CannotRun(f"--client {name!r}: there is no {part!r} in {module}; {_WRITTEN}") from None
        if path.endswith("()"):
            try:
                found = found()
            except (Exception, SystemExit) as error:
                raise CannotRun(f"--client {name!r}: the function raised {type(error).__name__}") from None
    if not is_client(found):
        kind = type(found).__name__
        raise CannotRun(f"--client {name!r} is a {kind}, which is no client of the OpenAI SDK; {_WRITTEN}")
    return found


def _imported(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise CannotRun(
            f"--client: no module named {error.name!r}; run this where your program runs"
        ) from None
    except (Exception, SystemExit) as error:
        # Its text may quote anything.
        raise CannotRun(f"--client: importing {module} raised {type(error).__name__}") from None


def is_client(value: Any) -> bool:
    """Tell whether this is a client object of the SDK."""
    return not isinstance(value, type) and hasattr(value, "_build_request") and hasattr(value, "_client")


def own_policy(client: Any) -> Policy | None:
    """Return what ``guard`` gave the client."""
    wiring = in_force()
    return None if wiring is None else wiring.policy_of(client)


def own_base_url(client: Any) -> str:
    """Return where the client's calls go, for rules; not for showing."""
    return base_url_of(client)


def your_client(client: Any, resolved: ResolvedPolicy, *, governed: bool) -> Section:
    """Look at a client; ``governed`` is whether its calls were before anything was done to look.

    ``resolved`` is the policy of the calls that are asked about.
    """
    findings = [_kind(client), _governed(client, governed=governed), *_its_settings(client, resolved)]
    findings.append(proof_of("transport", "ending a call", client))
    return Section(key="client", title="Your client", findings=tuple(findings))


def _kind(client: Any) -> Finding:
    kind = f"{type(client).__module__.partition('.')[0]}.{type(client).__name__}"
    http = client._client
    http_kind = f"{type(http).__module__.partition('.')[0]}.{type(http).__name__}"
    own = type(http).__module__.startswith("openai.")
    detail = (
        "its http_client is the SDK's own" if own else f"its http_client is {http_kind}, not the SDK's own"
    )
    return ok("class", "class", kind, detail, kind=kind, http_client=http_kind, default_http_client=own)


def _governed(client: Any, *, governed: bool) -> Finding:
    policy = own_policy(client)
    data = {"governed": governed, "guarded": policy is not None}
    if policy is not None:
        detail = "with no policy of its own" if policy == Policy() else "with a policy of its own, see below"
        return ok("governed", "governed", "by guard(client)", detail, **data)
    if governed:
        return ok("governed", "governed", "as every client of the process", **data)
    return warning(
        "governed",
        "governed",
        "not by the module it is in",
        "guard(client), OpenAIInstrumentor().instrument(), or start the program with opentelemetry-instrument",
        "what follows is what calls would get",
        **data,
    )


def _its_settings(client: Any, resolved: ResolvedPolicy) -> Iterator[Finding]:
    where = origin(str(client.base_url))
    yield ok("base-url", "base URL", where, origin=where)
    yield _timeout(client.timeout, resolved)
    retries = client.max_retries
    detail = "the SDK makes none, and so does stallwatch" if retries == 0 else "the most a call can have"
    yield (note if retries == 0 else ok)(
        "max-retries", "max_retries", str(retries), detail, max_retries=retries
    )


def _timeout(timeout: Any, resolved: ResolvedPolicy) -> Finding:
    parts = {
        name: getattr(timeout, name, timeout if isinstance(timeout, (int, float)) else None)
        for name in ("connect", "read")
    }
    shown = ", ".join(
        f"{name} {'none' if value is None else f'{value:g} s'}" for name, value in parts.items()
    )
    limits = resolved.limits
    silences = [limit for limit in (limits.first_token, limits.thinking, limits.idle) if limit is not None]
    read = parts["read"]
    if read is None:
        detail = "it has no read timeout: without stallwatch it would wait for ever"
        return note("timeout", "timeout", shown, detail, **parts)
    if silences and read < min(silences):
        detail = "its read timeout is tighter than the deadlines, so silence ends by it, with the transport's error"
        return note("timeout", "timeout", shown, detail, **parts)
    return ok("timeout", "timeout", shown, "a deadline may tighten it, and never loosens it", **parts)
