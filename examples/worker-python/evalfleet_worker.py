"""The protocol of workers, for any worker in Python: put this file beside yours. docs/workers.md describes what it speaks."""
import json, os, queue, sqlite3, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
import grpc
from evalfleet.worker.v1 import worker_service_pb2 as pb, worker_service_pb2_grpc as rpc

ADDRESS = os.environ.get("EVALFLEET_ADDRESS", "127.0.0.1:7460")
AUTHORIZATION = "Bearer " + os.environ["EVALFLEET_TOKEN"]
MAX_ANSWER = 4_000_000  # A larger frame would cost the connection, each time it is sent.

class Worker:
    """Serves functions. One takes a call's payload and returns the answer, both as JSON objects; what it raises is the call's failure.

    Results are kept by the call's key in the file `results` until the server says that they count. So each call is carried out once, unless the process is killed in the middle of it.
    """

    def __init__(self, results, max_in_flight=1):
        self.offers, self.functions = [], {}
        self.max_in_flight, self.pool = max_in_flight, ThreadPoolExecutor(max_in_flight)
        self.kept = sqlite3.connect(results, isolation_level=None, check_same_thread=False)
        self.kept.execute("CREATE TABLE IF NOT EXISTS results (key PRIMARY KEY, result)")
        self.calls = {key: self.pool.submit(pb.CallResult.FromString, result) for key, result in self.kept.execute("SELECT key, result FROM results")}

    def serves(self, **offer):
        """Serves the function below under an offer."""
        def add(function):
            self.offers.append(pb.Offer(**offer))
            self.functions[offer["kind"], offer["name"]] = function
            return function
        return add

    def run(self):
        """Serves for ever, and connects again whenever the connection is lost."""
        stub = rpc.WorkerServiceStub(grpc.insecure_channel(ADDRESS))
        while True:
            out = queue.SimpleQueue()
            try:
                self.serve(stub, out)
            except grpc.RpcError as lost:
                print("connecting again:", lost.details(), flush=True)
            out.put(None)
            time.sleep(0.5)

    def serve(self, stub, out):
        def send(done):
            out.put(pb.ConnectRequest(result=done.result()))
        out.put(pb.ConnectRequest(register=pb.Register(offers=self.offers, max_in_flight=self.max_in_flight, unfinished=self.calls)))
        for call in self.calls.values():
            call.add_done_callback(send)
        for frame in stub.Connect(iter(out.get, None), metadata=[("authorization", AUTHORIZATION)]):
            match frame.WhichOneof("frame"):
                case "registered":
                    print("registered", flush=True)
                case "call":
                    self.calls[frame.call.key] = self.pool.submit(self.work, frame.call, frame.offloaded)
                    self.calls[frame.call.key].add_done_callback(send)
                case "accepted":
                    self.calls.pop(frame.accepted.key, None)
                    self.kept.execute("DELETE FROM results WHERE key = ?", [frame.accepted.key])
                case "ping":
                    out.put(pb.ConnectRequest(pong=pb.Pong()))

    def work(self, call, offloaded):
        print("call", call.key, flush=True)
        try:
            payload = call.payload_json or download(offloaded[0].blob.hash)
            payload = json.dumps(self.functions[call.kind, call.name](json.loads(payload)))
            if len(payload) > MAX_ANSWER:
                raise ValueError(f"the answer has {len(payload)} bytes, more than {MAX_ANSWER}")
            result = pb.CallResult(key=call.key, payload_json=payload)
        except Exception as fault:
            result = failure(call, fault)
        try:
            self.kept.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", [call.key, result.SerializeToString()])
        except sqlite3.Error as fault:  # Its caller would wait for ever for an answer that was not kept.
            result = failure(call, fault)
        return result

def download(hash):
    """The payload of a call that is larger than a frame."""
    url = f"http://{ADDRESS}/api/v1/projects/default/blobs/{hash}:download"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": AUTHORIZATION})) as body:
        return body.read()

def failure(call, fault):
    return pb.CallResult(key=call.key, error=pb.CallError(type="unknown", message=repr(fault)))
