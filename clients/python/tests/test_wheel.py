"""The wheel, as users install it: with the least versions of what it needs, and without a network."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from conftest import REPOSITORY, Server

WHEELS = REPOSITORY / ".tools" / "wheels-python"
"""The least grpcio and protobuf that the package accepts, which `make setup` fetches."""


def test_a_wheel_installs_and_runs_the_first_example(server: Server, tmp_path: Path) -> None:
    package = REPOSITORY / "clients" / "python"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(package)]
    made = subprocess.run(build, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = tmp_path.glob("evalfleet-*-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "evalfleet/py.typed" in names
    assert "evalfleet/sandbox/v1/sandbox_service_pb2_grpc.pyi" in names
    assert not [name for name in names if not name.startswith("evalfleet")]

    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", f"--find-links={WHEELS}", str(wheel)]
    installed = subprocess.run(pip, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True
    )
    needed = {line.partition("==")[0] for line in listed.stdout.split()} - {"pip", "setuptools"}
    assert needed == {"evalfleet", "googleapis-common-protos", "grpcio", "protobuf"}

    env = {"PATH": os.environ["PATH"], "EVALFLEET_DATA_DIR": str(server.data)}
    ran = subprocess.run(
        [python, "-W", "error", "-c", _first_example()], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "Default output from mockllm/model\n"


def _first_example() -> str:
    """The first program of the guide, with a model that costs nothing."""
    guide = (REPOSITORY / "docs" / "python.md").read_text()
    program = guide.split("```python\n")[1].split("```")[0]
    assert "openai/gpt-4o-mini" in program
    return program.replace("openai/gpt-4o-mini", "mockllm/model")
