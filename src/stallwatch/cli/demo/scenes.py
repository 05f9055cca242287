"""The ten scenes, as data: what the server does, and what must come of it.

The limits are the built-in ones at one hundredth, so that minutes pass in seconds: 1.2 s stands for 120 s of silence,
3 s for the 300 s of a model that thinks in silence. Each ``model`` and ``backup`` is a scenario name of the fault
gateway, and none is used twice: by it the gateway's ledger tells the scenes apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stallwatch.core.words import AttemptRole, Phase, Wire

__all__ = [
    "LIMIT",
    "PLAIN_PROGRAM",
    "POLICY_FILE",
    "ROUTED_PROGRAM",
    "SCENES",
    "SETTINGS",
    "STILL_WAITING",
    "THINKER_LIMIT",
    "Scene",
]

Api = Literal["sync", "async"]

LIMIT = 1.2
THINKER_LIMIT = 3.0
HEDGE = 0.4
"""Seconds the first route may be without progress before a second one is asked beside it."""

PLAIN_PROGRAM = "program.py"
ROUTED_PROGRAM = "routed_program.py"

STILL_WAITING = 4.0
"""Seconds after which the demo ends a bare run that would wait on."""

SETTINGS = {
    "STALLWATCH_FIRST_TOKEN_TIMEOUT": f"{LIMIT}s",
    "STALLWATCH_THINKING_TIMEOUT": f"{LIMIT}s",
    "STALLWATCH_IDLE_TIMEOUT": f"{LIMIT}s",
    "STALLWATCH_TOTAL_TIMEOUT": "36s",
    "STALLWATCH_MAX_RETRIES": "0",
}
"""What the guarded programs are given, beside the policy file. Retries are off where they are not the subject, so that
each wait shows once."""

POLICY_FILE = f"""\
[[rule]]
name = "silent thinkers"
model = "think-silently*"
first_token = {THINKER_LIMIT}
thinking = {THINKER_LIMIT}

[[rule]]
name = "one retry"
model = "silent>*"
max_retries = 1
"""
"""The first rule stands for the built-in list of models that think in silence; the gateway's model names are not on it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One stream story.

    ``allowed`` is the wait after which an attempt must be cut: the limit, or its keepalive extension. ``answered_by``
    is the attempt whose answer the guarded program must get. With a ``backup`` the guarded program has a second route,
    asked beside the first after ``hedge`` seconds if that is set, else after a failure.
    """

    name: str
    title: str
    server: str
    expected: str
    bare: str
    model: str
    api: Api
    must_be_cut: bool = False
    answered_by: AttemptRole = AttemptRole.FIRST
    backup: str | None = None
    hedge: float | None = None
    phase: Phase | None = None
    wire: Wire | None = None
    limit: float = LIMIT
    allowed: float = LIMIT
    pause: float = 0.0
    pause_after: tuple[int, ...] = ()

    @property
    def must_recover(self) -> bool:
        """Whether an attempt after the first must save the call."""
        return self.answered_by is not AttemptRole.FIRST

    @property
    def is_healthy(self) -> bool:
        """Whether the guard has nothing to do."""
        return not (self.must_be_cut or self.must_recover)

    @property
    def models(self) -> tuple[str, ...]:
        """The model names of its requests."""
        return (self.model,) if self.backup is None else (self.model, self.backup)

    def program(self, guarded: bool) -> str:
        """Return the file name of the program: only with a guard there can be routes."""
        return ROUTED_PROGRAM if guarded and self.backup is not None else PLAIN_PROGRAM

    def arguments(self, guarded: bool) -> tuple[str, ...]:
        """Return the program's command line, after its path."""
        pauses = [str(number) for number in self.pause_after]
        reader = ("--pause", f"{self.pause:g}", "--pause-after", *pauses) if pauses else ()
        routes: tuple[str, ...] = ()
        if guarded and self.backup is not None:
            hedge = () if self.hedge is None else ("--hedge", f"{self.hedge:g}")
            routes = ("--backup", self.backup, *hedge)
        return ("--model", self.model, "--api", self.api, *reader, *routes)


