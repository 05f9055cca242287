"""The gateway's scenarios, at gaps that take no time, and what each is to the caller."""

from __future__ import annotations

__all__ = ["LEAVING", "QUIET", "SAME", "STALLS", "WITH_RETRIES"]

SAME = (
    "healthy:tokens=3,gap=0",
    "healthy:tokens=2,gap=0.002,first=0.01",
    "slow:tokens=3,gap=0.004",
    "burst:tokens=64",
    "late-headers:seconds=0.02,tokens=2,gap=0",
    "drip-headers:every=0.001,size=30,tokens=2,gap=0",
    "think-silently:seconds=0.02,tokens=2,gap=0",
    "reasoning:count=2,gap=0,tokens=2",
    "reasoning:count=2,gap=0,tokens=2,field=reasoning,content=null",
    "reasoning:count=2,gap=0,tokens=2,field=reasoning_details,content=empty",
    "tool-call:fragments=4,gap=0",
    "structured:tokens=2,gap=0",
    "azure:tokens=2,gap=0",
    "usage:form=alone,tokens=2,gap=0",
    "usage:form=on-finish-and-alone,tokens=2,gap=0",
    "usage:form=cumulative,tokens=2,gap=0",
    "usage:form=fused,tokens=2,gap=0",
    "usage:form=none,tokens=2,gap=0",
    "role-then-finish",
    "truncated:tokens=2,gap=0",
    "truncated:tokens=0",
    "cut:tokens=2,gap=0",
    "cut:tokens=0,gap=0",
    "reset:tokens=2,gap=0.03",
    "reset:tokens=0,gap=0.03",
    "close-delimited:tokens=2,gap=0",
    "error-frame",
    "error-frame:style=choices",
    "error-frame:style=failed",
    "error-frame:tokens=2,gap=0",
    "error-frame:style=choices,tokens=2,gap=0",
    "error-frame:style=failed,tokens=2,gap=0,code=server_error",
    "error-status:code=400,echo=prompt",
    "error-status:code=401,echo=key",
    "error-status:code=429,retry_after=1",
    "error-status:code=500",
    "flaky:code=503,retry_after_ms=1,tokens=2,gap=0",
    "non-sse",
    "no-such-scenario",
)
"""Not a stall: what the bare SDK does is right."""

WITH_RETRIES = (
    "healthy:tokens=3,gap=0",
    "slow:tokens=2,gap=0.004",
    "reasoning:count=2,gap=0,tokens=2",
    "azure:tokens=2,gap=0",
    "cut:tokens=2,gap=0",
    "close-delimited:tokens=2,gap=0",
    "error-frame:tokens=2,gap=0",
    "error-status:code=400",
    "error-status:code=503,retry_after_ms=1>healthy:tokens=2,gap=0",
    "flaky:code=429,retry_after_ms=1,tokens=2,gap=0",
    "non-sse",
)
"""The same of a client that may try again; none fails before its first event in a way that we would try again."""

QUIET = (
    "finish-then-silence:tokens=2,gap=0",
    "done-then-linger:tokens=2,gap=0",
)
"""A whole answer whose body does not end; we end it, with what has come."""

STALLS = (
    "silent",
    "never-responds",
    "stall-after:tokens=2,gap=0",
    "keepalive:tokens=2,gap=0,every=0.05",
    "heartbeats:tokens=0,every=0.05",
    "heartbeats:tokens=2,gap=0,every=0.05",
)

LEAVING = ("endless:gap=0.002",)
"""What has no end is left after some items."""
