"""Processes that a program starts: forked, spawned, from a fork server, in a pool; each guards its own calls."""

from __future__ import annotations

import multiprocessing

import pytest

from support.children import spawn
from support.places import Place
from support.traffic import check

pytestmark = pytest.mark.slow

PROGRAM = """
import json, multiprocessing, sys, warnings
from concurrent.futures import ProcessPoolExecutor
from support.traffic import sync_traffic

def main():
    how, base_url = sys.argv[1:]
    # Newer Pythons warn of forks beside threads; pools have threads of their own.
    warnings.simplefilter("ignore", DeprecationWarning)
    told = [sync_traffic(base_url, names=["healthy", "idle", "cancelled"])]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(how)) as pool:
        told += [future.result() for future in [pool.submit(sync_traffic, base_url) for _ in range(2)]]
    told.append(sync_traffic(base_url))
    print(json.dumps(told))

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("how", multiprocessing.get_all_start_methods())
def test_parent_and_workers_guard_their_own_calls(plain: Place, how: str) -> None:
    (told,), err = spawn(PROGRAM, how, plain.base_url).finish(50)
    assert err == ""
    assert len(told) == 4
    for each in told:
        check(each)


OPEN = """
import json, multiprocessing, os, sys, threading, warnings
import openai
from support.places import MESSAGES
from support.telemetry import instrumented
from support.traffic import LIMITS, client_options, sync_traffic, real_time

base_url = sys.argv[1]
warnings.simplefilter("ignore", DeprecationWarning)
with instrumented(**LIMITS) as captured:
    client = openai.OpenAI(**client_options(base_url))
    stream = client.chat.completions.create(model="slow:tokens=8,gap=0.15", messages=MESSAGES, stream=True)
    next(stream)
    said, reading = [], threading.Event()
    def read():
        reading.set()
        said.append(len(list(stream)))
    reader = threading.Thread(target=read)
    reader.start()
    reading.wait()
    child = os.fork()
    if not child:
        # A reader that is blocked in the parent is not here, nor are the parent's helper threads.
        names = {thread.name for thread in threading.enumerate()}
        captured.forget()
        from support.drivers import SYNC
        from support.stage import Stage
        from support.traffic import STORIES, play_at_once, played
        own = openai.OpenAI(**client_options(base_url))
        told = played(play_at_once(Stage(SYNC), own, [n for n, s in STORIES.items() if s.ends != "own"]), captured)
        told["threads"] = sorted(names)
        print(json.dumps(told), flush=True)
        os._exit(0)
    reader.join()
    _, status = os.waitpid(child, 0)
    outcomes = [span.attributes["stallwatch.outcome"] for span in captured.spans]
    print(json.dumps([os.waitstatus_to_exitcode(status), said, outcomes]))
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_child_forked_beside_a_blocked_reader_has_helpers_of_its_own_and_its_parent_goes_on(
    plain: Place,
) -> None:
    (child, parent), err = spawn(OPEN, plain.base_url).finish(40)
    assert err == ""
    assert parent == [0, [9], ["completed"]]
    assert child.pop("threads") == ["MainThread"]
    check(child)
