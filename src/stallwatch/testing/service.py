"""What the gateway answers: a script for a model, the list of models, a stored response, the ledger."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from stallwatch.testing import steps as do
from stallwatch.testing.audio_wire import SpeechEventsForm, SpeechForm, TranscriptForm
from stallwatch.testing.calls import RESET_PATH, BadCall, Call, Incoming, read_call
from stallwatch.testing.chat_wire import ChatForm, CompletionForm
from stallwatch.testing.connection import Connection
from stallwatch.testing.embeddings_wire import EmbeddingsForm
from stallwatch.testing.entries import RequestEntry
from stallwatch.testing.exchange import Exchange
from stallwatch.testing.images_wire import ImagesForm
from stallwatch.testing.journal import Journal
from stallwatch.testing.ledger import Sent
from stallwatch.testing.responses_wire import ResponsesForm
from stallwatch.testing.runs_wire import RunsForm
from stallwatch.testing.scenario_grammar import parse_model
from stallwatch.testing.scenarios import SCENARIOS
from stallwatch.testing.wire import AnswerContext, Form, encode

_KEPT_RESPONSES = 256
_PREFIXES = {
    "chat": "chatcmpl",
    "completions": "cmpl",
    "responses": "resp",
    "embeddings": "embd",
    "images": "img",
    "image-edits": "img",
    "speech": "speech",
    "transcriptions": "transcript",
    "runs": "run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a model name stands for: the steps of each attempt, the last for all further ones."""

    scenario: str
    attempts: tuple[tuple[do.Step, ...], ...]
    by_header: bool = False


