"""Whose service is spoken to is told by the client's class and base URL, and never guessed from a cloud's domain."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from stallwatch.sdk.requests import endpoint_of
from stallwatch.testing import FaultGateway
from support.drivers import Driver
from support.stage import Stage, play
from support.telemetry import instrumented
from surfaces.surfaces_of_clients import own_client

# The base URLs are those of the services' own pages.
KNOWN = {
    "https://api.openai.com/v1": "openai",
    "https://eu.api.openai.com/v1": "openai",
    "https://contoso.openai.azure.com/openai/v1/": "azure.ai.openai",
    "https://contoso.openai.azure.us/openai/v1/": "azure.ai.openai",
    "https://contoso.cognitiveservices.azure.com/openai/v1/": "azure.ai.openai",
    "https://contoso.services.ai.azure.com/models": "azure.ai.inference",
    "https://models.inference.ai.azure.com": "azure.ai.inference",
    "https://api.deepseek.com": "deepseek",
    "https://api.deepseek.com/beta": "deepseek",
    "https://openrouter.ai/api/v1": "openrouter",
    "https://dashscope.aliyuncs.com/compatible-mode/v1": "alibaba.dashscope",
    "https://dashscope-intl.aliyuncs.com/compatible-mode/v1": "alibaba.dashscope",
    "https://dashscope-us.aliyuncs.com/compatible-mode/v1": "alibaba.dashscope",
    "https://api.groq.com/openai/v1": "groq",
    "https://api.x.ai/v1": "x_ai",
    "https://us-east-1.api.x.ai/v1": "x_ai",
    "https://api.mistral.ai/v1": "mistral_ai",
    "https://codestral.mistral.ai/v1": "mistral_ai",
    "https://api.perplexity.ai": "perplexity",
    "https://api.moonshot.cn/v1": "moonshot_ai",
    "https://api.moonshot.ai/v1": "moonshot_ai",
    "https://api.anthropic.com/v1/": "anthropic",
    "https://api.cohere.ai/compatibility/v1": "cohere",
    "https://generativelanguage.googleapis.com/v1beta/openai/": "gcp.gemini",
    "https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/openapi": "gcp.vertex_ai",
    "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/l/endpoints/openapi": "gcp.vertex_ai",
    "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1": "aws.bedrock",
    "https://bedrock-mantle.us-east-1.api.aws/v1": "aws.bedrock",
    "https://us-south.ml.cloud.ibm.com/ml/gateway/v1": "ibm.watsonx.ai",
    "HTTPS://API.DeepSeek.com/v1": "deepseek",
}

# No service that is known: self-hosted servers at their usual addresses, gateways, and look-alikes.
UNKNOWN = {
    "vLLM": "http://localhost:8000/v1",
    "llama.cpp": "http://127.0.0.1:8080/v1",
    "LM Studio": "http://localhost:1234/v1",
    "Ollama": "http://[::1]:11434/v1",
    "a gateway": "https://llm.example.com/v1",
    "another vendor": "https://api.together.xyz/v1",
    "a server on EC2": "http://ec2-3-80-1-2.compute-1.amazonaws.com:8000/v1",
    "a load balancer": "https://my-llm-1.us-east-1.elb.amazonaws.com/v1",
    "a model of one's own on a cloud": "https://123.cn-hangzhou.pai-eas.aliyuncs.com/v1",
    "ends alike": "https://notx.ai/v1",
    "begins alike": "https://api.openai.com.example.org/v1",
    "in the path": "https://example.org/api.deepseek.com/v1",
}


@pytest.mark.parametrize(("url", "name"), KNOWN.items())
def test_a_known_service_has_its_well_known_name(url: str, name: str) -> None:
    assert provider(url) == name


@pytest.mark.parametrize("kind", UNKNOWN)
def test_whatever_else_speaks_the_protocol_is_of_openais_kind(kind: str) -> None:
    assert provider(UNKNOWN[kind]) == "openai"


def provider(url: str) -> str:
    with openai.OpenAI(base_url=url, api_key="sk-test") as client:
        return endpoint_of(client).provider


def test_azure_is_told_by_the_client_behind_any_address(gateway: FaultGateway, driver: Driver) -> None:
    async def story(stage: Stage) -> list[Any]:
        kind = openai.AsyncAzureOpenAI if stage.is_async else openai.AzureOpenAI

        class Mine(kind):  # type: ignore[misc,valid-type]
            pass

        options: Any = {"azure_endpoint": gateway.origin, "api_key": "sk-test", "api_version": "2024-10-21"}
        with instrumented() as captured:
            for client in (kind(**options), Mine(**options), own_client(stage, gateway)):
                async with stage.inside(client):
                    await stage.all(await stage.chat(client, "azure:tokens=2,gap=0"))
            return [dict(span.attributes or {}) for span in captured.spans]

    told = play(driver, story)
    names = [attributes["gen_ai.provider.name"] for attributes in told]
    assert names == ["azure.ai.openai", "azure.ai.openai", "openai"]
    assert {attributes["server.address"] for attributes in told} == {"127.0.0.1"}
    assert {attributes["server.port"] for attributes in told} == {gateway.port}


def test_a_class_of_that_name_is_not_azure(gateway: FaultGateway) -> None:
    class AzureBluePaint(openai.OpenAI):
        pass

    with AzureBluePaint(base_url=gateway.base_url, api_key="sk-test") as client:
        assert endpoint_of(client).provider == "openai"
