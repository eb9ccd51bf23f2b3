"""inspect_ai's own conformance checks of sandbox providers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest
from conftest import DOCKER_IMAGE, DRIVERS, Server
from inspect_ai.util._sandbox import self_check

from evalfleet_inspect import SandboxConfig
from evalfleet_inspect.sandbox import EvalfleetSandbox

CHECKS = [name for name, _ in inspect.getmembers(self_check, inspect.iscoroutinefunction) if name.startswith("test_")]

# The user database of a local sandbox is the server's, so that no program in it can add a user.
NOT_THERE = {"local": {"test_exec_as_user"}}


class Checked:
    """A sandbox of a driver, and a loop to use it in."""

    def __init__(self, driver: str) -> None:
        self.driver = driver
        self.loop = asyncio.new_event_loop()
        config = SandboxConfig(driver=driver, image=DOCKER_IMAGE if driver == "docker" else None)
        self.sandboxes = self.loop.run_until_complete(EvalfleetSandbox.sample_init("self-check", config, {}))

    def check(self, name: str) -> None:
        self.loop.run_until_complete(getattr(self_check, name)(self.sandboxes["default"]))

    def close(self) -> None:
        self.loop.run_until_complete(EvalfleetSandbox.sample_cleanup("self-check", None, self.sandboxes, False))
        self.loop.close()


@pytest.fixture(scope="module", params=DRIVERS)
def checked(server: Server, request: pytest.FixtureRequest) -> Iterator[Checked]:
    one = Checked(request.param)
    yield one
    one.close()


def test_the_checks_are_those_that_were_counted() -> None:
    assert len(CHECKS) == 44


@pytest.mark.parametrize("name", CHECKS)
def test_check(checked: Checked, name: str) -> None:
    if name in NOT_THERE.get(checked.driver, ()):
        with pytest.raises(AssertionError, match="adduser"):
            checked.check(name)
    else:
        checked.check(name)
