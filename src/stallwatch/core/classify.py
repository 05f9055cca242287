"""Why an attempt failed, and whether trying again may help.

Rules
-----
* ``_ROWS`` is the whole of it: the first row that fits decides. The page on classification is made from it.
* Facts decide, never text. A message may quote a prompt, and an upstream error that speaks of "aborted" is no cancel.
* The user's cancel comes first, then a stall that was recorded: both surface as errors of any class.
* A code with one meaning only (a spent quota, filtered content) says more than the status it comes with. A code that
  says no more than a status does (``invalid_request_error``) counts where there is no status.
* Codes are compared without case, separators and a closing "error", because every vendor spells them its own way. A
  code that is an error status, as gateways put it into error frames, is the status.
* A success status is no fact about a failure: the body that came with it is.
* ``x-should-retry`` changes the diagnosis of an HTTP answer, whatever its status, as the SDK has it; kind and reason
  stay.
* Apart from that, what the SDK retries is retryable here, so that both makers of retries agree. The exceptions are
  codes which say that the same answer would follow.

How facts are read off an exception is the work of ``runtime.failures``. Whether a retry follows is another decision:
it also needs what was delivered, how many attempts are left, and the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from stallwatch.core.words import Diagnosis, FailureKind, FailureReason

__all__ = ["Failure", "Verdict", "classification_table", "code_table", "verdict_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is known of a failed attempt, without any text a server or a library wrote."""

    cancelled: bool = False
    """The user ended it."""
    stalled: bool = False
    """A stall was recorded, whatever surfaced afterwards."""
    status: int | None = None
    """The HTTP status of the answer."""
    code: str | None = None
    """The provider's error code, as sent."""
    type: str | None = None
    """The provider's error type, as sent."""
    request_id: str | None = None
    transport: str | None = None
    """How the connection failed: the name of an ``errno`` or of a resolver's error, or a name like ``TLS``."""
    in_stream: bool = False
    """It is an error frame inside a stream that had begun with a success status."""
    body: str | None = None
    """How a body that came with a success status was no answer: ``empty``, ``truncated`` or ``not_event_stream``."""
    server_says: bool | None = None
    """The server's ``x-should-retry`` header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What classification says of a failure."""

    kind: FailureKind
    diagnosis: Diagnosis
    reason: FailureReason
    transport_code: str | None = None
    """How the connection failed, for kind ``transport``; ``ETIMEDOUT`` for a stall."""


def _plain(code: object) -> str:
    letters = re.sub(r"[^a-z0-9]", "", str(code).lower())
    return letters.removesuffix("exception").removesuffix("error") or letters


@dataclass(frozen=True, slots=True)
class _Codes:
    """Codes of one meaning: as vendors spell them, and as they are compared."""

    meaning: str
    spelled: tuple[str, ...]
    plain: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", frozenset(map(_plain, self.spelled)))


def _codes(meaning: str, spelled: str) -> _Codes:
    return _Codes(meaning, tuple(spelled.split()))


# The numbers are Z.AI's. Those of other vendors are left out, because some mean different things to different vendors.
_QUOTA = _codes(
    "quota",
    "insufficient_quota insufficient_user_quota insufficient_balance insufficient_credits quota_exceeded "
    "exceeded_current_quota billing_error billing_not_active billing_hard_limit_reached arrearage "
    "Throttling.AllocationQuota AllocationQuota.FreeTierOnly 1113 1304 1308 1310",
)
_CONTENT = _codes(
    "content filter",
    "content_filter content_policy_violation image_content_policy_violation moderation_blocked "
    "data_inspection_failed response_data_inspection_failed ResponsibleAIPolicyViolation bio_policy "
    "misalignment_policy_violation 1301",
)
_CONTEXT = _codes(
    "context length",
    "context_length_exceeded context_window_exceeded exceed_context_size_error string_above_max_length 1261",
)
_REFUSED = _codes(
    "refused",
    "model_not_found model_access_denied access_denied AccessDenied.Unpurchased DeploymentNotFound "
    "account_deactivated access_terminated unsupported_country_region_territory data_residency_mismatch",
)
_RATE_LIMIT = _codes(
    "rate limit",
    "rate_limit rate_limited rate_limit_exceeded rate_limit_reached user_rate_limit_exceeded "
    "too_many_requests resource_exhausted throttled throttling Throttling.RateQuota Throttling.BurstRate "
    "limit_requests limit_burst_rate 1302 1303 1305",
)
_CAPACITY = _codes(
    "capacity",
    "overloaded engine_overloaded model_overloaded server_overloaded server_is_overloaded capacity_exceeded "
    "service_tier_capacity_exceeded service_unavailable unavailable slow_down 1312",
)
_SERVER = _codes(
    "server",
    "server_error internal_error internal_server_error InternalError.Algo api_error upstream_error bad_gateway "
    "gateway_timeout timeout request_timeout deadline_exceeded vector_store_timeout",
)
_PERMANENT = _codes(
    "permanent",
    "invalid_request invalid_argument invalid_parameter invalid_value invalid_prompt missing_required_parameter "
    "unsupported_parameter unsupported_value bad_request unprocessable_entity request_too_large "
    "invalid_api_key authentication_error unauthenticated unauthorized permission_error permission_denied "
    "forbidden not_found invalid_image invalid_image_format invalid_image_mode invalid_image_url "
    "invalid_base64_image empty_image_file image_file_not_found image_file_too_large image_parse_error "
    "image_too_large image_too_small unsupported_image_media_type",
)

