"""Asks a model two questions as an evaluation, follows it, and prints its results.

    python client.py openai/gpt-4o-mini
"""

import sys

from evalfleet import Client, EvalfleetError

TASK = {
    "task": "capitals",
    "dataset": [
        {"input": "The capital of France?", "target": "Paris"},
        {"input": "Of Norway?", "target": "Oslo"},
    ],
    "solver": "generate",
    "scorer": "includes",
}


def main(model: str = "mockllm/model") -> int:
    with Client() as client:
        evaluation = client.evals.create(TASK, model=model)
        print(evaluation.name)
        for update in evaluation.watch():
            if update.HasField("progress"):
                print(f"{update.progress.progress.succeeded} of {update.progress.progress.total} samples done")
        print(evaluation.refresh().state)
        for metric in evaluation.metrics():
            print(f"{metric['scorer']} {metric['metric']} {metric['value']:.3f}")
        return 0 if evaluation.state == "succeeded" else 1


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except EvalfleetError as failure:
        sys.exit(str(failure))
