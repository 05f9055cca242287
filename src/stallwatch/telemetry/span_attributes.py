"""What spans and their events say of a run, an attempt and a stall: attributes by name, without those unknown."""

from __future__ import annotations

from typing import Any

from stallwatch.catalogue import Attr
from stallwatch.core.phases import Stall
from stallwatch.core.words import Outcome, RetryDecision
from stallwatch.telemetry.recorder import AttemptView, FollowingView, RunView
from stallwatch.telemetry.values import TEXT_CAP, text_of

__all__ = [
    "attempt_attributes",
    "end_attributes",
    "known",
    "only_own",
    "request_attributes",
    "stall_attributes",
    "verdict_attributes",
]


_GOING_ON = frozenset({RetryDecision.RETRY, RetryDecision.FALLBACK})

_SAID = (
    Attr.REQUEST_ID,
    Attr.RESPONSE_ID,
    Attr.RESPONSE_MODEL,
    Attr.RESPONSE_FINISH_REASONS,
    Attr.OPENAI_RESPONSE_TIER,
    Attr.OPENAI_FINGERPRINT,
)
"""What servers say of themselves, in whatever words they like."""


def only_own(attributes: dict[str, Any]) -> dict[str, Any]:
    """What a neighbour's span is given: none of the names that are the neighbour's to set."""
    return {name: value for name, value in attributes.items() if name.startswith("stallwatch.")}


def request_attributes(run: RunView) -> dict[str, Any]:
    """What samplers see: the call as it was asked for."""
    call = run.call
    attributes: dict[str, Any] = {Attr.OPERATION: call.operation, Attr.PROVIDER: call.provider}
    if call.model is not None:
        attributes[Attr.REQUEST_MODEL] = call.model
    if call.stream:
        attributes[Attr.REQUEST_STREAM] = True
    if call.server_address is not None:
        attributes[Attr.SERVER_ADDRESS] = call.server_address
        if call.server_port is not None:
            attributes[Attr.SERVER_PORT] = call.server_port
    attributes.update(call.attributes)
    return attributes


def stall_attributes(stall: Stall) -> dict[str, Any]:
    """Return what a stall was."""
    return {
        Attr.STALL_PHASE: stall.phase.value,
        Attr.STALL_WIRE: stall.wire.value,
        Attr.STALL_LIMIT: stall.limit,
        Attr.STALL_WAITED: stall.waited,
    }


def verdict_attributes(following: FollowingView | None) -> dict[str, Any]:
    """Return how a failure was classified and what was decided."""
    if following is None:
        return {}
    verdict = following.verdict
    attributes: dict[str, Any] = {
        Attr.RETRY_KIND: verdict.kind.value,
        Attr.RETRY_DIAGNOSIS: verdict.diagnosis.value,
        Attr.RETRY_REASON: verdict.reason.value,
        Attr.RETRY_DECISION: following.decision.value,
    }
    if verdict.transport_code is not None:
        attributes[Attr.RETRY_TRANSPORT_CODE] = verdict.transport_code
    return attributes


def attempt_attributes(attempt: AttemptView, run: RunView) -> dict[str, Any]:
    """Return what an attempt was, and what followed it if it failed."""
    following, request_id = attempt.following, attempt.request_id
    quoted = request_id is not None and run.quotes_secret(request_id)
    attributes: dict[str, Any] = {
        Attr.ATTEMPT_NUMBER: attempt.number,
        Attr.ATTEMPT_ROLE: attempt.role.value,
        Attr.ATTEMPT_DURATION: attempt.duration,
        Attr.ATTEMPT_RACE: None if attempt.race is None else attempt.race.value,
        Attr.OUTCOME: None if attempt.outcome is None else attempt.outcome.value,
        Attr.REQUEST_MODEL: attempt.model,
        Attr.SERVER_ADDRESS: attempt.server_address,
        Attr.SERVER_PORT: attempt.server_port,
        Attr.HTTP_STATUS: attempt.status_code,
        Attr.REQUEST_ID: None if quoted else request_id,
        Attr.CHUNKS: attempt.chunks if run.call.stream else None,
        Attr.OUTPUT_CHARACTERS: attempt.characters,
        Attr.USAGE_KNOWN: attempt.usage_known,
    }
    if following is not None:
        attributes.update(verdict_attributes(following))
        attributes[Attr.RETRY_SERVER_WAIT] = following.server_wait
        if following.decision in _GOING_ON:
            attributes[Attr.RETRY_DELAY] = following.delay
            attributes[Attr.RETRY_PACED] = following.paced
    return known(attributes)


