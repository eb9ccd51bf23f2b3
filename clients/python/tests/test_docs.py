"""The documents: their programs run, and the reference is current."""

import ast
import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE, REPOSITORY, Server

from reference import page


def programs(document: str) -> list[str]:
    """The programs in Python of a document, with a model that costs nothing."""
    text = (REPOSITORY / document).read_text()
    found = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [program.replace("openai/gpt-4o-mini", "mockllm/model") for program in found]


GUIDE = programs("docs/python.md")
ALL = [*GUIDE, *programs("README.md"), *programs("docs/workers.md"), *programs("clients/python/README.md")]


def environment(server: Server) -> dict[str, str]:
    path = ":".join([str(REPOSITORY / "clients" / "python" / "src"), *sys.path])
    return {"PATH": os.environ["PATH"], "EVALFLEET_DATA_DIR": str(server.data), "PYTHONPATH": path}


def test_the_documents_have_programs() -> None:
    assert len(GUIDE) >= 8
    assert len(ALL) >= len(GUIDE) + 3


@pytest.mark.parametrize("program", [program for program in ALL if "worker.run()" not in program])
def test_a_program_of_a_document_runs(server: Server, tmp_path: Path, program: str) -> None:
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    ran = subprocess.run(
        [sys.executable, "-B", "-c", program], env=environment(server), cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


@pytest.mark.parametrize("program", [program for program in ALL if "worker.run()" in program])
async def test_a_worker_of_a_document_serves_until_it_is_stopped(server: Server, tmp_path: Path, program: str) -> None:
    logged = "import logging, sys\nlogging.basicConfig(level='INFO', format='%(message)s', stream=sys.stdout)\n"
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-B", "-c", logged + program],
        env=environment(server),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    said = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
    assert said.startswith(b"registered as ")
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


@pytest.mark.parametrize("program", ALL)
def test_a_program_of_a_document_is_of_python_3_10(program: str) -> None:
    ast.parse(program, feature_version=(3, 10))


PLAIN_CALL = """
import sys
import grpc
from evalfleet.agent.v1 import eval_service_pb2, eval_service_pb2_grpc

address, token = sys.argv[1:]
evals = eval_service_pb2_grpc.EvalServiceStub(grpc.insecure_channel(address))
request = eval_service_pb2.ListEvalsRequest(parent="projects/default")
print(len(evals.ListEvals(request, metadata=[("authorization", f"Bearer {token}")]).evals))
"""


def test_the_recipe_for_other_languages(server: Server, tmp_path: Path) -> None:
    """Here the other language is Python without the package, which has a generator of its own."""
    python = str(REPOSITORY / ".tools" / "venv-stubs" / "bin" / "python")
    (tmp_path / "protoc").write_text(f'#!/bin/sh\nexec {python} -m grpc_tools.protoc "$@"\n')
    (tmp_path / "protoc").chmod(0o755)
    (tmp_path / "code").mkdir()
    (tmp_path / "proto").symlink_to(REPOSITORY / "proto")
    (recipe,) = re.findall(
        r"^```sh\n(.*?)^```", (REPOSITORY / "docs" / "grpc.md").read_text(), re.MULTILINE | re.DOTALL
    )
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path / "code")}
    shell = ["sh", "-ec", recipe.replace("LANGUAGE", "python")]
    made = subprocess.run(shell, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    call = [python, "-B", "-c", PLAIN_CALL, server.address, server.token]
    called = subprocess.run(call, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert called.returncode == 0, called.stderr
    assert int(called.stdout) >= 0


def test_every_call_that_is_built_has_a_method_or_is_listed_in_the_guide() -> None:
    package = REPOSITORY / "clients" / "python" / "src" / "evalfleet"
    sources = "".join(path.read_text() for path in package.glob("*.py"))
    made = set(re.findall(r"stubs\.\w+\.(\w+)", sources))
    without = set()
    for path in (REPOSITORY / "proto" / "evalfleet").glob("*/v1/*_service.proto"):
        if path.parts[-3] == "guest":  # It is spoken within a sandbox.
            continue
        for service, calls in re.findall(r"^service (\w+) \{\n(.*?)^\}", path.read_text(), re.MULTILINE | re.DOTALL):
            for call in calls.split("  rpc ")[1:]:
                name = call.partition("(")[0]
                if name not in made and "not_built" not in call:
                    without.add(f"{service}.{name}")
    guide = (REPOSITORY / "docs" / "python.md").read_text()
    assert without == set(re.findall(r"`(\w+Service\.\w+)`", guide))


def test_the_reference_is_current() -> None:
    written = (REPOSITORY / "docs" / "python-reference.md").read_text()
    assert written == page(REPOSITORY / "clients" / "python" / "src"), "run make generate"
