"""Limits of model calls: requests in flight, and budgets of tokens and money."""

from __future__ import annotations

from google.protobuf.field_mask_pb2 import FieldMask

from evalfleet.connection import Connection
from evalfleet.model.v1 import model_service_pb2 as pb


class AsyncLimits:
    """Limits of model calls. A changed limit applies to the calls that wait, and cancels none in flight.

    Calls that share an account share a pool of connections, which bounds its requests in flight. Calls spend from the
    budgets of their project, their account and their evaluation.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def pools(self, account: str = "") -> list[pb.ConnectionPool]:
        """The pools by name: all, or those of an account, such as `openai/default`. A pool appears with its first call.

        Each has its limit, whether that adapts, the requests in flight and waiting, and the changes of its limit.
        """
        request = pb.ListConnectionPoolsRequest(parent=f"accounts/{account or '-/-'}", page_size=1000)
        pages = self._connection.pages(lambda stubs: stubs.limits.ListConnectionPools, request)
        return [pool async for page in pages for pool in page.connection_pools]

    async def set_pool(self, name: str, *, limit: int | None = None, max: int | None = None) -> pb.ConnectionPool:
        """Changes the limit of a pool, by the name that `pools` shows.

        Args:
            name: `accounts/…/connectionPools/…`.
            limit: Requests in flight at most, of a pool whose limit is static.
            max: The highest limit of a pool whose limit adapts.
        """
        request = pb.UpdateConnectionPoolRequest(
            connection_pool=pb.ConnectionPool(name=name, limit=limit or 0, max=max or 0)
        )
        return await self._connection.call(lambda stubs: stubs.limits.UpdateConnectionPool, request)

    async def budgets(self, account: str = "") -> list[pb.Budget]:
        """The budgets with what is spent: those of the project, or those of an account, such as `openai/default`."""
        parent = f"accounts/{account}" if account else self._connection.parent
        request = pb.ListBudgetsRequest(parent=parent, page_size=1000)
        pages = self._connection.pages(lambda stubs: stubs.limits.ListBudgets, request)
        return [budget async for page in pages for budget in page.budgets]

    async def set_budget(self, name: str = "", *, max_tokens: int | None, max_cost: float | None) -> pb.Budget:
        """Sets both bounds of a budget. Calls that wait for it continue if it is raised.

        Args:
            name: `projects/…/budgets/project`, `projects/…/budgets/evals/…` or `accounts/…/budgets/account`; default:
                the budget of the project.
            max_tokens: Tokens at most; None: any number.
            max_cost: Dollars at most; None: any sum.
        """
        budget = pb.Budget(
            name=name or f"{self._connection.parent}/budgets/project", max_tokens=max_tokens, max_cost=max_cost
        )
        request = pb.UpdateBudgetRequest(budget=budget, update_mask=FieldMask(paths=["max_tokens", "max_cost"]))
        return await self._connection.call(lambda stubs: stubs.limits.UpdateBudget, request)
