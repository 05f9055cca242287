"""Every built-in scenario, seen by a bare socket: how it begins, what it carries, how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stallwatch.testing import FaultGateway
from stallwatch.testing.scenarios import SCENARIOS
from testing.rawhttp import RawClient, Reply


def _texts(reply: Reply) -> str:
    found = ""
    for event in reply.events:
        if isinstance(event, dict) and event.get("choices"):
            found += event["choices"][0]["delta"].get("content") or ""
    return found


def _deltas(reply: Reply) -> list[Any]:
    return [
        event["choices"][0]["delta"] if event["choices"] else None for event in reply.events if "id" in event
    ]


def _finishes(reply: Reply) -> list[str]:
    events = [event for event in reply.events if isinstance(event, dict) and event.get("choices")]
    return [event["choices"][0]["finish_reason"] for event in events if event["choices"][0]["finish_reason"]]


def _whole(reply: Reply, text: str = "t0 t1 ") -> bool:
    return _texts(reply) == text and _finishes(reply) == ["stop"] and reply.events[-1] == "[DONE]"


CASES: list[tuple[str, str, Callable[[Reply], object]]] = [
    ("healthy:tokens=2,gap=0", "clean", _whole),
    ("healthy:tokens=2,first=0.05", "clean", _whole),
    ("slow:tokens=2,gap=0.02", "clean", _whole),
    ("burst:tokens=300", "clean", lambda r: len(r.chunks) == 303 and r.events[-1] == "[DONE]"),
    ("endless:gap=0.01", "silent", lambda r: r.status == 0),
    ("late-headers:seconds=0.05,tokens=2", "clean", _whole),
    ("drip-headers:every=0.0005,tokens=2", "clean", _whole),
    ("think-silently:seconds=0.05,tokens=2", "clean", _whole),
    (
        "reasoning:count=2,gap=0,tokens=2,content=null",
        "clean",
        lambda r: _whole(r) and _deltas(r)[1] == {"reasoning_content": "r0 ", "content": None},
    ),
    (
        "reasoning:count=1,gap=0,tokens=2,field=reasoning_details",
        "clean",
        lambda r: _deltas(r)[1]["reasoning_details"][0]["text"] == "r0 ",
    ),
    (
        "tool-call:fragments=4,gap=0",
        "clean",
        lambda r: (
            _finishes(r) == ["tool_calls"]
            and _deltas(r)[1]["tool_calls"][0]["function"]["name"] == "write_file"
            and "".join(d["tool_calls"][0]["function"]["arguments"] for d in _deltas(r)[1:-1])
            == '{"text":"f0 f1 "}'
        ),
    ),
    ("structured:tokens=2,gap=0", "clean", lambda r: _texts(r) == '{"answer":"t0 t1 ","count":2}'),
    (
        "azure:tokens=2,gap=0",
        "clean",
        lambda r: (
            r.events[0]["choices"] == []
            and r.events[0]["prompt_filter_results"]
            and r.events[0]["model"] == ""
            and r.events[-2]["usage"]["completion_tokens"] == 2
        ),
    ),
    (
        "usage:form=alone,tokens=2,gap=0",
        "clean",
        lambda r: r.events[-2]["choices"] == [] and r.events[-2]["usage"]["completion_tokens"] == 2,
    ),
    (
        "usage:form=on-finish-and-alone,tokens=2,gap=0",
        "clean",
        lambda r: r.events[-3]["usage"] == r.events[-2]["usage"] and r.events[-3]["choices"],
    ),
    (
        "usage:form=cumulative,tokens=2,gap=0",
        "clean",
        lambda r: [e["usage"]["completion_tokens"] for e in r.events[1:-1]] == [1, 2, 2],
    ),
    ("usage:form=fused,tokens=2,gap=0", "clean", lambda r: _texts(r) == "t0 t1 end"),
    ("usage:form=none,tokens=2,gap=0", "clean", lambda r: _whole(r) and b'"usage"' not in r.body),
    ("silent", "silent", lambda r: r.status == 200 and r.chunks == []),
    ("never-responds", "silent", lambda r: r.status == 0),
    ("stall-after:tokens=2,gap=0", "silent", lambda r: _texts(r) == "t0 t1 " and not _finishes(r)),
    (
        "keepalive:tokens=1,every=0.02,seconds=0.06",
        "silent",
        lambda r: r.events[-3:] == [": keepalive"] * 3 and len(r.events) == 5,
    ),
    (
        "heartbeats:every=0.02,seconds=0.08",
        "silent",
        lambda r: _deltas(r)[1:] == [None, {}, {"content": ""}, None],
    ),
    (
        "heartbeats:every=0.02,seconds=0.06,usage=rising",
        "silent",
        lambda r: (
            [e["usage"]["completion_tokens_details"]["reasoning_tokens"] for e in r.events[1:]] == [8, 16, 24]
        ),
    ),
    (
        "heartbeats:every=0.02,seconds=0.04,usage=unchanged",
        "silent",
        lambda r: (
            [e["usage"]["completion_tokens_details"]["reasoning_tokens"] for e in r.events[1:]] == [8, 8]
        ),
    ),
    ("role-then-finish", "clean", lambda r: _whole(r, "")),
    (
        "finish-then-silence:tokens=1,gap=0",
        "silent",
        lambda r: _finishes(r) == ["stop"] and r.events[-1] != "[DONE]",
    ),
    ("done-then-linger:tokens=2,gap=0", "silent", _whole),
    ("truncated:tokens=2,gap=0", "clean", lambda r: _texts(r) == "t0 t1 " and not _finishes(r)),
    ("cut:tokens=2,gap=0.02", "fin", lambda r: _texts(r) == "t0 t1 "),
    ("reset:tokens=2,gap=0.02", "rst", lambda r: _texts(r) == "t0 t1 "),
    (
        "close-delimited:tokens=2,gap=0",
        "clean",
        lambda r: _whole(r) and "transfer-encoding" not in r.headers and "content-length" not in r.headers,
    ),
    ("error-frame", "clean", lambda r: r.events[0]["error"]["code"] == 502),
    (
        "error-frame:tokens=2,gap=0,code=overloaded",
        "clean",
        lambda r: r.events[3]["error"]["code"] == "overloaded",
    ),
    (
        "error-frame:style=choices",
        "clean",
        lambda r: r.events[0]["choices"] == [] and r.events[0]["error"] and r.events[1] == "[DONE]",
    ),
    (
        "error-status:code=429,retry_after=600",
        "clean",
        lambda r: (
            r.status == 429
            and r.headers["retry-after"] == "600"
            and r.json["error"]["type"] == "rate_limit_error"
        ),
    ),
    (
        "error-status:code=429,retry_after=date+1",
        "clean",
        lambda r: r.headers["retry-after"].endswith(" GMT"),
    ),
    (
        "error-status:code=503,retry_after_ms=250",
        "clean",
        lambda r: r.headers["retry-after-ms"] == "250" and "retry-after" not in r.headers,
    ),
    ("error-status:code=400,echo=prompt", "clean", lambda r: "hello" in r.json["error"]["message"]),
    ("flaky:code=502", "clean", lambda r: r.status == 502),
    (
        "non-sse",
        "clean",
        lambda r: (
            r.status == 200 and r.headers["content-type"].startswith("text/html") and b"<html>" in r.body
        ),
    ),
]

_FOR_EVER = ("endless:gap=0.01",)


def test_the_table_has_every_scenario() -> None:
    assert {model.split(":")[0] for model, _, _ in CASES} == set(SCENARIOS)


@pytest.mark.parametrize(
    ("model", "ended", "holds"),
    [case for case in CASES if case[0] not in _FOR_EVER],
    ids=lambda value: str(value)[:50],
)
def test_a_scenario_shows_on_the_wire(
    gateway: FaultGateway, model: str, ended: str, holds: Callable[[Reply], object]
) -> None:
    with RawClient(gateway.port, patience=0.3 if ended == "silent" else 5) as client:
        reply = client.model(model).reply()
    assert reply.ended == ended
    assert holds(reply), reply


def test_endless_goes_on_until_the_client_leaves(gateway: FaultGateway) -> None:
    with RawClient(gateway.port) as client:
        client.model("endless:gap=0.001")
        gateway.wait_for(lambda ledger: ledger.requests and ledger.requests[0].count("token") > 20)
    ledger = gateway.wait_for(lambda ledger: ledger.requests[0].peer_closed_at)
    assert ledger.requests[0].completed_at is None


def test_every_event_is_a_chunk_of_its_own(gateway: FaultGateway) -> None:
    with RawClient(gateway.port) as client:
        reply = client.model("healthy:tokens=20,gap=0").reply()
    assert [chunk.count(b"\n\n") for chunk in reply.chunks] == [1] * 23
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["x-request-id"] == gateway.ledger().requests[0].request_id


@pytest.mark.parametrize("asked", [True, False])
def test_usage_is_sent_only_if_asked(gateway: FaultGateway, asked: bool) -> None:
    with RawClient(gateway.port) as client:
        reply = client.model("healthy:gap=0", stream_options={"include_usage": asked}).reply()
    chunks = [event for event in reply.events if event != "[DONE]"]
    if asked:
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] == 5
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
    else:
        assert all("usage" not in chunk for chunk in chunks)


def test_attempts_are_counted_per_model_name(gateway: FaultGateway) -> None:
    with RawClient(gateway.port) as client:
        statuses = [client.model("flaky:times=2,gap=0,id=a").reply().status for _ in range(4)]
        other = client.model("flaky:times=2,gap=0,id=b").reply().status
    assert statuses == [503, 503, 200, 200]
    assert other == 503
    assert [request.attempt for request in gateway.ledger().requests] == [0, 1, 2, 3, 0]


def test_a_chain_of_scenarios_is_one_per_attempt(gateway: FaultGateway) -> None:
    model = "error-status:code=503>cut:tokens=1>healthy:tokens=2,gap=0"
    replies = []
    for _ in range(4):
        with RawClient(gateway.port) as client:
            replies.append(client.model(model).reply())
    assert [reply.status for reply in replies] == [503, 200, 200, 200]
    assert [reply.ended for reply in replies] == ["clean", "fin", "clean", "clean"]
    assert _whole(replies[3])


def test_what_does_not_stream_plays_the_same_script(gateway: FaultGateway) -> None:
    with RawClient(gateway.port, patience=0.2) as client:
        reply = client.model("reasoning:count=2,gap=0.01", stream=False).reply()
        message = reply.json["choices"][0]["message"]
        assert message["content"] == "t0 t1 t2 "
        assert message["reasoning_content"] == "r0 r1 "
        assert reply.json["usage"]["completion_tokens"] == 5
        assert client.model("error-frame", stream=False).reply().json["error"]["code"] == 502
        assert (
            client.model("done-then-linger", stream=False).reply().json["choices"][0]["finish_reason"]
            == "stop"
        )
    for model, ended, size in (("cut", "fin", 10), ("reset", "rst", 0), ("never-responds", "silent", 0)):
        with RawClient(gateway.port, patience=0.2) as client:
            reply = client.model(model, stream=False).reply()
            assert (reply.ended, len(reply.body) >= size) == (ended, True), model
    with RawClient(gateway.port, patience=0.2) as client:
        reply = client.model("silent", stream=False).reply()
        assert (reply.status, reply.ended, reply.body) == (200, "silent", b"")


def test_keepalives_of_what_does_not_stream_are_blank_lines(gateway: FaultGateway) -> None:
    from stallwatch.testing import Comments, Finish, Role, Token

    gateway.script("m", [Role(), Comments(0.01, 0.03), Token("hi"), Finish()])
    with RawClient(gateway.port) as client:
        reply = client.model("m", stream=False).reply()
    assert reply.body.startswith(b"\n\n\n{")
    assert reply.json["choices"][0]["message"]["content"] == "hi"
