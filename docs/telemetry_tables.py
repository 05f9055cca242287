"""The telemetry catalogue as tables: names, kinds and lists come from the code, only the meanings are written here."""

from __future__ import annotations

from collections.abc import Iterable

from stallwatch import catalogue
from stallwatch.catalogue import ATTRIBUTES, EVENTS, METRICS, VALUES, Attr, Event, Instrument, MetricSpec

REQUEST: dict[str, tuple[str, str]] = {
    Attr.OPERATION: (
        "string",
        "`chat`, `text_completion`, `embeddings`, ...; by the path of the request",
    ),
    Attr.PROVIDER: ("string", "by the host of the base URL; `openai` for hosts that are not known"),
    Attr.REQUEST_MODEL: ("string", "the model asked for; absent when the request names none"),
    Attr.REQUEST_STREAM: ("boolean", "only when true"),
    Attr.REQUEST_MAX_TOKENS: ("int", "`max_tokens`, `max_completion_tokens` or `max_output_tokens`"),
    Attr.REQUEST_TEMPERATURE: ("double", "as requested"),
    Attr.REQUEST_TOP_P: ("double", "as requested"),
    Attr.REQUEST_FREQUENCY_PENALTY: ("double", "as requested"),
    Attr.REQUEST_PRESENCE_PENALTY: ("double", "as requested"),
    Attr.REQUEST_SEED: ("int", "as requested"),
    Attr.REQUEST_CHOICE_COUNT: ("int", "`n`, unless it is 1"),
    Attr.REQUEST_REASONING_LEVEL: ("string", "`reasoning_effort` or `reasoning.effort`"),
    Attr.OUTPUT_TYPE: ("string", "`json` or `text`, from `response_format`"),
    Attr.OPENAI_API_TYPE: ("string", "`chat_completions` or `responses`"),
    Attr.OPENAI_REQUEST_TIER: ("string", "`service_tier`, unless it is `auto`"),
    Attr.SERVER_ADDRESS: ("string", "host of the base URL, without credentials"),
    Attr.SERVER_PORT: ("int", "port of the base URL"),
}
"""Known before the first byte is sent, so that samplers see them."""

RESPONSE: dict[str, tuple[str, str]] = {
    Attr.RESPONSE_ID: ("string", "as the server gave it"),
    Attr.RESPONSE_MODEL: ("string", "the model that answered"),
    Attr.RESPONSE_FINISH_REASONS: ("string[]", "one per choice; `error` where none came"),
    Attr.RESPONSE_TIME_TO_FIRST_CHUNK: ("double", "seconds to the first chunk of any kind"),
    Attr.USAGE_INPUT: ("int", "as the server last reported it; absent when it did not"),
    Attr.USAGE_OUTPUT: ("int", "the same"),
    Attr.USAGE_CACHE_READ: ("int", "the same, when above 0"),
    Attr.USAGE_REASONING: ("int", "the same, when above 0"),
    Attr.OPENAI_RESPONSE_TIER: ("string", "`service_tier` of the answer"),
    Attr.OPENAI_FINGERPRINT: ("string", "`system_fingerprint` of the answer"),
    Attr.ERROR_TYPE: (
        "string",
        "class of the exception, a known code of the response's own failure, or `truncated`",
    ),
    Attr.HTTP_STATUS: ("int", "of the response, good or bad; absent where none came"),
}
"""Learned from the answer; put on the span at its end."""

