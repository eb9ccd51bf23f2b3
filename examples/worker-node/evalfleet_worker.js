// The protocol of workers, for any worker in JavaScript: put this file beside yours. docs/workers.md describes what it speaks.
const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const protos = process.env.EVALFLEET_PROTO ?? path.join(__dirname, "../../proto");
const loaded = loader.loadSync("evalfleet/worker/v1/worker_service.proto", { includeDirs: [protos], keepCase: false });
const { WorkerService } = grpc.loadPackageDefinition(loaded).evalfleet.worker.v1;

const address = process.env.EVALFLEET_ADDRESS ?? "127.0.0.1:7460";
const authorization = "Bearer " + process.env.EVALFLEET_TOKEN;
const maxAnswer = 4_000_000; // A larger frame would cost the connection, each time it is sent.

// download reads the payload of a call that is larger than a frame.
async function download(hash) {
  const body = await fetch(`http://${address}/api/v1/projects/default/blobs/${hash}:download`, { headers: { authorization } });
  if (!body.ok) {
    throw new Error(`the payload cannot be read: ${body.status} ${await body.text()}`);
  }
  return body.text();
}

// serve serves functions for ever, each with its offer, and connects again whenever the connection is lost. A function takes a call's payload and returns the answer, or a promise of it, both as
// JSON objects; what it throws is the call's failure. Results are kept by the call's key, in memory, until the server says that they count.
exports.serve = function serve(functions, maxInFlight = 1) {
  const client = new WorkerService(address, grpc.credentials.createInsecure());
  const calls = new Map(); // promises of results, by key

  async function work({ key, kind, name, payloadJson }, offloaded) {
    console.log("call", key);
    try {
      const { call } = functions.find(({ offer }) => offer.kind === kind && offer.name === name);
      const answer = JSON.stringify(await call(JSON.parse(payloadJson || await download(offloaded[0].blob.hash))));
      if (Buffer.byteLength(answer) > maxAnswer) {
        throw new Error(`the answer has ${Buffer.byteLength(answer)} bytes, more than ${maxAnswer}`);
      }
      return { key, payloadJson: answer };
    } catch (fault) {
      return { key, error: { type: "unknown", message: String(fault) } };
    }
  }

  function connect() {
    const metadata = new grpc.Metadata();
    metadata.set("authorization", authorization);
    const stream = client.Connect(metadata);
    const send = (result) => stream.write({ result });
    stream.write({ register: { offers: functions.map(({ offer }) => offer), maxInFlight, unfinished: [...calls.keys()] } });
    calls.forEach((result) => result.then(send));
    stream.on("data", ({ registered, call, offloaded, accepted, ping }) => {
      if (registered) {
        console.log("registered");
      } else if (call) {
        calls.set(call.key, work(call, offloaded));
        calls.get(call.key).then(send);
      } else if (accepted) {
        calls.delete(accepted.key);
      } else if (ping) {
        stream.write({ pong: {} });
      }
    });
    stream.on("error", (lost) => console.log("connecting again:", lost.details));
    stream.on("close", () => setTimeout(connect, 500));
  }

  connect();
};
