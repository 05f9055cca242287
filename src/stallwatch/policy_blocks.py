"""``with stallwatch.policy(...)``: the policy of the calls made inside a block."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from stallwatch.policy import Policy, of_type

__all__ = ["call_layers", "policy", "policy_of_route"]


class _Block:
    """One ``with`` block: told from others by identity, because several may hold the same policy."""

    __slots__ = ("name", "policy")

    def __init__(self, policy: Policy, name: str = "call") -> None:
        self.policy = policy
        self.name = name


_blocks: ContextVar[tuple[_Block, ...]] = ContextVar("stallwatch_policy_blocks", default=())


def call_layers() -> tuple[tuple[str, Policy], ...]:
    """Return the policies of the blocks around, outermost first, each with its layer: a call's own, or its route's."""
    return tuple((block.name, block.policy) for block in _blocks.get())


@contextmanager
def policy(base: Policy | None = None, /, **settings: Any) -> Generator[Policy]:
    """Set the policy of the calls made inside the block, in this thread or task and the tasks it starts.

    Takes a Policy or flat names (``idle=30, first_token=None, mode="observe", max_retries=0``). What counts is the
    moment a call is made: a stream opened inside keeps its policy when it is read outside. A generator that yields
    inside the block lends the policy to whoever consumes it, until it goes on and leaves the block. Raises ValueError
    for bad settings.
    """
    if base is not None and settings:
        raise ValueError("policy() takes a Policy or keywords, not both")
    chosen = Policy.of(**settings) if base is None else base
    of_type("policy", chosen, Policy)
    with _counting(_Block(chosen)):
        yield chosen


@contextmanager
def policy_of_route(chosen: Policy) -> Generator[None]:
    """Set the policy of a router's call on one route."""
    with _counting(_Block(chosen, "route")):
        yield


@contextmanager
def _counting(mine: _Block) -> Generator[None]:
    """Make a block count until it is left."""
    _blocks.set((*_blocks.get(), mine))
    try:
        yield
    finally:
        # Not reset to what was before: blocks of generators may end in any order, and frameworks may leave a block in
        # another context than they entered it in, which perhaps never saw this policy.
        present = _blocks.get()
        if mine in present:
            _blocks.set(tuple(block for block in present if block is not mine))