OWN: dict[str, tuple[str, str]] = {
    Attr.OUTCOME: ("string", "how the run ended"),
    Attr.STALLED: ("boolean", "whether it ended in a stall; always present, for tail sampling"),
    Attr.STALL_PHASE: ("string", "phase of the last stall"),
    Attr.STALL_WIRE: ("string", "wire verdict of the last stall"),
    Attr.STALL_LIMIT: ("double", "seconds; the limit as configured"),
    Attr.STALL_WAITED: ("double", "seconds; the wait charged to it"),
    Attr.STALL_ACTION: ("string", "what was done about a stall; on events and metrics only"),
    Attr.STALL_COUNT: ("int", "stalls of the run; absent when there was none"),
    Attr.CHUNKS: ("int", "chunks handed to the reader, heartbeats included; streams only"),
    Attr.HEARTBEATS: ("int", "how many of them carried nothing; streams only"),
    Attr.TIME_TO_FIRST_TOKEN: ("double", "seconds from the call to the first output, reasoning included"),
    Attr.TIME_TO_VISIBLE: ("double", "seconds from the call to the first output that is not reasoning"),
    Attr.GAP_MAX: ("double", "seconds; the longest wait without progress, the fatal one included"),
    Attr.ATTEMPTS: ("int", "requests sent, on all routes, those of the SDK's own retries included"),
    Attr.ATTEMPT_NUMBER: ("int", "which request of the run, from 1, over all routes; on events only"),
    Attr.ATTEMPT_ROLE: ("string", "why it was made; on events and metrics only"),
    Attr.ATTEMPT_RACE: ("string", "how it came out of a race with another; on events only, with a hedge"),
    Attr.ATTEMPT_DURATION: (
        "double",
        "seconds from its request to the end of its response or its failure; on events only",
    ),
    Attr.RETRY_KIND: ("string", "what sort of failure the last failed attempt met"),
    Attr.RETRY_DIAGNOSIS: ("string", "whether trying again might help"),
    Attr.RETRY_REASON: ("string", "the kind, one step finer"),
    Attr.RETRY_TRANSPORT_CODE: (
        "string",
        "how the connection failed, e.g. `ECONNRESET`; a stall is `ETIMEDOUT`",
    ),
    Attr.RETRY_DECISION: ("string", "what followed the last failed attempt, or why nothing did"),
    Attr.RETRY_DELAY: ("double", "seconds waited before the next attempt; on events only"),
    Attr.RETRY_SERVER_WAIT: ("double", "seconds the server asked for; on events only"),
    Attr.RETRY_PACED: (
        "boolean",
        "whether the wait was made longer, because the route's retries queue up; on events only",
    ),
    Attr.OUTPUT_CHARACTERS: (
        "int",
        "characters of output received; of an attempt, its own; absent where there was no body to read",
    ),
    Attr.USAGE_KNOWN: (
        "boolean",
        "whether the server reported token counts; where it did not, they are unknown, not zero",
    ),
    Attr.FALLBACK_FROM: ("string", "the route that failed; on events only"),
    Attr.FALLBACK_TO: ("string", "the route that is asked next; on events only"),
    Attr.HEDGE_RESULT: ("string", "how the race went for the second attempt; on events and metrics only"),
    Attr.HEDGE_DELAY: ("double", "seconds after which the second attempt was due; on events only"),
    Attr.RUN_NAME: ("string", "`name` of the `Run` the call is in, or of the nearest around it that has one"),
    Attr.CANCEL_REASON: ("string", "what was given to `cancel`; only with outcome `cancelled`"),
    Attr.POLICY_RULE: (
        "string",
        "the most specific layer that set anything: `call`, `client`, `rule:NAME`, ...",
    ),
    Attr.POLICY_MODE: ("string", "mode in force"),
    Attr.INTERRUPT: ("string", "how sure an abort is, or would have been"),
    Attr.BACKSTOP: ("boolean", "only when true: nobody ended the run, so its span was"),
    Attr.REQUEST_ID: ("string", "the response's `x-request-id`"),
    Attr.PHASE: ("string", "phase a stream is in now; on metrics only"),
    Attr.TOKEN_TYPE: ("string", "which tokens; on metrics only"),
}

MEANINGS = REQUEST | RESPONSE | OWN

_VERDICT = (
    Attr.RETRY_KIND,
    Attr.RETRY_DIAGNOSIS,
    Attr.RETRY_REASON,
    Attr.RETRY_TRANSPORT_CODE,
    Attr.RETRY_DECISION,
)

