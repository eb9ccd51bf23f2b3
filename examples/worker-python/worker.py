"""A worker that serves the tool `square` and the scorer `close_enough`. README.md says how to run it."""
import json, time
from evalfleet_worker import Worker

worker = Worker(results="results.db", max_in_flight=4)
SCHEMA = {"type": "object", "required": ["n"], "properties": {
    "n": {"type": "integer", "description": "The number."},
    "seconds": {"type": "number", "description": "How long to take.", "default": 0}}}

@worker.serves(kind="tool", name="square", description="Squares a number, and takes its time.", parameters_json=json.dumps(SCHEMA), parallel=True, on_unknown="retry")
def square(call):  # a ToolPayload in, a ToolResultPayload out
    arguments = json.loads(call["argumentsJson"])
    time.sleep(arguments["seconds"])
    return {"text": str(arguments["n"] ** 2)}

@worker.serves(kind="scorer", name="close_enough", on_unknown="retry")
def close_enough(call):  # a ScorerPayload in, a ScorerResultPayload out
    answer, target = float(call["output"]["completion"]), float(call["target"]["values"][0])
    return {"score": {"value": {"number": float(abs(answer - target) <= 0.5)}, "answer": str(answer)}}

worker.run()
