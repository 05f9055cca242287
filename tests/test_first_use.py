"""What is imported on first use only: there all the same, under every name it had."""

from __future__ import annotations

import pytest

from support.children import spawn

READ = {
    "attribute": "import stallwatch; found = stallwatch.Router",
    "from": "from stallwatch import Router as found",
    "star": "from stallwatch import *; found = Router",
    "module": "import stallwatch; found = stallwatch.router.Router",
    "submodule": "from stallwatch.router import Router as found",
    "pickle": "import pickle, stallwatch; found = pickle.loads(b'cstallwatch\\nRouter\\n.')",
}


@pytest.mark.parametrize("how", READ)
def test_the_router_is_found(how: str) -> None:
    program = f"{READ[how]}\nimport json; print(json.dumps([found.__module__, found.__qualname__]))"
    (said,), err = spawn(program).finish(30)
    assert (said, err) == (["stallwatch.router", "Router"], "")


def test_nothing_of_it_is_imported_before() -> None:
    program = """
import json, sys
import stallwatch
stallwatch.OpenAIInstrumentor().instrument(skip_dep_check=True)
listed = {"Router", "AsyncRouter", "Route"} <= set(dir(stallwatch))
LATE = ("stallwatch.rout", "stallwatch.runtime.http2", "tomllib")
early = sorted(name for name in sys.modules if name.startswith(LATE))
try:
    stallwatch.Rooter
except AttributeError as error:
    print(json.dumps([listed, early, str(error)]))
"""
    (said,), err = spawn(program).finish(30)
    assert said == [True, [], "module 'stallwatch' has no attribute 'Rooter'"]
    assert err == ""
