"""What the runs of a process share of a route."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from stallwatch.core.budget import LONGEST_SERVER_WAIT, PER_MINUTE
from stallwatch.core.pacing import BURST, SPACING
from stallwatch.runtime.routes import CAPACITY, Proposal, Route, Routes, forget_routes, route_of
from support.children import spawn

KEY = ("https://api.example.com:443", "gpt-4o")


def propose(
    route: Route, now: float = 100.0, *, retry: int = 0, server_wait: float | None = None, random: float = 0.0
) -> Proposal:
    return route.propose(retry=retry, server_wait=server_wait, now=now, random=random)


def drained(route: Route, now: float = 100.0) -> int:
    """Propose until the budget is spent; return how often there was some left."""
    proposed = 0
    while propose(route, now).budget_left:
        proposed += 1
    return proposed


# One step


@pytest.mark.parametrize(
    ("retry", "server_wait", "random", "delay"),
    [(0, None, 0.0, 0.5), (2, None, 0.5, 1.75), (0, 0.25, 0.5, 0.25), (3, 60.0, 0.5, 60.0)],
)
def test_the_servers_wish_comes_before_the_back_off(
    retry: int, server_wait: float | None, random: float, delay: float
) -> None:
    proposal = propose(Route(), retry=retry, server_wait=server_wait, random=random)
    assert (proposal.delay, proposal.server_wait) == (delay, server_wait)
    assert (proposal.paced, proposal.budget_left) == (False, True)


def test_runs_that_were_told_to_wait_come_back_one_after_another() -> None:
    route = Route()
    proposals = [propose(route, server_wait=20.0) for _ in range(5)]
    assert [proposal.delay for proposal in proposals] == pytest.approx([20, 20.1, 20.2, 20.3, 20.4])
    assert [proposal.paced for proposal in proposals] == [False, True, True, True, True]


def test_a_burst_of_failures_makes_retries_queue_until_a_success() -> None:
    route = Route()
    assert [propose(route).delay for _ in range(BURST + 1)] == pytest.approx([0.5] * BURST + [0.6])
    route.on_success(101)
    assert propose(route, 101).delay == 0.5


def test_calls_add_to_the_budget() -> None:
    route = Route()
    for _ in range(10):
        route.on_call(100)
    assert drained(route) == PER_MINUTE + 2


def test_retries_of_the_sdk_are_counted_and_refused_nothing() -> None:
    route = Route()
    for _ in range(4):
        assert route.count(100, delay=0.5).budget_left
    assert drained(route) == PER_MINUTE - 4
    assert route.count(100, delay=0.5).budget_left


def test_retries_of_the_sdk_queue_with_the_others() -> None:
    route = Route()
    told = route.count(100, delay=30.0, server_wait=30.0)
    assert (told.delay, told.server_wait, told.paced) == (30, 30, False)
    assert propose(route).delay == pytest.approx(30.1)
    later = route.count(100, delay=1.0)
    assert (later.delay, later.paced) == (pytest.approx(30.2), True)


def test_failures_the_sdk_retries_are_part_of_a_burst() -> None:
    route = Route()
    for _ in range(BURST - 1):
        route.count(100, delay=3.0)
    assert [propose(route).delay for _ in range(2)] == pytest.approx([0.5, 0.6])


def test_where_the_queue_is_too_long_the_sdk_waits_as_it_would_by_itself() -> None:
    route = Route()
    for _ in range(100):
        route.count(100, delay=115.0, server_wait=115.0)
    crowded_out = route.count(100, delay=2.0)
    assert (crowded_out.delay, crowded_out.paced) == (2, False)


def test_a_retry_the_sdk_will_not_make_gives_back_only_what_it_drew() -> None:
    route = Route()
    first = route.count(100, delay=1.0, server_wait=1.0)
    route.give_back(first, 100)
    assert drained(route) == PER_MINUTE
    assert propose(route, server_wait=1.0).delay == 1
    route.give_back(route.count(100, delay=1.0), 100)
    assert not propose(route).budget_left


# What is not used


def test_without_budget_nothing_is_reserved() -> None:
    route = Route()
    granted = [propose(route, server_wait=20.0) for _ in range(10)]
    refused = propose(route, server_wait=20.0)
    assert (refused.delay, refused.paced, refused.budget_left) == (20, False, False)
    route.give_back(refused, 100)
    assert not propose(route).budget_left
    assert route.count(100, delay=20.0).delay == pytest.approx(granted[-1].delay + SPACING)


def test_what_is_given_back_may_be_had_again_once() -> None:
    route = Route()
    first, second = propose(route, server_wait=20.0), propose(route, server_wait=20.0)
    drained(route)
    assert (first.delay, second.delay) == pytest.approx((20, 20.1))
    for _ in range(3):
        route.give_back(first, 100)
    again = propose(route, server_wait=20.0)
    assert (again.delay, again.budget_left) == (20, True)
    assert not propose(route).budget_left
    route.give_back(first, 100)
    assert not propose(route).budget_left


@pytest.mark.parametrize("server_wait", [120.1, 600.0, 1e6])
def test_a_wait_that_nobody_sleeps_costs_the_route_nothing(server_wait: float) -> None:
    route = Route()
    for _ in range(50):
        proposal = propose(route, server_wait=server_wait)
        assert (proposal.delay, proposal.budget_left) == (server_wait, True)
    assert route._budget.left(100) == PER_MINUTE
    route.on_success(100)
    assert propose(route).delay == 0.5


def test_a_queue_that_is_too_long_costs_the_budget_nothing() -> None:
    route = Route()
    room = round((LONGEST_SERVER_WAIT - 119) / SPACING) + 1
    for _ in range(100):
        route.on_call(100)
    proposals = [propose(route, server_wait=119.0) for _ in range(100)]
    assert sum(proposal.delay <= LONGEST_SERVER_WAIT for proposal in proposals) == room
    assert all(proposal.budget_left for proposal in proposals)
    for proposal in proposals[room:]:
        route.give_back(proposal, 100)
    assert route._budget.left(100) == pytest.approx(PER_MINUTE + 20 - room)


# The list


def test_a_route_is_the_same_for_all_who_ask_for_it() -> None:
    routes = Routes()
    assert routes.of(KEY) is routes.of((KEY[0], KEY[1]))
    assert routes.of(KEY) is not routes.of((KEY[0], "gpt-5"))
    assert routes.of(KEY) is not routes.of((KEY[0], None))


def test_the_routes_used_last_are_kept() -> None:
    routes = Routes(capacity=3)
    first, second, _ = (routes.of(("http://a:1", model)) for model in "123")
    assert routes.of(("http://a:1", "1")) is first
    routes.of(("http://a:1", "4"))
    assert len(routes) == 3
    assert routes.of(("http://a:1", "1")) is first
    assert routes.of(("http://a:1", "2")) is not second


def test_however_many_there_are_the_list_stays_short() -> None:
    routes = Routes()
    for number in range(2 * CAPACITY):
        routes.of((KEY[0], str(number)))
    assert len(routes) == CAPACITY


def test_a_process_has_one_list() -> None:
    mine = route_of(KEY)
    assert route_of(KEY) is mine
    forget_routes()
    assert route_of(KEY) is not mine


# Threads and forks


def in_threads(work: Callable[[], list[Proposal]], threads: int = 8) -> list[Proposal]:
    barrier = threading.Barrier(threads)

    def begin(_: int) -> list[Proposal]:
        barrier.wait(10)
        return work()

    with ThreadPoolExecutor(threads) as pool:
        return [proposal for found in pool.map(begin, range(threads)) for proposal in found]


def test_of_many_threads_no_two_get_the_same_slot_and_none_more_than_the_budget() -> None:
    routes = Routes()
    for _ in range(500):
        routes.of(KEY).on_call(100)

    def work() -> list[Proposal]:
        return [propose(routes.of(KEY), server_wait=10.0) for _ in range(50)]

    granted = sorted(proposal.delay for proposal in in_threads(work) if proposal.budget_left)
    assert granted == pytest.approx([10 + SPACING * number for number in range(110)])


def test_of_many_threads_that_give_back_the_same_one_does() -> None:
    route = Route()
    proposal = propose(route, server_wait=10.0)
    drained(route)

    def work() -> list[Proposal]:
        route.give_back(proposal, 100)
        return []

    in_threads(work)
    assert propose(route).budget_left
    assert not propose(route).budget_left


FORK = """
import json, os, threading
from stallwatch.runtime import routes

KEY = ("http://127.0.0.1:1", "m")
mine = routes.route_of(KEY)
while mine.propose(retry=0, server_wait=None, now=100.0, random=0.0).budget_left:
    pass
held, leave = threading.Event(), threading.Event()

def hold():
    with mine._lock, routes._routes._lock:
        held.set()
        leave.wait(10)

thread = threading.Thread(target=hold)
thread.start()
held.wait(10)
child = os.fork()
if not child:
    new = routes.route_of(KEY)
    fresh = new.propose(retry=0, server_wait=None, now=100.0, random=0.0).budget_left
    old = mine.propose(retry=0, server_wait=None, now=100.0, random=0.0).budget_left
    os._exit(0 if new is not mine and fresh and not old else 3)
leave.set()
thread.join(10)
_, status = os.waitpid(child, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), routes.route_of(KEY) is mine]))
"""


def test_a_forked_child_begins_anew_whoever_held_the_locks() -> None:
    said, _ = spawn(FORK).finish()
    assert said == [[0, True]]
