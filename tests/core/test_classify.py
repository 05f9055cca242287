"""Every row of the classification, every spelling of its codes, and which row wins when several fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallwatch.core import classify
from stallwatch.core.classify import Failure, Verdict, classification_table, code_table, verdict_of
from stallwatch.core.words import Diagnosis, FailureKind, FailureReason

Facts = dict[str, Any]
Said = tuple[str, str, str]

ROWS: list[list[tuple[Facts, Said]]] = [
    # One list for each row of the table, in its order.
    [({"cancelled": True}, ("cancel", "fail_fast", "cancelled"))],
    [({"stalled": True}, ("transport", "retryable", "stall"))],
    [
        ({"status": 429, "code": "insufficient_quota"}, ("provider", "fail_fast", "quota")),
        ({"status": 429, "type": "insufficient_quota"}, ("provider", "fail_fast", "quota")),
        ({"in_stream": True, "code": "Arrearage"}, ("provider", "fail_fast", "quota")),
        ({"status": 402}, ("provider", "fail_fast", "quota")),
        ({"in_stream": True, "code": "402"}, ("provider", "fail_fast", "quota")),
    ],
    [
        ({"status": 400, "code": "content_filter"}, ("provider", "fail_fast", "content_filter")),
        ({"code": "data_inspection_failed"}, ("provider", "fail_fast", "content_filter")),
    ],
    [({"status": 400, "code": "context_length_exceeded"}, ("provider", "fail_fast", "context_length"))],
    [({"status": 404, "code": "model_not_found"}, ("provider", "fail_fast", "permanent_code"))],
    [
        ({"status": 429}, ("rate_limit", "retryable", "rate_limit")),
        ({"in_stream": True, "code": "429"}, ("rate_limit", "retryable", "rate_limit")),
        ({"in_stream": True, "code": "rate_limit_exceeded"}, ("rate_limit", "retryable", "rate_limit")),
        ({"status": 403, "code": "userRateLimitExceeded"}, ("rate_limit", "retryable", "rate_limit")),
    ],
    [
        ({"transport": "ETIMEDOUT"}, ("transport", "retryable", "timeout")),
        ({"transport": "UND_ERR_BODY_TIMEOUT"}, ("transport", "retryable", "timeout")),
    ],
    [
        ({"transport": "EAI_AGAIN"}, ("transport", "retryable", "name_resolution")),
        ({"transport": "ENOTFOUND"}, ("transport", "retryable", "name_resolution")),
    ],
    [({"transport": "TLS"}, ("transport", "retryable", "tls"))],
    [
        ({"transport": "REMOTE_PROTOCOL"}, ("transport", "retryable", "protocol")),
        ({"transport": "LOCAL_PROTOCOL"}, ("transport", "retryable", "protocol")),
    ],
    [
        ({"transport": "ECONNRESET"}, ("transport", "retryable", "connection")),
        ({"transport": "ECONNREFUSED", "status": 502}, ("transport", "retryable", "connection")),
        ({"transport": "CONNECTION", "status": 200}, ("transport", "retryable", "connection")),
    ],
    [
        ({"status": 503}, ("capacity", "retryable", "overloaded")),
        ({"status": 529}, ("capacity", "retryable", "overloaded")),
        ({"in_stream": True, "type": "overloaded_error"}, ("capacity", "retryable", "overloaded")),
    ],
    [({"status": 401}, ("auth", "fail_fast", "authentication"))],
    [({"status": 403}, ("auth", "fail_fast", "permission"))],
    [({"status": 408}, ("client", "retryable", "request_timeout"))],
    [({"status": 409}, ("client", "retryable", "conflict"))],
    [
        ({"status": status}, ("client", "fail_fast", "bad_request"))
        for status in (400, 404, 410, 413, 422, 425, 451, 499)
    ],
    [
        *[
            ({"status": status}, ("server", "retryable", "server_error"))
            for status in (500, 502, 504, 520, 599)
        ],
        ({"in_stream": True, "code": "502"}, ("server", "retryable", "server_error")),
        ({"in_stream": True, "code": "server_error"}, ("server", "retryable", "server_error")),
    ],
    [({"status": status}, ("unknown", "unknown", "http_status")) for status in (101, 302, 600, 999)],
    [
        ({"in_stream": True, "type": "invalid_request_error"}, ("provider", "fail_fast", "permanent_code")),
        ({"code": "invalid_api_key"}, ("provider", "fail_fast", "permanent_code")),
    ],
    [
        ({"in_stream": True}, ("stream", "retryable", "error_frame")),
        ({"in_stream": True, "request_id": "req_1"}, ("stream", "retryable", "error_frame")),
        ({"in_stream": True, "code": "whatever", "status": 200}, ("stream", "retryable", "error_frame")),
    ],
    [({"body": "empty", "status": 200}, ("stream", "retryable", "empty_stream"))],
    [({"body": "truncated", "status": 200}, ("stream", "retryable", "truncated_stream"))],
    [({"body": "not_event_stream"}, ("stream", "fail_fast", "not_event_stream"))],
    [
        ({}, ("unknown", "unknown", "unclassified")),
        ({"status": 200}, ("unknown", "unknown", "unclassified")),
        ({"status": 0}, ("unknown", "unknown", "unclassified")),
        ({"code": "whatever", "type": "new", "request_id": "req_1"}, ("unknown", "unknown", "unclassified")),
        ({"code": "1234"}, ("unknown", "unknown", "unclassified")),
        ({"code": "200"}, ("unknown", "unknown", "unclassified")),
        ({"body": "upside_down"}, ("unknown", "unknown", "unclassified")),
    ],
]
CASES = [
    pytest.param(number, facts, said, id=f"{number}-{facts}")
    for number, row in enumerate(ROWS)
    for facts, said in row
]


def said_of(failure: Failure) -> Said:
    verdict = verdict_of(failure)
    return verdict.kind, verdict.diagnosis, verdict.reason


@pytest.mark.parametrize(("number", "facts", "said"), CASES)
def test_a_row_decides_by_itself(number: int, facts: Facts, said: Said) -> None:
    failure = Failure(**facts)
    assert said_of(failure) == said
    fitting = [index for index, row in enumerate(classify._ROWS) if row.fits(classify._Facts(failure))]
    assert fitting[0] == number


def test_every_row_has_a_case() -> None:
    assert len(ROWS) == len(classify._ROWS)
    assert all(ROWS)


def test_every_kind_diagnosis_and_reason_is_given_by_a_row() -> None:
    rows = classify._ROWS
    assert {row.kind for row in rows} == set(FailureKind)
    assert {row.diagnosis for row in rows} == set(Diagnosis)
    assert {row.reason for row in rows} == set(FailureReason)


QUOTA = ("provider", "fail_fast", "quota")
LIMIT = ("rate_limit", "retryable", "rate_limit")
FIRST: dict[str, tuple[Facts, Said]] = {
    "a cancel wins over a stall": (
        {"cancelled": True, "stalled": True, "transport": "ETIMEDOUT", "server_says": True, "status": 503},
        ("cancel", "fail_fast", "cancelled"),
    ),
    "a stall wins over what surfaced": (
        {"stalled": True, "transport": "REMOTE_PROTOCOL", "code": "insufficient_quota"},
        ("transport", "retryable", "stall"),
    ),
    "a spent quota is no rate limit": ({"status": 429, "code": "Throttling.AllocationQuota"}, QUOTA),
    "nor is one with a rate limit's type": (
        {"status": 429, "code": "insufficient_quota", "type": "rate_limit_error"},
        QUOTA,
    ),
    "nor is one behind a broken connection": (
        {"transport": "ECONNRESET", "code": "insufficient_quota"},
        QUOTA,
    ),
    "a code with one meaning wins over 5xx": (
        {"status": 500, "code": "content_filter"},
        ("provider", "fail_fast", "content_filter"),
    ),
    "a rate limit wins over what carried it": ({"status": 429, "transport": "ECONNRESET"}, LIMIT),
    "a rate limit's code wins over 503": ({"status": 503, "code": "rate_limit_exceeded"}, LIMIT),
    "a request that is over the limit by itself stays over it": (
        {"status": 413, "code": "rate_limit_exceeded"},
        ("client", "fail_fast", "bad_request"),
    ),
    "4xx is the server's word, whatever broke": (
        {"status": 400, "transport": "ECONNRESET"},
        ("client", "fail_fast", "bad_request"),
    ),
    "5xx with a transport code is the transport's": (
        {"status": 503, "transport": "EAI_AGAIN"},
        ("transport", "retryable", "name_resolution"),
    ),
    "a status wins over a code that says no more": (
        {"status": 401, "code": "invalid_api_key", "type": "invalid_request_error"},
        ("auth", "fail_fast", "authentication"),
    ),
    "so does 5xx": (
        {"status": 500, "type": "invalid_request_error"},
        ("server", "retryable", "server_error"),
    ),
    "a server code wins over a vague type": (
        {"in_stream": True, "code": "server_error", "type": "invalid_request_error"},
        ("server", "retryable", "server_error"),
    ),
    "a status in the code wins over the type": (
        {"in_stream": True, "code": "400", "type": "server_error"},
        ("client", "fail_fast", "bad_request"),
    ),
    "the status of the answer wins over one in the code": (
        {"status": 401, "code": "502"},
        ("auth", "fail_fast", "authentication"),
    ),
    "a cut body whose connection broke is the transport's": (
        {"body": "truncated", "transport": "ECONNRESET"},
        ("transport", "retryable", "connection"),
    ),
    "a code that speaks of a cancel is none": (
        {"in_stream": True, "code": "request_aborted", "type": "canceled"},
        ("stream", "retryable", "error_frame"),
    ),
    "nor is the status of a client that left": ({"status": 499}, ("client", "fail_fast", "bad_request")),
}


@pytest.mark.parametrize(("facts", "said"), FIRST.values(), ids=FIRST.keys())
def test_the_first_row_that_fits_wins(facts: Facts, said: Said) -> None:
    assert said_of(Failure(**facts)) == said


OBEYED: list[tuple[Facts, str]] = [
    ({"status": 400, "server_says": True}, "retryable"),
    ({"status": 401, "server_says": True}, "retryable"),
    ({"status": 429, "code": "insufficient_quota", "server_says": True}, "retryable"),
    ({"status": 302, "server_says": True}, "retryable"),
    ({"status": 429, "server_says": False}, "fail_fast"),
    ({"status": 503, "server_says": False}, "fail_fast"),
    ({"status": 502, "transport": "ECONNRESET", "server_says": False}, "fail_fast"),
    ({"status": 302, "server_says": False}, "fail_fast"),
    ({"status": 500, "server_says": None}, "retryable"),
    # No answer, no header.
    ({"transport": "ECONNRESET", "server_says": False}, "retryable"),
    # The header came with the success status, before anything failed.
    ({"in_stream": True, "code": "400", "server_says": True}, "fail_fast"),
    ({"in_stream": True, "status": 500, "server_says": False}, "retryable"),
    ({"status": 200, "body": "truncated", "server_says": False}, "retryable"),
    # Neither is an answer.
    ({"cancelled": True, "status": 503, "server_says": True}, "fail_fast"),
    ({"stalled": True, "status": 503, "server_says": False}, "retryable"),
]


@pytest.mark.parametrize(("facts", "diagnosis"), OBEYED, ids=[str(facts) for facts, _ in OBEYED])
def test_the_servers_wish_is_obeyed_for_answers_and_changes_the_diagnosis_only(
    facts: Facts, diagnosis: str
) -> None:
    obeyed = verdict_of(Failure(**facts))
    silent = verdict_of(Failure(**{**facts, "server_says": None}))
    assert obeyed.diagnosis == diagnosis
    assert (obeyed.kind, obeyed.reason, obeyed.transport_code) == (
        silent.kind,
        silent.reason,
        silent.transport_code,
    )


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"stalled": True}, "ETIMEDOUT"),
        ({"stalled": True, "transport": "REMOTE_PROTOCOL"}, "ETIMEDOUT"),
        ({"transport": "ECONNRESET"}, "ECONNRESET"),
        ({"transport": "TLS", "status": 502}, "TLS"),
        ({"transport": "ECONNRESET", "status": 401}, None),
        ({"transport": "ECONNRESET", "cancelled": True}, None),
        ({"status": 503}, None),
    ],
    ids=str,
)
def test_the_transport_code_is_told_of_transport_failures_only(facts: Facts, code: str | None) -> None:
    assert verdict_of(Failure(**facts)).transport_code == code


SPELLED = [(codes.meaning, code) for codes in classify._CODES for code in codes.spelled]


def spellings(code: str) -> list[str]:
    words = code.removesuffix("_error").replace(".", "_").split("_")
    camel = "".join(word[:1].upper() + word[1:] for word in words)
    return [
        code,
        code.upper(),
        camel,
        "-".join(words),
        ".".join(words),
        "_".join([*words, "error"]),
        f"{camel}Exception",
    ]


@pytest.mark.parametrize(("meaning", "code"), SPELLED)
def test_a_code_counts_however_it_is_spelled(meaning: str, code: str) -> None:
    expected = {
        "quota": "quota",
        "content filter": "content_filter",
        "context length": "context_length",
        "refused": "permanent_code",
        "rate limit": "rate_limit",
        "capacity": "overloaded",
        "server": "server_error",
        "permanent": "permanent_code",
    }[meaning]
    for spelled in spellings(code):
        spots: list[Facts] = [{"code": spelled}, {"type": spelled}, {"code": "whatever", "type": spelled}]
        for facts in spots:
            assert verdict_of(Failure(in_stream=True, **facts)).reason == expected, spelled


PERMANENT = """
    data_inspection_failed response_data_inspection_failed content_filter invalid_api_key arrearage insufficient_quota
    Model.AccessDenied model_access_denied invalid_request_error authentication_error permission_error not_found_error
    billing_error invalid_parameter invalid_parameter_error context_length_exceeded request_too_large
