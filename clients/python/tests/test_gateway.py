"""What the gateway of models knows and bounds: accounts, compaction, batches, limits, budgets and the cache."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from conftest import Server, until
from vendor import Vendor

from evalfleet import AsyncClient, EvalfleetError, exceptions
from evalfleet.messages import Message
from evalfleet.model.v1.message_pb2 import ROLE_SYSTEM

MODEL = "mockllm/model"


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    made = Vendor()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
async def with_vendor(vendor: Vendor) -> AsyncIterator[AsyncClient]:
    """A client of a server that takes the vendor for OpenAI."""
    server = Server(**vendor.env)
    try:
        server.start()
        async with AsyncClient(data_dir=server.data) as made:
            yield made
    finally:
        server.close()


async def test_a_model_is_known_by_its_name(client: AsyncClient) -> None:
    listed = next(model for model in await client.models.list("openai") if model.HasField("prices"))
    known = await client.models.get(listed.short_name)
    assert known == listed
    assert known.context_tokens > 0
    assert known.prices.output > 0


async def test_accounts_say_whether_they_have_keys(client: AsyncClient) -> None:
    accounts = {provider.name: provider.accounts for provider in await client.models.providers()}
    assert accounts["mockllm"][0].keyless
    (openai,) = [account for account in accounts["openai"] if not account.service]
    assert (openai.name, openai.usable) == ("default", False)
    assert "OPENAI_API_KEY" in openai.problem
    (failed,) = await client.models.check(provider="openai")
    assert failed.failed


async def test_a_check_asks_the_vendor_for_its_models(with_vendor: AsyncClient) -> None:
    (known,) = await with_vendor.models.check("openai/gpt-4o")
    assert not known.failed
    (unknown,) = await with_vendor.models.check("openai/gpt-nosuch")
    assert unknown.failed


async def test_a_conversation_is_compacted(with_vendor: AsyncClient, vendor: Vendor) -> None:
    conversation: list[Message] = [{"role": "system", "content": "Be brief."}, "A long story.", "And its end."]
    shorter = await with_vendor.models.compact(
        "openai/gpt-5", conversation, instructions="Keep names.", model_args={"responses_api": True}
    )
    assert [message.role == ROLE_SYSTEM for message in shorter] == [True, False]
    assert shorter[0].content.text == "Be brief."
    ((request, body),) = [(request, body) for request, body in vendor.received if "compact" in request]
    assert request == "POST /v1/responses/compact"
    assert b"Keep names." in body


async def test_a_model_without_compaction_says_so(client: AsyncClient) -> None:
    with pytest.raises(exceptions.CapabilityUnsupported) as refused:
        await client.models.compact(MODEL, "Hi")
    assert refused.value.facts["capability"] == "compaction"


async def test_a_batch_is_listed_and_cancelled(with_vendor: AsyncClient) -> None:
    config = {"batch": {"enabled": True, "size": 1, "tick": "0.05s"}, "max_retries": 0}
    answer = asyncio.create_task(with_vendor.models.generate("openai/gpt-4o", "Hi", config=config))

    async def sent() -> bool:
        return any(batch.provider_id for batch in await with_vendor.batches.list())

    await until(sent)
    (batch,) = await with_vendor.batches.list()
    assert (batch.model, batch.requests, batch.ended) == ("openai/gpt-4o", 1, False)
    assert (await with_vendor.batches.cancel(batch.name.rpartition("/")[2])).cancelled
    with pytest.raises(EvalfleetError, match="cancel"):
        await answer

    async def ended() -> bool:  # a moment after the last of its calls
        return all(batch.ended for batch in await with_vendor.batches.list())

    await until(ended)


async def test_the_limit_of_a_pool_is_changed(mortal: Server) -> None:
    async with AsyncClient(data_dir=mortal.data) as client:
        await client.models.generate(MODEL, "Hi")
        (pool,) = await client.limits.pools("mockllm/default")
        assert pool.name in [found.name for found in await client.limits.pools()]
        bound = {"max" if pool.adaptive else "limit": 3}
        changed = await client.limits.set_pool(pool.name, **bound)
        assert (changed.max if pool.adaptive else changed.limit) == 3
        with pytest.raises(exceptions.InvalidRequest, match="can be set"):
            await client.limits.set_pool(pool.name, **{"limit" if pool.adaptive else "max": 3})


async def test_a_budget_bounds_what_a_project_spends(mortal: Server) -> None:
    async with AsyncClient(data_dir=mortal.data, project="frugal") as client:
        budget = await client.limits.set_budget(max_tokens=1, max_cost=2.5)
        assert (budget.name, budget.max_tokens, budget.max_cost) == ("projects/frugal/budgets/project", 1, 2.5)
        await client.limits.set_budget(max_tokens=1, max_cost=None)
        await client.models.generate(MODEL, "Hi", config={"max_tokens": 100})
        with pytest.raises(exceptions.BudgetExhausted):
            await client.models.generate(MODEL, "Hi", config={"max_tokens": 100})
        lifted = await client.limits.set_budget(budget.name, max_tokens=None, max_cost=None)
        assert not lifted.HasField("max_tokens")
        assert not lifted.HasField("max_cost")
        await client.models.generate(MODEL, "Hi", config={"max_tokens": 100})
        (spent,) = await client.limits.budgets()
        assert spent.spent_tokens > 0
        account = await client.limits.set_budget(
            "accounts/mockllm/default/budgets/account", max_tokens=9, max_cost=None
        )
        assert [found.name for found in await client.limits.budgets("mockllm/default")] == [account.name]


async def test_cached_answers_are_listed_and_cleared(server: Server) -> None:
    async with AsyncClient(data_dir=server.data, project="cached") as client:
        for text in ("Hi", "Bye"):
            await client.models.generate(MODEL, text, config={"cache": {"enabled": True}})
        (size,) = (await client.cache.sizes("mockllm")).values()
        entries = await client.cache.list(MODEL)
        assert sum(entry.size for entry in entries) == size > 0
        assert await client.cache.list(expired=True) == []
        assert await client.cache.clear(ids=[entries[0].id]) == 1
        assert await client.cache.clear(MODEL) == 1
        assert await client.cache.sizes() == {}