def _withhold(run: RunView, attributes: dict[str, Any]) -> None:
    """Leave out what a server says of itself if it gives the client's key back."""
    response = run.response
    said = f"{run.request_id}"
    if response is not None:
        reasons = attributes.get(Attr.RESPONSE_FINISH_REASONS)
        said = (
            f"{said} {response.id} {response.model} {reasons} {response.service_tier} {response.fingerprint}"
        )
    if run.quotes_secret(said):
        for name in _SAID:
            if run.quotes_secret(f"{attributes.get(name)}"):
                attributes[name] = None


def known(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return those that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def end_attributes(run: RunView, outcome: Outcome, *, standard: bool) -> dict[str, Any]:
    """Return everything that was learned of a run; ``standard`` when the conventions' names are ours to set."""
    tracker = run.tracker
    response, policy, name, error = run.response, run.policy, run.scope_name, run.error_type
    attributes: dict[str, Any] = {
        Attr.OUTCOME: outcome.value,
        Attr.STALLED: outcome is Outcome.STALLED,
        Attr.ATTEMPTS: run.attempts,
        Attr.POLICY_RULE: policy.rule[:TEXT_CAP],
        Attr.POLICY_MODE: policy.mode.value,
        Attr.INTERRUPT: run.interrupt,
        Attr.STALL_COUNT: run.stalls or None,
        Attr.RUN_NAME: None if name is None else text_of(name),
        Attr.CANCEL_REASON: text_of(run.cancel_reason) if outcome is Outcome.CANCELLED else None,
        Attr.ERROR_TYPE: None if error is None else text_of(error),
        Attr.HTTP_STATUS: run.status_code,
        Attr.REQUEST_ID: run.request_id,
        Attr.BACKSTOP: run.backstopped or None,
        Attr.USAGE_KNOWN: response is not None and response.usage.known,
    }
    if run.call.stream:
        first, visible = tracker.first_token_at, tracker.first_visible_at
        attributes[Attr.CHUNKS] = tracker.chunks
        attributes[Attr.HEARTBEATS] = tracker.heartbeats
        attributes[Attr.TIME_TO_FIRST_TOKEN] = None if first is None else first - tracker.started
        attributes[Attr.TIME_TO_VISIBLE] = None if visible is None else visible - tracker.started
    # Of a stall also where the call was not streamed.
    attributes[Attr.GAP_MAX] = tracker.longest_gap
    if run.stall is not None:
        attributes.update(stall_attributes(run.stall))
    if run.following is not None:
        attributes.update(verdict_attributes(run.following))
    if response is not None:
        attributes[Attr.OUTPUT_CHARACTERS] = response.characters
    if standard:
        _add_response(run, attributes)
    _withhold(run, attributes)
    return known(attributes)


def _add_response(run: RunView, attributes: dict[str, Any]) -> None:
    tracker, response = run.tracker, run.response
    if run.call.stream and tracker.first_chunk_at is not None:
        attributes[Attr.RESPONSE_TIME_TO_FIRST_CHUNK] = tracker.first_chunk_at - tracker.started
    if response is None:
        return
    usage = response.usage
    attributes[Attr.RESPONSE_ID] = response.id
    attributes[Attr.RESPONSE_MODEL] = response.model
    attributes[Attr.RESPONSE_FINISH_REASONS] = response.finish_reasons(tracker.choices)
    attributes[Attr.OPENAI_RESPONSE_TIER] = response.service_tier
    attributes[Attr.OPENAI_FINGERPRINT] = response.fingerprint
    attributes[Attr.USAGE_INPUT] = usage.input
    attributes[Attr.USAGE_OUTPUT] = usage.output
    attributes[Attr.USAGE_CACHE_READ] = usage.cache_read or None
    attributes[Attr.USAGE_REASONING] = usage.reasoning or None