"""


@pytest.mark.parametrize("code", PERMANENT.split())
def test_codes_known_to_be_permanent_are_never_tried_again(code: str) -> None:
    verdict = verdict_of(Failure(in_stream=True, code=code, request_id="req_1"))
    assert (verdict.kind, verdict.diagnosis) == (FailureKind.PROVIDER, Diagnosis.FAIL_FAST)


TRANSPORT = """
    EAI_AGAIN ECONNABORTED ECONNREFUSED ECONNRESET EHOSTUNREACH ENETUNREACH ENOTFOUND EPIPE ETIMEDOUT
    UND_ERR_BODY_TIMEOUT UND_ERR_CONNECT_TIMEOUT UND_ERR_HEADERS_TIMEOUT UND_ERR_SOCKET
"""


@pytest.mark.parametrize("code", TRANSPORT.split())
def test_transport_codes_are_tried_again(code: str) -> None:
    verdict = verdict_of(Failure(transport=code))
    assert (verdict.kind, verdict.diagnosis) == (FailureKind.TRANSPORT, Diagnosis.RETRYABLE)
    assert verdict.transport_code == code


def sdk_retries(status: int) -> bool:
    return status in (408, 409, 429) or status >= 500


@pytest.mark.parametrize("status", range(400, 600))
def test_statuses_are_tried_again_where_the_sdk_does(status: int) -> None:
    assert (verdict_of(Failure(status=status)).diagnosis is Diagnosis.RETRYABLE) == sdk_retries(status)


def test_no_code_has_two_meanings() -> None:
    plain = [classify._plain(code) for _, code in SPELLED]
    assert len(plain) == len(set(plain))


def test_a_code_of_separators_only_means_nothing() -> None:
    assert said_of(Failure(code="---", type="error")) == ("unknown", "unknown", "unclassified")


TEXTS = st.one_of(
    st.none(),
    st.sampled_from([code for _, code in SPELLED] + ["502", "429", "aborted", "whatever"]),
    st.text(max_size=12),
)
FAILURES = st.builds(
    Failure,
    cancelled=st.booleans(),
    stalled=st.booleans(),
    status=st.one_of(st.none(), st.integers(-1, 1000)),
    code=TEXTS,
    type=TEXTS,
    request_id=st.one_of(st.none(), st.text(max_size=3)),
    transport=st.one_of(st.none(), st.sampled_from(TRANSPORT.split()), st.text(max_size=8)),
    in_stream=st.booleans(),
    body=st.sampled_from([None, "empty", "truncated", "not_event_stream"]),
    server_says=st.sampled_from([None, True, False]),
)


@given(FAILURES)
def test_any_failure_has_one_verdict_and_it_is_a_row_of_the_table(failure: Failure) -> None:
    verdict = verdict_of(failure)
    assert isinstance(verdict, Verdict)
    rows = [row for row in classify._ROWS if (row.kind, row.reason) == (verdict.kind, verdict.reason)]
    assert rows
    if failure.server_says is None:
        assert verdict.diagnosis in {row.diagnosis for row in rows}
    assert (verdict.kind is FailureKind.CANCEL) == failure.cancelled
    assert (verdict.reason is FailureReason.STALL) == (failure.stalled and not failure.cancelled)
    assert (verdict.transport_code is not None) == (verdict.kind is FailureKind.TRANSPORT)


@given(FAILURES, st.text(max_size=3))
def test_the_request_id_changes_nothing(failure: Failure, request_id: str) -> None:
    assert verdict_of(replace(failure, request_id=request_id)) == verdict_of(failure)


def test_the_tables_have_every_row_and_every_code() -> None:
    rows, codes = classification_table().splitlines()[2:], code_table().splitlines()[2:]
    assert len(rows) == len(classify._ROWS)
    assert rows[6] == (
        "| 7 | status 429, or a *rate limit* code without status 413 | `rate_limit` | `retryable` | `rate_limit` |"
    )
    assert [row.split("*")[1] for row in codes] == [each.meaning for each in classify._CODES]
    assert all(f"`{code}`" in "\n".join(codes) for _, code in SPELLED)
    spoken = {part for row in rows for part in row.split("*")[1::2]}
    assert spoken == {each.meaning for each in classify._CODES}
