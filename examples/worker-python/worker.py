"""A worker that serves the tool `square` and the scorer `close_enough`. README.md says how to run it."""

import logging
import sys
import time

from evalfleet import Score, ScorerCall, Worker

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
worker = Worker(results="results.db", max_in_flight=4)


@worker.tool(parallel=True, on_unknown="retry")
def square(n: int, seconds: float = 0) -> str:
    """Squares a number, and takes its time.

    Args:
        n: The number.
        seconds: How long to take.
    """
    time.sleep(seconds)
    return str(n**2)


@worker.scorer(on_unknown="retry")
def close_enough(call: ScorerCall) -> Score:
    """Whether a number is at most 0.5 from the right one."""
    apart = abs(float(call.answer) - float(call.target))
    return Score(float(apart <= 0.5), answer=call.answer)


worker.run()
