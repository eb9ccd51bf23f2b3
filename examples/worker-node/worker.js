// A worker that serves the tool `square` and the scorer `close_enough`. README.md says how to run it.
const { setTimeout } = require("node:timers/promises");
const { serve } = require("./evalfleet_worker.js");

const schema = {
  type: "object", required: ["n"], additionalProperties: false, properties: {
    n: { type: "integer", description: "The number." },
    seconds: { type: "number", description: "How long to take.", default: 0 } },
};

const square = {
  offer: { kind: "tool", name: "square", description: "Squares a number, and takes its time.", parametersJson: JSON.stringify(schema), parallel: true, onUnknown: "retry" },
  async call({ argumentsJson }) { // a ToolPayload in, a ToolResultPayload out
    const { n, seconds } = JSON.parse(argumentsJson);
    await setTimeout(seconds * 1000);
    return { text: String(n * n) };
  },
};

const closeEnough = {
  offer: { kind: "scorer", name: "close_enough", onUnknown: "retry" },
  call({ output, target }) { // a ScorerPayload in, a ScorerResultPayload out
    const answer = Number(output.completion);
    return { score: { value: { number: Math.abs(answer - Number(target.values[0])) <= 0.5 ? 1 : 0 }, answer: String(answer) } };
  },
};

serve([square, closeEnough], 4);
