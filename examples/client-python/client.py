"""Asks a model two questions as an evaluation, follows it, and prints its results.

    EVALFLEET_TOKEN=$(cat ~/.local/share/evalfleet/token) python client.py openai/gpt-4o-mini
"""

import os
import sys

import grpc
from evalfleet.agent.v1 import eval_pb2, eval_service_pb2, eval_service_pb2_grpc, run_pb2, score_pb2
from evalfleet.content.v1 import content_pb2
from evalfleet.model.v1 import message_pb2


def sample(question, answer):
    """A sample of the dataset: what the model is asked, and what is right."""
    said = message_pb2.ChatMessage(role=message_pb2.ROLE_USER, content=content_pb2.MessageContent(text=question))
    return eval_pb2.Sample(input=[said], input_text=True, target=run_pb2.Target(values=[answer]))


def main(model):
    channel = grpc.insecure_channel(os.environ.get("EVALFLEET_ADDRESS", "127.0.0.1:7460"))
    evals = eval_service_pb2_grpc.EvalServiceStub(channel)
    token = [("authorization", "Bearer " + os.environ["EVALFLEET_TOKEN"])]

    spec = eval_pb2.EvalSpec(
        task="capitals",
        dataset=eval_pb2.Dataset(
            inline=eval_pb2.SampleList(samples=[sample("The capital of France?", "Paris"), sample("Of Norway?", "Oslo")])
        ),
        steps=[run_pb2.AgentRef(name="generate")],
        models=[run_pb2.ModelRef(model=model)],
        scorers=[score_pb2.ScorerRef(name="includes")],
    )
    made = evals.CreateEval(eval_service_pb2.CreateEvalRequest(parent="projects/default", spec=spec), metadata=token)
    print(made.name)

    # The stream ends with the evaluation. After a broken connection, watch again with the last cursor: nothing is missed.
    for change in evals.WatchEval(eval_service_pb2.WatchEvalRequest(name=made.name, progress=True), metadata=token):
        done = change.progress.progress
        if change.HasField("progress"):
            print(f"{done.succeeded} of {done.total} samples done")

    end = evals.GetEval(eval_service_pb2.GetEvalRequest(name=made.name), metadata=token)
    print(eval_pb2.EvalState.Name(end.state), end.state_reason)
    for score in end.results.scores:
        for metric in score.metrics:
            print(f"{score.name} {metric.name} {metric.value:.3f}")
    return 0 if end.state == eval_pb2.EVAL_STATE_SUCCEEDED else 1


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:] or ["mockllm/model"]))
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
