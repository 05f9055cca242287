"""What feeds the measurements is what it claims to be, in every release of the SDK."""

from __future__ import annotations

import asyncio

import pytest
from benchmarks.feed import MESSAGES, MODEL, UNEVENTFUL, Feed, answer
from benchmarks.tasks import TASKS


def test_every_token_and_three_more_chunks_reach_the_reader() -> None:
    feed = Feed()
    feed.tokens = 5
    with feed.client() as client:
        chunks = list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
    assert len(chunks) == 5 + UNEVENTFUL
    assert [len(chunk.choices) for chunk in chunks] == [1] * 7 + [0]
    assert chunks[-1].usage is not None


@pytest.mark.parametrize("suspending", [False, True])
def test_asynchronous_readers_get_the_same(suspending: bool) -> None:
    async def read() -> int:
        feed = Feed()
        feed.tokens, feed.suspending = 5, suspending
        async with feed.async_client() as client:
            stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            return len([chunk async for chunk in stream])

    assert asyncio.run(read()) == 5 + UNEVENTFUL


def test_failures_come_before_the_answer() -> None:
    feed = Feed()
    feed.failures = 2
    with feed.client(max_retries=2) as client:
        answered = client.chat.completions.create(model=MODEL, messages=MESSAGES)
        assert answered.choices[0].message.content
        raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES)
    assert raw.retries_taken == 2


def test_chunks_are_about_as_large_as_real_ones() -> None:
    sizes = [len(event) for event in answer(20)[1:-3]]
    assert min(sizes) >= 250
    assert max(sizes) <= 400


@pytest.mark.parametrize("task", ["sync", "async", "waiting", "sync latency", "async latency"])
def test_a_round_finds_positive_costs(task: str) -> None:
    assert all(value > 0 for name, value in TASKS[task]().items() if name != "stream")
