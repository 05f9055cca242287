"""Whose service a client speaks to, told by its class and by the host of its base URL.

The names are the well-known values of the conventions, and names in their manner for two large services without one. A
host that is not listed speaks OpenAI's protocol and counts as ``openai``: the attribute tells the flavour of the
telemetry, and ``server.address`` tells who really answered. Only hosts that belong to the service itself are listed,
never a cloud's whole domain: a server of one's own behind it is not the cloud's.
"""

from __future__ import annotations

import re
from functools import lru_cache

from openai.lib.azure import BaseAzureClient

__all__ = ["provider_of"]

_DOMAINS = (
    (r"openai\.azure\.(com|us|cn)", "azure.ai.openai"),
    (r"cognitiveservices\.azure\.(com|us|cn)", "azure.ai.openai"),
    (r"services\.ai\.azure\.(com|us|cn)", "azure.ai.inference"),
    (r"(models|inference)\.ai\.azure\.com", "azure.ai.inference"),
    (r"openai\.com", "openai"),
    (r"deepseek\.com", "deepseek"),
    (r"groq\.com", "groq"),
    (r"x\.ai", "x_ai"),
    (r"mistral\.ai", "mistral_ai"),
    (r"perplexity\.ai", "perplexity"),
    (r"moonshot\.(cn|ai)", "moonshot_ai"),
    (r"anthropic\.com", "anthropic"),
    (r"cohere\.(com|ai)", "cohere"),
    (r"generativelanguage\.googleapis\.com", "gcp.gemini"),
    (r"watsonx\.ai", "ibm.watsonx.ai"),
    (r"ml\.cloud\.ibm\.com", "ibm.watsonx.ai"),
    (r"openrouter\.ai", "openrouter"),
    (r"dashscope(-[a-z]+)?\.aliyuncs\.com", "alibaba.dashscope"),
    (r"maas\.aliyuncs\.com", "alibaba.dashscope"),
)
"""Ends of hosts at a label, and provider names."""

_HOSTS = (
    (r"([a-z0-9-]+-)?aiplatform\.googleapis\.com", "gcp.vertex_ai"),
    (r"bedrock-(runtime|mantle)(-fips)?\.[a-z0-9-]+\.(amazonaws\.com(\.cn)?|api\.aws)", "aws.bedrock"),
)
"""Whole hosts, whose region stands in the middle or is joined by a hyphen."""

_TABLE = (*((rf"(.+\.)?{end}", name) for end, name in _DOMAINS), *_HOSTS)


def provider_of(client: object, host: str) -> str:
    """Return ``gen_ai.provider.name`` of a client whose base URL has this host, in lower case."""
    return "azure.ai.openai" if isinstance(client, BaseAzureClient) else _of_host(host)


@lru_cache(maxsize=256)
def _of_host(host: str) -> str:
    return next((name for pattern, name in _TABLE if re.fullmatch(pattern, host)), "openai")