SCENES: tuple[Scene, ...] = (
    Scene(
        name="silent-after-200",
        title="Silent after 200",
        server="The gateway answers 200 and then says nothing, as when the model behind it has died.",
        expected=f"Aborted after {LIMIT:g} s without a byte.",
        bare="Waits for the SDK's read timeout: 10 minutes.",
        model="silent",
        api="async",
        must_be_cut=True,
        phase=Phase.FIRST_TOKEN,
        wire=Wire.DEAD_WIRE,
    ),
    Scene(
        name="stall-mid-answer",
        title="Stall in mid-answer",
        server="A few tokens, then nothing more; the socket stays open.",
        expected=f"Aborted {LIMIT:g} s after the last token.",
        bare="Waits for the SDK's read timeout: 10 minutes.",
        model="stall-after:tokens=8,gap=0.06",
        api="sync",
        must_be_cut=True,
        phase=Phase.IDLE,
        wire=Wire.DEAD_WIRE,
    ),
    Scene(
        name="keepalive-comments",
        title="Keepalives on a dead stream",
        server="A few tokens, then only SSE comments: a proxy keeps the connection warm, the model is gone.",
        expected=f"Aborted {LIMIT:g} s after the last token: comments are no progress.",
        bare="Waits for ever: each comment restarts the read timeout.",
        model="keepalive:tokens=5,gap=0.06,every=0.25",
        api="async",
        must_be_cut=True,
        phase=Phase.IDLE,
        wire=Wire.KEEPALIVE_ONLY,
    ),
    Scene(
        name="empty-deltas",
        title="Empty-delta heartbeats",
        server="The role, then only well-formed chunks that carry nothing, and never a first token.",
        expected=f"Aborted after {2 * LIMIT:g} s: signs of life double the limit, once.",
        bare="Waits for ever: each empty chunk restarts the read timeout.",
        model="heartbeats:every=0.3",
        api="sync",
        must_be_cut=True,
        phase=Phase.FIRST_TOKEN,
        wire=Wire.HEARTBEAT_ONLY,
        allowed=2 * LIMIT,
    ),
    Scene(
        name="retry",
        title="Retry of a silent answer",
        server="Answers 200 and says nothing the first time; answers well the second time.",
        expected=f"Aborted after {LIMIT:g} s, asked again, and answered in full.",
        bare="Waits for the SDK's read timeout: 10 minutes. Its own retries end with the headers.",
        model="silent>slow:tokens=12,gap=0.05",
        api="sync",
        answered_by=AttemptRole.RETRY,
        phase=Phase.FIRST_TOKEN,
        wire=Wire.DEAD_WIRE,
    ),
    Scene(
        name="fallback",
        title="Fallback to another route",
        server="The first route sends the role and dies; a second one is healthy.",
        expected=f"Aborted after {LIMIT:g} s without a token, and the second route asked at once.",
        bare="Knows one route, and waits for the SDK's read timeout: 10 minutes.",
        model="stall-after:tokens=0",
        backup="slow:tokens=14,gap=0.05",
        api="async",
        answered_by=AttemptRole.FALLBACK,
        phase=Phase.FIRST_TOKEN,
        wire=Wire.DEAD_WIRE,
    ),
    Scene(
        name="hedge",
        title="Hedge against a slow route",
        server="The first route takes the request and does not reply; a second one is healthy.",
        expected=f"After {HEDGE:g} s the second route is asked beside the first. It wins, and the first is closed.",
        bare="Waits for the SDK's read timeout, and twice more with its own retries: 30 minutes.",
        model="never-responds",
        backup="slow:tokens=16,gap=0.05",
        hedge=HEDGE,
        api="sync",
        answered_by=AttemptRole.HEDGE,
    ),
    Scene(
        name="silent-thinker",
        title="Silently reasoning model",
        server="Thinks for 2.2 s without a byte, then answers. Healthy.",
        expected=f"Not cut: a rule grants such models {THINKER_LIMIT:g} s.",
        bare="There is no limit to run into.",
        model="think-silently:seconds=2.2,tokens=14,gap=0.06",
        api="async",
        limit=THINKER_LIMIT,
        allowed=THINKER_LIMIT,
    ),
    Scene(
        name="slow-reader",
        title="Slow reader",
        server="Streams at once; the program stops reading for 1.6 s, twice. Healthy.",
        expected="Not cut: the reader's own pauses are not charged.",
        bare="There is no limit to run into.",
        model="healthy:tokens=16,gap=0.05",
        api="sync",
        pause=1.6,
        pause_after=(4, 9),
    ),
    Scene(
        name="healthy",
        title="Healthy stream",
        server="Tokens at a steady pace, finish reason, end.",
        expected="Not cut, and the same text as without the guard.",
        bare="There is no limit to run into.",
        model="slow:tokens=24,gap=0.07,first=0.3",
        api="async",
    ),
)
