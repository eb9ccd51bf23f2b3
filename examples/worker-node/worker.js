// A worker that serves the tool `square` and the scorer `close_enough`. README.md says how to run it.
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const protos = process.env.EVALFLEET_PROTO ?? path.join(__dirname, "../../proto");
const loaded = loader.loadSync("evalfleet/worker/v1/worker_service.proto", { includeDirs: [protos], keepCase: false });
const { WorkerService } = grpc.loadPackageDefinition(loaded).evalfleet.worker.v1;
const client = new WorkerService(process.env.EVALFLEET_ADDRESS ?? "127.0.0.1:7460", grpc.credentials.createInsecure());

const schema = {
  type: "object", required: ["n"], properties: {
    n: { type: "integer", description: "The number." },
    seconds: { type: "number", description: "How long to take.", default: 0 } },
};
const offers = [
  { kind: "tool", name: "square", description: "Squares a number, and takes its time.", parametersJson: JSON.stringify(schema), parallel: true, onUnknown: "retry" },
  { kind: "scorer", name: "close_enough", onUnknown: "retry" },
];
const serves = {
  async square(call) { // a ToolPayload in, a ToolResultPayload out
    const { n, seconds } = JSON.parse(call.argumentsJson);
    await new Promise((done) => setTimeout(done, seconds * 1000));
    return { text: String(n * n) };
  },
  async close_enough(call) { // a ScorerPayload in, a ScorerResultPayload out
    const answer = Number(call.output.completion), target = Number(call.target.values[0]);
    return { score: { value: { number: Math.abs(answer - target) <= 0.5 ? 1 : 0 }, answer: String(answer) } };
  },
};
const results = new Map(); // by key, until they count

function connect() {
  const metadata = new grpc.Metadata();
  metadata.set("authorization", "Bearer " + process.env.EVALFLEET_TOKEN);
  const stream = client.Connect(metadata);
  const send = (key) => stream.write({ result: { key, ...results.get(key) } });
  stream.write({ register: { offers, maxInFlight: 4, unfinished: [...results.keys()] } });
  stream.on("data", async ({ registered, call, accepted, ping }) => {
    if (registered) {
      console.log("registered");
      (registered.forget ?? []).forEach((key) => results.delete(key));
      results.forEach((_, key) => send(key));
    } else if (call) {
      console.log("call", call.key);
      if (!results.has(call.key)) {
        await serves[call.name](JSON.parse(call.payloadJson)).then(
          (answer) => results.set(call.key, { payloadJson: JSON.stringify(answer) }),
          (fault) => results.set(call.key, { error: { type: "unknown", message: String(fault) } }));
      }
      send(call.key);
    } else if (accepted) {
      results.delete(accepted.key);
    } else if (ping) {
      stream.write({ pong: {} });
    }
  });
  stream.on("error", (lost) => console.log("connecting again:", lost.details));
  stream.on("close", () => setTimeout(connect, 500));
}

connect();
