"""What a user of sandboxes expects beyond inspect_ai's own checks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Server, until
from evalfleet import exceptions
from evalfleet.sandbox.v1.sandbox_service_pb2 import WriteExecInputRequest
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import Sample
from inspect_ai.util import (
    ComposeConfig,
    OutputLimitExceededError,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
)
from inspect_ai.util._sandbox.limits import override_max_exec_output_size

from evalfleet_inspect import SandboxConfig, SandboxLimits
from evalfleet_inspect import config as configs
from evalfleet_inspect.connection import Target, connection
from evalfleet_inspect.sandbox import INPUT_BYTES, OUTPUT_CAP, TASK, EvalfleetSandbox, listed


@asynccontextmanager
async def sandbox(config: SandboxConfig | None = None) -> AsyncIterator[EvalfleetSandbox]:
    made = await EvalfleetSandbox.sample_init("task", config, {"__sample_id__": "s1"})
    try:
        yield made["default"].as_type(EvalfleetSandbox)
    finally:
        await EvalfleetSandbox.sample_cleanup("task", config, made, False)


def run(test: Callable[[], Awaitable[None]], within: float = 600) -> None:
    """Runs a test in an event loop of its own, and closes its connections.

    The bound is for a test that waits without end: on a busy machine hundreds of commands take more than a minute.
    """

    async def whole() -> None:
        try:
            await test()
        finally:
            await connection(Target()).close()

    asyncio.run(asyncio.wait_for(whole(), within))


def test_the_configuration_reaches_the_sandbox(server: Server) -> None:
    async def test() -> None:
        config = SandboxConfig(
            driver="local",
            env={"NAME": "value"},
            limits=SandboxLimits(open_files=100),
            files={"/workspace/a/b.txt": "placed"},
            setup="echo ready > setup.txt",
            labels={"team": "x"},
        )
        async with sandbox(config) as one:
            result = await one.exec(["sh", "-c", "echo $NAME; ulimit -n; cat a/b.txt setup.txt"])
            assert result.stdout == "value\n100\nplacedready\n"

    run(test)


def test_hundreds_of_commands_at_once_over_one_connection(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            results = await asyncio.gather(*(one.exec(["echo", str(n)]) for n in range(300)))
            assert [r.stdout for r in results] == [f"{n}\n" for n in range(300)]

    run(test)


def test_output_within_the_limit_is_whole_and_beyond_it_an_exception(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            size = 5 << 20
            result = await one.exec(["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x; echo no >&2"])
            assert len(result.stdout) == size
            assert result.stderr == "no\n"
            with override_max_exec_output_size(1000), pytest.raises(OutputLimitExceededError) as over:
                await one.exec(["sh", "-c", "head -c 3000 /dev/zero | tr '\\0' x; echo end"])
            assert over.value.limit_str == "1000 bytes"
            assert over.value.truncated_output is not None
            assert over.value.truncated_output.endswith("end\n")

    run(test)


def test_a_command_that_takes_too_long_shows_what_it_printed(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            with pytest.raises(TimeoutError, match="after 1 seconds") as late:
                await one.exec(["sh", "-c", "echo begun; sleep 60"], timeout=1)
            assert late.value.truncated_output == "begun\n"  # type: ignore[attr-defined]

    run(test)


def test_a_time_limit_may_be_a_fraction(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            with pytest.raises(TimeoutError, match=r"after 0\.5 seconds"):
                await one.exec(["sleep", "60"], timeout=0.5)  # type: ignore[arg-type]

    run(test)


def test_output_beyond_what_a_sandbox_keeps_is_never_cut_silently(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            with override_max_exec_output_size(OUTPUT_CAP * 2), pytest.raises(OutputLimitExceededError) as over:
                await one.exec(["head", "-c", str(OUTPUT_CAP + 1), "/dev/zero"])
            assert over.value.limit_str == "64 MiB"

    run(test)


def test_input_of_any_size_reaches_commands_that_begin_together(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            size = INPUT_BYTES + 1
            results = await asyncio.gather(*(one.exec(["wc", "-c"], input=b"x" * size) for _ in range(20)))
            assert {r.stdout for r in results} == {f"{size}\n"}
            assert (await one.exec(["true"], input=b"x" * size)).success

    run(test)


def test_input_that_cannot_be_sent_ends_its_command(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with sandbox() as one:
            call = one._server.call

            async def lost(method: Any, request: Any, **options: Any) -> Any:
                if isinstance(request, WriteExecInputRequest):
                    raise exceptions.SandboxLost("the sandbox was lost", reason="SANDBOX_LOST")
                return await call(method, request, **options)

            with monkeypatch.context() as patch:
                patch.setattr(one._server, "call", lost)
                with pytest.raises(SandboxUnavailableError, match="the sandbox was lost"):
                    await one.exec(["cat"], input=b"x" * (INPUT_BYTES + 1))
            await until(lambda: succeeds(one, "! ps -e | grep cat"))

    async def succeeds(one: EvalfleetSandbox, script: str) -> bool:
        return (await one.exec(["sh", "-c", script])).success

    run(test)


def test_a_cancelled_command_is_killed(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            command = asyncio.create_task(one.exec(["sh", "-c", "touch begun; sleep 6061"]))
            await until(lambda: succeeds(one, "test -f begun"))
            command.cancel()
            with pytest.raises(asyncio.CancelledError):
                await command
            await until(lambda: succeeds(one, "! ps -ef | grep -v grep | grep 6061"))

    async def succeeds(one: EvalfleetSandbox, script: str) -> bool:
        return (await one.exec(["sh", "-c", script])).success

    run(test)


def test_a_sandbox_that_is_gone_is_unavailable_with_our_reason(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            server.run("sandbox", "rm", one.name.rpartition("/")[2])
            with pytest.raises(SandboxUnavailableError, match="SANDBOX_TERMINATED"):
                await one.exec(["true"])
            with pytest.raises(SandboxUnavailableError, match="SANDBOX_TERMINATED"):
                await one.read_file("x")
            with pytest.raises(SandboxUnavailableError, match="SANDBOX_TERMINATED"):
                await one.write_file("x", "")
            with pytest.raises(ConnectionError, match="deleted"):
                await one.connection()

    run(test)


def test_an_unknown_user_is_unsupported(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            with pytest.raises(SandboxUserUnsupportedError, match="somebody"):
                await one.exec(["true"], user="somebody")

    run(test)


def test_the_command_of_connection_works_in_a_shell(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            told = await one.connection(user="root")
            command = told.command.replace("evalfleet", os.environ.get("EVALFLEET_PROGRAM", "bin/evalfleet"), 1)
            process = await asyncio.create_subprocess_shell(
                command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
            )
            out, _ = await process.communicate(b"whoami\n")
            assert out == b"root\n"

    run(test)


def test_text_that_is_no_utf8_is_an_error_of_decoding(server: Server) -> None:
    async def test() -> None:
        async with sandbox() as one:
            await one.write_file("x", b"\xff\xfe")
            with pytest.raises(UnicodeDecodeError):
                await one.read_file("x")
            await one.write_file("y", "a\r\nb")
            assert await one.read_file("y") == "a\r\nb"
            for folder in (".", "..", "/etc", "/etc/"):
                with pytest.raises(IsADirectoryError):
                    await one.read_file(folder)

    run(test)


def test_a_lease_is_renewed_however_often_samples_begin(server: Server) -> None:
    async def test() -> None:
        async with sandbox(SandboxConfig(lease=1000)), sandbox(SandboxConfig(lease=4)) as short:
            first = await lease_end(short)
            # No call but a renewal can have moved it so far.
            while await lease_end(short) < first + 4:
                async with sandbox(SandboxConfig(lease=4)):
                    pass

    async def lease_end(one: EvalfleetSandbox) -> float:
        (found,) = [s for s in await listed(connection(Target()), {TASK: "task"}) if s.name == one.name]
        return found.lease_expire_time.ToNanoseconds() / 1e9

    run(test)


def test_sandboxes_that_are_not_to_be_cleaned_up_stay_for_a_day(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = SandboxEnvironmentSpec("evalfleet", SandboxConfig(lease=5))
    task = Task(dataset=[Sample("go", id="s7"), Sample("go", id="s8")], sandbox=config)
    (log,) = evaluate(task, "evalfleet/mockllm/model", sandbox_cleanup=False, display="none", log_dir=str(tmp_path))
    assert log.status == "success", log.error
    told = capsys.readouterr().out
    assert "inspect sandbox cleanup evalfleet" in told
    one, other = ids = [line.split()[-1] for line in told.splitlines() if "sample s" in line]

    async def test() -> None:
        kept = [s for s in await listed(connection(Target()), {}) if s.name.rpartition("/")[2] in ids]
        assert all(s.lease_expire_time.ToNanoseconds() / 1e9 > time.time() + 80_000 for s in kept)
        await EvalfleetSandbox.cli_cleanup(one)
        assert set(server.sandboxes()) & set(ids) == {other}
        await EvalfleetSandbox.cli_cleanup(None)
        assert not set(server.sandboxes()) & set(ids)

    run(test)


def test_the_end_of_an_evaluation_removes_what_its_samples_have_left(server: Server) -> None:
    async def test() -> None:
        made = await EvalfleetSandbox.sample_init("task", None, {})
        await EvalfleetSandbox.task_cleanup("shutdown", None, True)
        assert made["default"].as_type(EvalfleetSandbox).id not in server.sandboxes()

    run(test)


def test_a_set_up_that_cannot_work_ends_the_task_before_its_first_sample(server: Server) -> None:
    async def test() -> None:
        with pytest.raises(PrerequisiteError, match="DRIVER_NOT_FOUND"):
            await EvalfleetSandbox.task_init("t", SandboxConfig(driver="lokal"))
        with pytest.raises(RuntimeError, match=r"SANDBOX_SETUP_FAILED.*boom"):
            await EvalfleetSandbox.sample_init("t", SandboxConfig(setup="echo boom; exit 3"), {})

    run(test)


def test_no_server_and_a_wrong_token_are_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALFLEET_PATIENCE", "0.1")

    async def away() -> None:
        with pytest.raises(PrerequisiteError, match=r"127\.0\.0\.1:1 does not answer"):
            await EvalfleetSandbox.task_init("t", None)

    async def refused() -> None:
        with pytest.raises(PrerequisiteError, match="TOKEN_INVALID"):
            await EvalfleetSandbox.task_init("t", None)

    with monkeypatch.context() as patch:
        patch.setenv("EVALFLEET_SERVER", "127.0.0.1:1")
        run(away)
    with monkeypatch.context() as patch:
        patch.delenv("EVALFLEET_TOKEN_FILE")
        patch.setenv("EVALFLEET_TOKEN", "wrong")
        run(refused)


def test_a_file_of_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "sandbox.yaml"
    path.write_text("driver: docker\nimage: x\nlimits: {pids: 5}\nnetwork: [pypi.org]\nlease: 60\n")
    spec = configs.resolve(str(path)).spec({})
    assert (spec.driver, spec.image, spec.limits.pids, spec.lease.seconds) == ("docker", "x", 5, 60)
    assert list(spec.network.allow_hosts) == ["pypi.org"]
    path.write_text("drivr: docker\n")
    with pytest.raises(PrerequisiteError, match="drivr"):
        configs.resolve(str(path))
    with pytest.raises(PrerequisiteError, match="cannot be read"):
        configs.resolve(str(tmp_path / "none.yaml"))


def test_the_environment_has_defaults_for_tasks_without_configuration() -> None:
    env = {"EVALFLEET_SANDBOX_DRIVER": "docker", "EVALFLEET_SANDBOX_IMAGE": "i"}
    assert SandboxConfig().spec(env).driver == "docker"
    assert SandboxConfig(image="j").spec(env).image == "j"


def test_a_compose_file_of_one_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED", "on")
    compose = ComposeConfig.model_validate(
        {
            "services": {
                "default": {
                    "image": "python:3.12",
                    "command": "tail -f /dev/null",
                    "init": True,
                    "working_dir": "/work",
                    "environment": ["A=1", "B=x=y"],
                    "network_mode": "none",
                    "x-local": True,
                    "mem_limit": "512m",
                    "cpus": "1.5",
                }
            }
        }
    )
    config = configs.resolve(compose)
    assert (config.driver, config.image, config.workdir) == ("docker", "python:3.12", "/work")
    assert config.env == {"A": "1", "B": "x=y"}
    assert (config.limits.memory_bytes, config.limits.cpu_millis) == (512 << 20, 1500)


@pytest.mark.parametrize(
    ("services", "named"),
    [
        ({"default": {"image": "i"}, "db": {"image": "i"}}, "several services"),
        ({"default": {"build": "."}}, "services.default.build"),
        ({"default": {"image": "i", "volumes": ["./x:/x"], "privileged": True}}, "privileged, volumes"),
        ({"default": {"image": "i", "network_mode": "host"}}, "network_mode host"),
    ],
)
def test_what_a_sandbox_cannot_be_is_refused_by_name(services: dict[str, object], named: str) -> None:
    with pytest.raises(PrerequisiteError, match=named):
        configs.resolve(ComposeConfig.model_validate({"services": services}))


def test_a_dockerfile_is_refused_with_what_to_do() -> None:
    with pytest.raises(PrerequisiteError, match="docker build"):
        configs.resolve("Dockerfile")
