"""A worker that serves the tool `square` and the scorer `close_enough`. README.md says how to run it."""
import json, os, queue, sqlite3, threading, time
import grpc
from evalfleet.worker.v1 import worker_service_pb2 as pb, worker_service_pb2_grpc as rpc

def square(call):  # a ToolPayload in, a ToolResultPayload out
    arguments = json.loads(call["argumentsJson"])
    time.sleep(arguments["seconds"])
    return {"text": str(arguments["n"] ** 2)}

def close_enough(call):  # a ScorerPayload in, a ScorerResultPayload out
    answer, target = float(call["output"]["completion"]), float(call["target"]["values"][0])
    return {"score": {"value": {"number": float(abs(answer - target) <= 0.5)}, "answer": str(answer)}}

SCHEMA = {"type": "object", "required": ["n"], "properties": {
    "n": {"type": "integer", "description": "The number."},
    "seconds": {"type": "number", "description": "How long to take.", "default": 0}}}
SERVES = {("tool", "square"): square, ("scorer", "close_enough"): close_enough}
OFFERS = [pb.Offer(kind="tool", name="square", description="Squares a number, and takes its time.", parameters_json=json.dumps(SCHEMA, separators=(",", ":")), parallel=True, on_unknown="retry"),
          pb.Offer(kind="scorer", name="close_enough", on_unknown="retry")]

kept = sqlite3.connect(os.environ.get("WORKER_RESULTS", "results.db"), isolation_level=None, check_same_thread=False)  # results by key, until they count
kept.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, payload TEXT)")

def work(call, out):
    print("call", call.key, flush=True)
    done = kept.execute("SELECT payload FROM results WHERE key = ?", [call.key]).fetchone()
    try:
        payload = done[0] if done else json.dumps(SERVES[call.kind, call.name](json.loads(call.payload_json)))
        kept.execute("INSERT OR IGNORE INTO results VALUES (?, ?)", [call.key, payload])
        out.put(pb.ConnectRequest(result=pb.CallResult(key=call.key, payload_json=payload)))
    except Exception as fault:
        out.put(pb.ConnectRequest(result=pb.CallResult(key=call.key, error=pb.CallError(type="unknown", message=repr(fault)))))

def serve(channel):
    results, out = kept.execute("SELECT key, payload FROM results").fetchall(), queue.Queue()
    out.put(pb.ConnectRequest(register=pb.Register(offers=OFFERS, max_in_flight=4, unfinished=[key for key, _ in results])))
    for frame in rpc.WorkerServiceStub(channel).Connect(iter(out.get, None), metadata=[("authorization", "Bearer " + os.environ["EVALFLEET_TOKEN"])]):
        match frame.WhichOneof("frame"):
            case "registered":
                print("registered", flush=True)
                kept.executemany("DELETE FROM results WHERE key = ?", [[key] for key in frame.registered.forget])
                for key, payload in results:
                    if key not in frame.registered.forget:
                        out.put(pb.ConnectRequest(result=pb.CallResult(key=key, payload_json=payload)))
            case "call":
                threading.Thread(target=work, args=[frame.call, out], daemon=True).start()
            case "accepted":
                kept.execute("DELETE FROM results WHERE key = ?", [frame.accepted.key])
            case "ping":
                out.put(pb.ConnectRequest(pong=pb.Pong()))

while True:
    try:
        serve(grpc.insecure_channel(os.environ.get("EVALFLEET_ADDRESS", "127.0.0.1:7460")))
    except grpc.RpcError as lost:
        print("connecting again:", lost.details(), flush=True)
    time.sleep(0.5)