class Service:
    """Answers requests; shared by all connections of a gateway."""

    def __init__(self, journal: Journal, default: str | None) -> None:
        self._journal = journal
        self._default = (
            None if default is None else Script(scenario=default, attempts=parse_model(default, SCENARIOS))
        )
        self._scripts: dict[str, Script] = {}
        self._stored: OrderedDict[str, str] = OrderedDict()
        self._numbers = count(1)

    def script(self, model: str, attempts: Sequence[Sequence[do.Step] | str], *, by_header: bool) -> None:
        """Let a model name stand for these attempts; a string is a scenario, with parameters."""
        lists: list[tuple[do.Step, ...]] = []
        names: list[str] = []
        for attempt in attempts:
            lists += parse_model(attempt, SCENARIOS) if isinstance(attempt, str) else [tuple(attempt)]
            names.append(attempt if isinstance(attempt, str) else "script")
        self._scripts[model] = Script(scenario=">".join(names), attempts=tuple(lists), by_header=by_header)

    def store(self, model: str, api: Literal["responses", "runs"]) -> str:
        """Keep an answer of this model as if it had been made, and return its id."""
        self._find(model)
        answer_id = self._new_id(api)
        self._store(answer_id, model)
        return answer_id

    def _new_id(self, api: str) -> str:
        return f"{_PREFIXES[api]}_gateway{next(self._numbers):06d}"

    def _find(self, model: str) -> Script:
        if model in self._scripts:
            return self._scripts[model]
        try:
            return Script(scenario=model, attempts=parse_model(model, SCENARIOS))
        except BadCall as problem:
            if self._default is None or problem.status != 404:
                raise
            return self._default

    async def answer(self, connection: Connection, incoming: Incoming) -> bool:
        """Answer one request; return whether the connection may bring another."""
        try:
            call = read_call(incoming)
        except BadCall as problem:
            return await self._refuse(connection, incoming, Call(api="none"), problem)
        if call.api == "ledger":
            return await self._ledger(connection, incoming)
        try:
            if call.api == "models":
                return await self._models(connection, incoming, call)
            return await self._generate(connection, incoming, call)
        except BadCall as problem:
            return await self._refuse(connection, incoming, call, problem)

    # --- the kinds of answers ---

    async def _generate(self, connection: Connection, incoming: Incoming, call: Call) -> bool:
        model = call.model if call.stored_id is None else self._stored.get(call.stored_id)
        if model is None:
            name = "run_id" if call.api == "runs" else "response_id"
            raise BadCall(404, f"{name}: {call.stored_id!r} was not made here", param=name)
        script = self._find(model)
        attempt = self._journal.next_attempt(model)
        index = incoming.retry_count if script.by_header and incoming.retry_count is not None else attempt
        entry = self._record(
            connection, incoming, call, model=model, scenario=script.scenario, attempt=attempt
        )
        exchange = Exchange(line=connection, incoming=incoming, entry=entry, journal=self._journal)
        context = AnswerContext(
            model=model,
            answer_id=call.stored_id or self._new_id(call.api),
            include_usage=call.include_usage,
            body=call.body,
        )
        if call.api in ("responses", "runs"):
            self._store(context.answer_id, model)
        steps = script.attempts[min(index, len(script.attempts) - 1)]
        stream = call.stream and call.api != "embeddings"
        await exchange.play(steps, _form(call, context), stream=stream, body=call.body)
        return exchange.reusable

    def _store(self, answer_id: str, model: str) -> None:
        self._stored[answer_id] = model
        while len(self._stored) > _KEPT_RESPONSES:
            self._stored.popitem(last=False)

    async def _models(self, connection: Connection, incoming: Incoming, call: Call) -> bool:
        names = [*self._scripts, *SCENARIOS]
        entries = [{"id": name, "object": "model", "created": 0, "owned_by": "stallwatch"} for name in names]
        body: dict[str, object] = {"object": "list", "data": entries}
        if call.model is not None:
            self._find(call.model)
            body = {"id": call.model, "object": "model", "created": 0, "owned_by": "stallwatch"}
        return await self._reply(connection, incoming, call, 200, body)

    async def _refuse(self, connection: Connection, incoming: Incoming, call: Call, problem: BadCall) -> bool:
        return await self._reply(connection, incoming, call, problem.status, problem.body())

    async def _reply(
        self, connection: Connection, incoming: Incoming, call: Call, status: int, body: dict[str, object]
    ) -> bool:
        entry = self._record(connection, incoming, call, model=call.model, scenario=None, attempt=0)
        exchange = Exchange(line=connection, incoming=incoming, entry=entry, journal=self._journal)
        await exchange.reply(status, body)
        return exchange.reusable

    async def _ledger(self, connection: Connection, incoming: Incoming) -> bool:
        self._journal.hide(connection.entry)
        if incoming.path == RESET_PATH:
            self._journal.reset()
            body = encode({"reset": True})
        else:
            body = self._journal.snapshot().to_json().encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.write(head.encode() + body)
        await connection.drain()
        return incoming.headers.get("connection", "").lower() != "close"

    def _record(
        self,
        connection: Connection,
        incoming: Incoming,
        call: Call,
        *,
        model: str | None,
        scenario: str | None,
        attempt: int,
    ) -> RequestEntry:
        def make(number: int, sent: deque[Sent]) -> RequestEntry:
            return RequestEntry(
                number=number,
                connection=connection.entry.number,
                method=incoming.method,
                path=incoming.path,
                query_names=tuple(incoming.query),
                api=call.api,
                model=model,
                scenario=scenario,
                stream=call.stream,
                attempt=attempt,
                retry_count=incoming.retry_count,
                received_at=time.monotonic(),
                headers=incoming.masked_headers(),
                body_bytes=len(incoming.body),
                request_id=f"req_gateway{number:06d}",
                sent=sent,
            )

        return self._journal.request_received(connection.entry, make)


def _form(call: Call, context: AnswerContext) -> Form:
    match call.api:
        case "responses":
            return ResponsesForm(context, starting_after=call.starting_after)
        case "completions":
            return CompletionForm(context)
        case "embeddings":
            return EmbeddingsForm(context)
        case "images":
            return ImagesForm(context, "image_generation")
        case "image-edits":
            return ImagesForm(context, "image_edit")
        case "speech":
            return SpeechEventsForm() if call.body.get("stream_format") == "sse" else SpeechForm()
        case "transcriptions":
            return TranscriptForm()
        case "runs":
            return RunsForm(context, call.thread_id)
        case _:
            return ChatForm(context)
