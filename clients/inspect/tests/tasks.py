"""Three tasks of inspect_ai that know nothing of evalfleet, each with a script for a model.

inspect eval tests/tasks.py@humaneval -T data=HumanEval.jsonl.gz --model evalfleet/mockllm/model …
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, match, scorer, stderr
from inspect_ai.solver import TaskState, generate, prompt_template
from inspect_ai.tool import bash, python, text_editor
from inspect_ai.util import sandbox


def rows(data: str) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, perhaps compressed."""
    packed = Path(data).read_bytes()
    text = gzip.decompress(packed) if data.endswith(".gz") else packed
    return [json.loads(line) for line in text.decode().splitlines() if line]


def said(text: str, **more: Any) -> dict[str, Any]:
    """An answer of a script."""
    return {"text": text, "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}, **more}


@scorer(metrics=[accuracy(), stderr()])
def passes() -> Scorer:
    """Whether the tests of a problem pass with the answer."""

    async def score(state: TaskState, target: Target) -> Score:
        answer = state.output.completion
        if "```" in answer:
            answer = answer.split("```python\n")[1].split("```")[0]
        else:
            answer = state.metadata["prompt"] + answer
        program = f"{answer}\n{state.metadata['test']}\ncheck({state.metadata['entry_point']})\n"
        result = await sandbox().exec(["python3", "-c", program], timeout=30)
        return Score(value=CORRECT if result.success else INCORRECT, answer=answer)

    return score


@task
def humaneval(data: str) -> Task:
    """HumanEval: https://github.com/openai/human-eval."""
    samples = [
        Sample(id=row["task_id"], input=row["prompt"], target=row["canonical_solution"], metadata=row)
        for row in rows(data)
    ]
    return Task(dataset=samples, solver=generate(), scorer=passes(), sandbox="local")


def humaneval_script(data: str) -> list[dict[str, Any]]:
    """Answers of which every second one is right, in several forms."""
    return [
        {
            "sample": row["task_id"],
            "output": said(
                [
                    row["canonical_solution"],
                    "    raise NotImplementedError('not today')\n",
                    f"```python\n{row['prompt']}{row['canonical_solution']}```\nThat should do.",
                    "    return (\n",
                ][number % 4]
            ),
        }
        for number, row in enumerate(rows(data))
    ]


@task
def gsm8k(data: str) -> Task:
    """GSM8K: https://github.com/openai/grade-school-math."""
    samples = [
        Sample(id=number, input=row["question"], target=row["answer"].split("#### ")[1])
        for number, row in enumerate(rows(data), start=1)
    ]
    template = "{prompt}\n\nEnd with a line ANSWER: and the number."
    return Task(dataset=samples, solver=[prompt_template(template), generate()], scorer=match(numeric=True))


def gsm8k_script(data: str) -> list[dict[str, Any]]:
    """Answers of which every second one is right."""
    entries = []
    for number, row in enumerate(rows(data), start=1):
        right = int(row["answer"].split("#### ")[1].replace(",", ""))
        given = right if number % 2 else 2 * right + 1
        entries.append({"sample": str(number), "output": said(f"Of 3 steps this is the last.\n\nANSWER: {given:,}")})
    return entries


@task
def agentic() -> Task:
    """An agent that works with three tools in its sandbox."""
    samples = [
        Sample(id="sum", input="Sum the numbers in numbers.txt.", target="42", files={"numbers.txt": "40\n2\n"}),
        Sample(id="lost", input="Sum the numbers in numbers.txt.", target="42", files={"numbers.txt": "1\n"}),
    ]
    agent = react(tools=[bash(timeout=60), python(timeout=60), text_editor(timeout=60)])
    return Task(dataset=samples, solver=agent, scorer=match(numeric=True), sandbox="local", message_limit=30)


def agentic_script() -> list[dict[str, Any]]:
    """Calls of each tool, a failure among them, and an answer that comes from the sandbox for one sample."""
    program = "print(sum(int(line) for line in open('numbers.txt')))"
    entries: list[dict[str, Any]] = []
    for sample, answer in (("sum", "42"), ("lost", "1")):
        file = f"/var/tmp/{sample}.py"
        steps = [
            {"function": "bash", "arguments": {"command": "cat numbers.txt; echo note >&2; exit 3"}},
            {"function": "python", "arguments": {"code": program}},
            {"function": "text_editor", "arguments": {"command": "create", "path": file, "file_text": program}},
            {"function": "text_editor", "arguments": {"command": "view", "path": file}},
            {"function": "bash", "arguments": {"command": f"python3 {file}"}},
            {"function": "submit", "arguments": {"answer": answer}},
        ]
        outputs = [said(f"step {n}", tool_calls=[{**call, "id": f"call{n}"}]) for n, call in enumerate(steps)]
        entries.append({"sample": sample, "outputs": outputs})
    return entries