_CODES = (_QUOTA, _CONTENT, _CONTEXT, _REFUSED, _RATE_LIMIT, _CAPACITY, _SERVER, _PERMANENT)

_ERROR_STATUS = re.compile(r"[45][0-9]{2}")


class _Facts:
    """A failure made ready for the rows."""

    __slots__ = ("answered", "failure", "status", "transport", "words")

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        self.words = {_plain(word) for word in (failure.code, failure.type) if word is not None}
        self.status = failure.status
        if self.status is not None and (self.status < 100 or 200 <= self.status < 300):
            self.status = None
        self.answered = self.status is not None
        if self.status is None and _ERROR_STATUS.fullmatch(str(failure.code)):
            self.status = int(str(failure.code))
        # An answer of the 4xx kind is the server's word; with one of the 5xx kind a gateway may only pass on that its
        # own connection, or that of a wrapper around the SDK, broke.
        self.transport = failure.transport if self.status is None or self.status >= 500 else None

    def says(self, codes: _Codes) -> bool:
        return not codes.plain.isdisjoint(self.words)

    def is_in(self, first: int, last: int) -> bool:
        return self.status is not None and first <= self.status <= last

    def broke_by(self, *endings: str) -> bool:
        return self.transport is not None and self.transport.endswith(endings)


class _Row(NamedTuple):
    when: str
    fits: Callable[[_Facts], bool]
    kind: FailureKind
    diagnosis: Diagnosis
    reason: FailureReason


_K, _R = FailureKind, FailureReason
_RETRYABLE, _FAIL_FAST, _UNKNOWN = Diagnosis.RETRYABLE, Diagnosis.FAIL_FAST, Diagnosis.UNKNOWN

