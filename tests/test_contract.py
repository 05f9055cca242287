"""The check of a new release of the SDK: it finds all in this one, and tells what is gone from another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai._base_client as base
import openai._streaming as streaming
import pytest
from matrix import contract
from openai._models import FinalRequestOptions

Change = Callable[[pytest.MonkeyPatch], None]


def test_nothing_is_missing_from_this_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert contract.main() == 0, capsys.readouterr().out
    assert "AsyncStream.__init__" in capsys.readouterr().out


def _should_retry_is_renamed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(base.BaseClient, "_ought_to_retry", base.BaseClient._should_retry, raising=False)
    patch.delattr(base.BaseClient, "_should_retry")


def _retries_taken_is_renamed(patch: pytest.MonkeyPatch) -> None:
    theirs = base.BaseClient._build_request

    def renamed(self: Any, options: Any, *, attempts_made: int = 0, **more: Any) -> Any:
        return theirs(self, options, **more)

    patch.setattr(base.BaseClient, "_build_request", renamed)


def _streams_keep_their_events_elsewhere(patch: pytest.MonkeyPatch) -> None:
    for kind in (streaming.Stream, streaming.AsyncStream):
        theirs = kind.__init__

        def init(self: Any, *args: Any, theirs: Any = theirs, **kwargs: Any) -> None:
            theirs(self, *args, **kwargs)
            self._events = self.__dict__.pop("_iterator")

        patch.setattr(kind, "__init__", init)
    patch.setattr(streaming.Stream, "__iter__", lambda self: self._events)
    patch.setattr(streaming.AsyncStream, "__aiter__", lambda self: self._events)


def _streams_no_longer_read_through_their_iterator(patch: pytest.MonkeyPatch) -> None:
    theirs = streaming.Stream.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        theirs(self, *args, **kwargs)
        self._events = self._iterator

    patch.setattr(streaming.Stream, "__init__", init)
    patch.setattr(streaming.Stream, "__next__", lambda self: next(self._events))


def _requests_lose_their_extensions(patch: pytest.MonkeyPatch) -> None:
    theirs = base.SyncAPIClient._process_response

    def process(self: Any, **kwargs: Any) -> Any:
        kwargs["response"].request.extensions = {}
        return theirs(self, **kwargs)

    patch.setattr(base.SyncAPIClient, "_process_response", process)


def _options_have_another_name_for_the_body(patch: pytest.MonkeyPatch) -> None:
    theirs = FinalRequestOptions.construct

    def construct(*args: Any, **kwargs: Any) -> Any:
        options = theirs(*args, **kwargs)
        options.__dict__.pop("json_data", None)
        return options

    patch.setattr(contract.FinalRequestOptions, "construct", construct)


@pytest.mark.parametrize(
    ("change", "gone", "carries"),
    [
        (_should_retry_is_renamed, "BaseClient._should_retry is gone", "verdicts on HTTP errors"),
        (_retries_taken_is_renamed, "the parameter 'retries_taken' of BaseClient._build_request", "attempts"),
        (_streams_keep_their_events_elsewhere, "Stream._iterator is gone", "chunks, async: stalls"),
        (
            _streams_no_longer_read_through_their_iterator,
            "reading through Stream._iterator is gone",
            "chunks, sync: stalls",
        ),
        (_requests_lose_their_extensions, "Request.extensions, on the way", "every guard of an answer"),
        (
            _options_have_another_name_for_the_body,
            "FinalRequestOptions.json_data is gone",
            "the model on spans",
        ),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_what_is_gone_is_told_with_what_that_switches_off(
    change: Change,
    gone: str,
    carries: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(monkeypatch)
    assert contract.main() == 1
    told = capsys.readouterr().out
    assert gone in told
    assert carries in told
