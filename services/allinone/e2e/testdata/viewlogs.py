"""Starts inspect_ai's viewer on a folder of logs and reads each through its HTTP interface, as its page does. Prints a list with an object a log, as JSON."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(folder):
    """Another process may take the port before the viewer does; it then ends at once."""
    for _ in range(5):
        port = free_port()
        program = os.path.join(os.path.dirname(sys.executable), "inspect")
        viewer = subprocess.Popen(
            [program, "view", "start", "--log-dir", folder, "--host", "127.0.0.1", "--port", str(port)], stdout=sys.stderr, stderr=sys.stderr
        )
        while viewer.poll() is None:
            try:
                get(port, "log-dir")
                return viewer, port
            except OSError:
                time.sleep(0.1)
    raise RuntimeError("the viewer does not start")


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/{path}", timeout=30) as answer:
        return answer.read()


def view(port, name):
    quoted = urllib.parse.quote(name, safe="")
    [header] = json.loads(get(port, "log-headers?file=" + quoted))
    whole = json.loads(get(port, "logs/" + quoted))
    size = int(get(port, "log-size/" + quoted))
    return {
        "file": name.rsplit("/", 1)[-1],
        "status": header["status"],
        "task": header["eval"]["task"],
        "samples": [[s["id"], s["epoch"], len(s["messages"]), len(s["events"])] for s in whole["samples"]],
        "size": size,
        "bytes": len(get(port, f"log-bytes/{quoted}?start=0&end={size - 1}")),
    }


def main():
    viewer, port = start(sys.argv[1])
    try:
        listed = json.loads(get(port, "logs"))["files"]
        json.dump([view(port, log["name"]) for log in listed], sys.stdout)
    finally:
        viewer.terminate()
        viewer.wait()


main()