# fmt: off
_ROWS: tuple[_Row, ...] = (
    _Row("you ended the call",
         lambda f: f.failure.cancelled, _K.CANCEL, _FAIL_FAST, _R.CANCELLED),
    _Row("a stall was recorded",
         lambda f: f.failure.stalled, _K.TRANSPORT, _RETRYABLE, _R.STALL),
    _Row("a *quota* code, or status 402",
         lambda f: f.says(_QUOTA) or f.status == 402, _K.PROVIDER, _FAIL_FAST, _R.QUOTA),
    _Row("a *content filter* code",
         lambda f: f.says(_CONTENT), _K.PROVIDER, _FAIL_FAST, _R.CONTENT_FILTER),
    _Row("a *context length* code",
         lambda f: f.says(_CONTEXT), _K.PROVIDER, _FAIL_FAST, _R.CONTEXT_LENGTH),
    _Row("a *refused* code",
         lambda f: f.says(_REFUSED), _K.PROVIDER, _FAIL_FAST, _R.PERMANENT_CODE),
    # What is over the limit by itself stays over it.
    _Row("status 429, or a *rate limit* code without status 413",
         lambda f: f.status == 429 or (f.says(_RATE_LIMIT) and f.status != 413),
         _K.RATE_LIMIT, _RETRYABLE, _R.RATE_LIMIT),
    _Row("the transport timed out; no status, or 5xx",
         lambda f: f.broke_by("TIMEDOUT", "TIMEOUT"), _K.TRANSPORT, _RETRYABLE, _R.TIMEOUT),
    _Row("the server's name did not resolve; no status, or 5xx",
         lambda f: f.broke_by("ENOTFOUND") or (f.transport or "").startswith("EAI_"),
         _K.TRANSPORT, _RETRYABLE, _R.NAME_RESOLUTION),
    _Row("TLS failed; no status, or 5xx",
         lambda f: f.broke_by("TLS"), _K.TRANSPORT, _RETRYABLE, _R.TLS),
    _Row("HTTP was violated or cut short; no status, or 5xx",
         lambda f: f.broke_by("PROTOCOL"), _K.TRANSPORT, _RETRYABLE, _R.PROTOCOL),
    _Row("the connection failed in another way; no status, or 5xx",
         lambda f: f.transport is not None, _K.TRANSPORT, _RETRYABLE, _R.CONNECTION),
    _Row("status 503 or 529, or a *capacity* code",
         lambda f: f.status in (503, 529) or f.says(_CAPACITY), _K.CAPACITY, _RETRYABLE, _R.OVERLOADED),
    _Row("status 401",
         lambda f: f.status == 401, _K.AUTH, _FAIL_FAST, _R.AUTHENTICATION),
    _Row("status 403",
         lambda f: f.status == 403, _K.AUTH, _FAIL_FAST, _R.PERMISSION),
    _Row("status 408",
         lambda f: f.status == 408, _K.CLIENT, _RETRYABLE, _R.REQUEST_TIMEOUT),
    _Row("status 409",
         lambda f: f.status == 409, _K.CLIENT, _RETRYABLE, _R.CONFLICT),
    _Row("another status 4xx",
         lambda f: f.is_in(400, 499), _K.CLIENT, _FAIL_FAST, _R.BAD_REQUEST),
    _Row("another status 5xx, or a *server* code",
         lambda f: f.is_in(500, 599) or f.says(_SERVER), _K.SERVER, _RETRYABLE, _R.SERVER_ERROR),
    _Row("another status, except 2xx",
         lambda f: f.status is not None, _K.UNKNOWN, _UNKNOWN, _R.HTTP_STATUS),
    _Row("a *permanent* code, and no status",
         lambda f: f.says(_PERMANENT), _K.PROVIDER, _FAIL_FAST, _R.PERMANENT_CODE),
    _Row("an error frame in the stream, and nothing of the above",
         lambda f: f.failure.in_stream, _K.STREAM, _RETRYABLE, _R.ERROR_FRAME),
    _Row("a success status, but the body was empty",
         lambda f: f.failure.body == "empty", _K.STREAM, _RETRYABLE, _R.EMPTY_STREAM),
    _Row("a success status, but the body ended too early",
         lambda f: f.failure.body == "truncated", _K.STREAM, _RETRYABLE, _R.TRUNCATED_STREAM),
    _Row("a success status, but the body was no event stream",
         lambda f: f.failure.body == "not_event_stream", _K.STREAM, _FAIL_FAST, _R.NOT_EVENT_STREAM),
    _Row("anything else",
         lambda f: True, _K.UNKNOWN, _UNKNOWN, _R.UNCLASSIFIED),
)
# fmt: on


def verdict_of(failure: Failure) -> Verdict:
    """Return what the table says of ``failure``."""
    facts = _Facts(failure)
    row = next(row for row in _ROWS if row.fits(facts))
    diagnosis = row.diagnosis
    obeys = facts.answered and not failure.in_stream and row.reason not in (_R.CANCELLED, _R.STALL)
    if obeys and failure.server_says is not None:
        diagnosis = _RETRYABLE if failure.server_says else _FAIL_FAST
    code = failure.transport if row.kind is _K.TRANSPORT else None
    return Verdict(
        kind=row.kind,
        diagnosis=diagnosis,
        reason=row.reason,
        transport_code="ETIMEDOUT" if row.reason is _R.STALL else code,
    )


def classification_table() -> str:
    """Return the rows in their order, as Markdown."""
    lines = ["| | when | kind | diagnosis | reason |", "| --- | --- | --- | --- | --- |"]
    for number, row in enumerate(_ROWS, 1):
        lines.append(f"| {number} | {row.when} | `{row.kind}` | `{row.diagnosis}` | `{row.reason}` |")
    return "\n".join(lines)


def code_table() -> str:
    """Return the codes that the rows speak of, as Markdown."""
    lines = ["| codes | spelled |", "| --- | --- |"]
    for codes in _CODES:
        spelled = ", ".join(f"`{code}`" for code in codes.spelled)
        lines.append(f"| *{codes.meaning}* | {spelled} |")
    return "\n".join(lines)