EVENT_MEANINGS = {
    Event.STALL: (
        f"a wait passed its deadline; written before the abort, at most {catalogue.STALL_EVENT_CAP} times a span",
        (Attr.STALL_PHASE, Attr.STALL_WIRE, Attr.STALL_LIMIT, Attr.STALL_WAITED, Attr.STALL_ACTION),
    ),
    Event.ATTEMPT: (
        (
            "an attempt has ended, whoever made it; `stallwatch.retry.*` only if it failed; this and the two events "
            f"below at most {catalogue.ATTEMPT_EVENT_CAP} times a span, taken together"
        ),
        (
            Attr.ATTEMPT_NUMBER,
            Attr.ATTEMPT_ROLE,
            Attr.ATTEMPT_RACE,
            Attr.ATTEMPT_DURATION,
            Attr.OUTCOME,
            Attr.REQUEST_MODEL,
            Attr.SERVER_ADDRESS,
            Attr.SERVER_PORT,
            Attr.HTTP_STATUS,
            Attr.REQUEST_ID,
            Attr.CHUNKS,
            Attr.OUTPUT_CHARACTERS,
            Attr.USAGE_KNOWN,
            *_VERDICT,
            Attr.RETRY_DELAY,
            Attr.RETRY_SERVER_WAIT,
            Attr.RETRY_PACED,
        ),
    ),
    Event.FALLBACK: (
        "another route is asked, because one has failed",
        (*_VERDICT, Attr.FALLBACK_FROM, Attr.FALLBACK_TO),
    ),
    Event.HEDGE: (
        "a second attempt was due, and how that ended; told by the attempt that counts",
        (Attr.HEDGE_RESULT, Attr.HEDGE_DELAY),
    ),
}

_CALL = (Attr.OPERATION, Attr.PROVIDER, Attr.REQUEST_MODEL)


def request_attributes() -> str:
    """Return the attributes known before the request is sent."""
    return _attributes(REQUEST)


def response_attributes() -> str:
    """Return the attributes learned from the answer."""
    return _attributes(RESPONSE)


def own_attributes() -> str:
    """Return the attributes of stallwatch's own."""
    return _attributes(OWN)


def _attributes(meanings: dict[str, tuple[str, str]]) -> str:
    rows = [(f"`{name}`", *meanings[name]) for name in ATTRIBUTES if name in meanings]
    return _table(("attribute", "type", "meaning"), rows)


def events() -> str:
    """Return the span events."""
    rows = []
    for name in EVENTS:
        meaning, attributes = EVENT_MEANINGS[name]
        rows.append((f"`{name}`", meaning, _names(attributes)))
    return _table(("event", "meaning", "attributes"), rows)


def metrics() -> str:
    """Return the instruments, with the names under which Prometheus stores them."""
    rows = []
    for spec in METRICS:
        extra = _names(name for name in spec.attributes if name not in _CALL)
        kind = spec.kind.value.replace("observable_", "").replace("_", "-")
        rows.append((f"`{spec.name}`", kind, f"`{spec.unit}`", spec.description, extra, f"`{stored(spec)}`"))
    return _table(("metric", "kind", "unit", "what it measures", "further attributes", "in Prometheus"), rows)


def stored(spec: MetricSpec) -> str:
    """Return the name under which Prometheus stores an instrument; of a histogram, the part its series share."""
    name = spec.name.replace(".", "_") + ("_seconds" if spec.unit == "s" else "")
    return name + "_total" if spec.kind is Instrument.COUNTER else name


def buckets() -> str:
    """Return the bucket boundaries of the histograms."""
    by_edges: dict[tuple[float, ...], list[str]] = {}
    for spec in METRICS:
        if spec.buckets is not None:
            by_edges.setdefault(spec.buckets, []).append(spec.name)
    rows = [(_names(names), ", ".join(f"{edge:.12g}" for edge in edges)) for edges, names in by_edges.items()]
    return _table(("histograms", "boundaries"), rows)


def values() -> str:
    """Return the closed value lists."""
    rows = [(f"`{name}`", ", ".join(f"`{value}`" for value in allowed)) for name, allowed in VALUES.items()]
    return _table(("attribute", "values"), rows)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
