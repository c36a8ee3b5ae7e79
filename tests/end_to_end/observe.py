#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run that is watched, from outside.

  python3 tests/end_to_end/observe.py --isthmus build/src/app/isthmus

While a run goes on its pages answer, agree with each other and with metrics.jsonl, and /metrics is
what Prometheus' text format allows; `isthmus status` says the same from the URL, from the folder and
after the end; clients that hang, flood or send rubbish change neither the run's result nor its end;
sites that are processes of their own tell of their links, and of one that is killed; an address that
is taken, malformed or that nobody answers at is one clear error, before anything is written.
"""
import argparse
import http.client
import http.server
import json
import math
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from scenario import Failure, free_ports, require, small_run

CONFIG = small_run("watched", seed=3, arch="gpt2", layers=1, d_model=16, heads=1, source="text:corpus.txt",
                   steps="{steps}", global_batch="64 tok", context=16, threads=1, lr="2e-3", run="{workers}") + """
[outer]
method = "diloco"
H = 5
[eval]
every = 50
tokens = "256"
[ckpt]
every = "100 steps"
[net]
dead_after = "4s"
gather = "60s"
streams = 2
{more}
"""
PATIENCE = 120  # seconds, for what takes a moment on a machine that is free


def until(condition, what, patience=PATIENCE):
    """Waits for a true answer. RETURNS: it."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.02)
    raise Failure(f"{what}: not within {patience} s")


NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,(?:{LABEL}))*)\}})? (\S+)$")


def exposition(text):
    """A strict reader of Prometheus' text format. RETURNS: {(name, labels): value}."""
    require(text.endswith("\n"), "metrics: the last line has no end")
    helped, types, samples, family = set(), {}, {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            require(name not in helped, f"metrics: {name} has two helps")
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            require(name not in types, f"metrics: {name} has two types: its samples are not together")
            require(kind in ("counter", "gauge"), f"metrics: {name} is a {kind}")
            require(name in helped, f"metrics: {name} has no help")
            require(name.startswith("isthmus_"), f"metrics: {name} has no prefix")
            require((kind == "counter") == name.endswith("_total"), f"metrics: {name} is a {kind}")
            types[name] = kind
            family = name
        else:
            found = SAMPLE.match(line)
            require(found, f"metrics: not a sample: {line!r}")
            require(found.group(1) == family, f"metrics: {line!r} stands in the family {family}")
            labels = tuple(sorted(re.findall(LABEL, found.group(2) or "")))
            require(len({name for name, _ in labels}) == len(labels), f"metrics: {line!r}")
            key = (family, labels)
            require(key not in samples, f"metrics: twice: {line!r}")
            value = float(found.group(found.lastindex))
            require(types[family] != "counter" or value >= 0, f"metrics: negative: {line!r}")
            samples[key] = value
    return samples


class Run:
    """A run with pages, and what it says."""

    def __init__(self, bench, out, *argv):
        self.out = bench.folder / out
        self.process = subprocess.Popen(
            [bench.isthmus, *argv, "--progress", "none", "--out", str(self.out)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.said = []
        self.address = None
        self.reader = threading.Thread(target=self.listen, daemon=True)
        self.reader.start()

    def listen(self):
        for line in self.process.stderr:
            self.said.append(line)

    def url(self):
        """Host and port of its pages, once it has told."""
        def told():
            require(self.process.poll() is None, "the run ended first: " + "".join(self.said))
            return re.search(r"watch the run at http://([0-9.]+):(\d+)/", "".join(self.said))
        if self.address is None:
            host, port = until(told, "an address on stderr").groups()
            self.address = (host, int(port))
        return self.address

    def get(self, path, method="GET", headers=None):
        host, port = self.url()
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        connection.request(method, path, headers=headers or {})
        reply = connection.getresponse()
        body = reply.read().decode()
        connection.close()
        return reply.status, body, reply.headers

    def status(self):
        code, body, _ = self.get("/status.json")
        require(code == 200, f"status.json: {code}")
        return json.loads(body)

    def reach(self, step):
        return until(lambda: (lambda s: s if s["step"] >= step else None)(self.status()), f"step {step}")

    def stop(self, code=130):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.end(code)

    def end(self, code=0):
        try:
            ended = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure("the run does not end: " + "".join(self.said)) from None
        self.reader.join(PATIENCE)
        require(ended == code, f"exit {ended}, not {code}: {''.join(self.said)}")
        require(not (self.out / "live.json").exists(), "live.json stays after the end")

    def lines(self, kind):
        whole = (self.out / "metrics.jsonl").read_text().rpartition("\n")[0].splitlines()
        return [row for row in map(json.loads, whole) if row["k"] == kind]


class Bench:
    def __init__(self, isthmus, folder):
        self.isthmus = isthmus
        self.folder = folder
        (folder / "corpus.txt").write_bytes(bytes(97 + i * i % 26 for i in range(20000)))

    def write(self, name, steps, workers="workers = 2", more=""):
        path = self.folder / name
        path.write_text(CONFIG.format(steps=steps, workers=workers, more=more))
        return str(path)

    def call(self, *argv, code=0):
        done = subprocess.run([self.isthmus, *argv], capture_output=True, text=True,
                              timeout=PATIENCE)
        require(done.returncode == code, f"{argv}: exit {done.returncode}, not {code}: {done.stderr}")
        return done.stdout, done.stderr


class Stranger(http.server.BaseHTTPRequestHandler):
    """Answers, and is no run."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def close(a, b):
    return math.isclose(a, b, rel_tol=1e-12)


def check_pages(bench):
    """The pages against each other and against metrics.jsonl."""
    endless = bench.write("endless.toml", 10**7)
    run = Run(bench, "endless", "train", endless, "--http", "127.0.0.1:0")
    first = run.reach(120)
    code, text, headers = run.get("/metrics")
    require(code == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"),
            f"/metrics: {code} {headers['Content-Type']}")
    metrics = exposition(text)
    last = run.status()

    def value(name, **labels):
        return metrics[("isthmus_" + name, tuple(sorted(labels.items())))]

    step = int(value("steps_total"))
    require(first["step"] <= step <= last["step"], f"steps {first['step']} {step} {last['step']}")
    require(value("planned_steps") == 10**7 == last["steps"], "planned steps")
    require(value("healthy") == 1, "not well")
    require(value("workers") == 2, "workers")
    info = [dict(labels) for name, labels in metrics if name == "isthmus_run_info"]
    require(info[0]["method"] == "diloco" and info[0]["run_id"] == last["run_id"], str(info))
    require(last["eta_s"] > 0 and last["tokens_per_s"] > 0, "speed")
    require(len(last["curves"]["loss"]["step"]) <= 401, "the curve grows without end")

    # What metrics.jsonl says of that step; the run is stopped first, so that all of it is there.
    code, body, _ = run.get("/healthz")
    require(code == 200 and body.startswith("step "), f"/healthz: {code} {body!r}")
    code, page, headers = run.get("/")
    require(code == 200 and "<!doctype html>" in page and "default-src 'none'" in
            headers["Content-Security-Policy"], "the page")
    require(run.get("/", "HEAD")[1] == "", "HEAD has a body")
    require(run.get("/nothing")[0] == 404, "404")
    require(run.get("/", "POST")[0] == 405, "405")
    require(run.get("/", headers={"Host": "evil.example"})[0] == 421, "another's name")
    host, port = run.url()
    live = json.loads((run.out / "live.json").read_text())
    require(live == {"url": f"http://{host}:{port}/", "run_id": last["run_id"]}, str(live))

    url = f"http://{host}:{port}/"
    said = json.loads(bench.call("status", url, "--json")[0])
    require(said["live"] and said["run_id"] == last["run_id"] and said["step"] >= step, "status URL")
    said = json.loads(bench.call("status", str(run.out), "--json")[0])
    require(said["live"] and said["step"] >= step, "status of a live folder asks its page")
    words = bench.call("status", str(run.out))[0]
    require("watched" in words and "running" in words and "loss" in words, words)
    # A page of another run at the address in live.json is not believed.
    (run.out / "live.json").write_text(json.dumps({"url": url, "run_id": "another"}))
    said = json.loads(bench.call("status", str(run.out), "--json")[0])
    require(not said["live"] and said["state"] == "running" and said["step"] > 0, "status of files")
    # Nor is what answers there and is no run, or an address that is none.
    with http.server.HTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        at = f"http://127.0.0.1:{stranger.server_port}/"
        for elsewhere in (at, "http://:1/", "nonsense"):
            (run.out / "live.json").write_text(json.dumps({"url": elsewhere, "run_id": "another"}))
            said = json.loads(bench.call("status", str(run.out), "--json")[0])
            require(not said["live"] and said["step"] > 0, f"status of files, not of {elsewhere}")
        bench.call("status", at, code=3)
        stranger.shutdown()
    (run.out / "live.json").write_text(json.dumps(live))

    watching = subprocess.Popen([bench.isthmus, "status", str(run.out), "--watch", "--json"],
                                stdout=subprocess.PIPE, text=True)
    require(json.loads(watching.stdout.readline())["live"], "watch")
    run.stop()
    seen = [json.loads(line) for line in watching.stdout]
    require(watching.wait(PATIENCE) == 0 and seen[-1]["state"] == "interrupted", "the watch's end")

    trains = {row["step"]: row for row in run.lines("train")}
    rounds = [row for row in run.lines("round")]
    evals = {row["step"]: row for row in run.lines("eval")}
    for at in (first, last):
        row = trains[at["step"]]
        for key, mine in (("loss", "loss"), ("tokens", "tokens"), ("learning_rate", "lr"),
                          ("grad_norm", "grad_norm")):
            require(close(at[key], row[mine]), f"{key} at {at['step']}: {at[key]}, {row[mine]}")
        before = [r for r in rounds if r["step_apply"] <= at["step"]]
        require(at["rounds"] == len(before), f"rounds: {at['rounds']}, {len(before)}")
        require(close(at["fragments"][0]["bytes_wire"], sum(r["bytes_wire"] for r in before)), "bytes")
        require(close(at["fragments"][0]["wait_s"], sum(r["wait_s"] for r in before)), "waits")
        require(at["eval_loss"] == evals[at["eval_step"]]["loss"], "evaluation")
    require(close(value("train_loss"), trains[step]["loss"]), "the loss of /metrics")
    require(value("rounds_total", fragment="0") == step // 5, "the rounds of /metrics")
    require(value("tokens_total") == trains[step]["tokens"], "the tokens of /metrics")

    said = json.loads(bench.call("status", str(run.out), "--json")[0])
    newest = max(trains)
    require(said["state"] == "interrupted" and not said["live"] and said["step"] == newest and
            said["loss"] == trains[newest]["loss"] and said["rounds"] == len(rounds),
            f"status after the end: {said['state']} {said['step']}")
    _, words = bench.call("status", url, code=4)
    require("does not answer" in words, words)


def check_rude_clients(bench):
    """Clients that hang, flood and send rubbish: same result, and the end comes."""
    toml = bench.write("rude.toml", 400)
    bench.call("train", toml, "--progress", "none", "--out", str(bench.folder / "alone"))
    run = Run(bench, "rude", "train", toml, "--http", "127.0.0.1:0")
    address = run.url()
    silent = []
    for i in range(80):  # more than are held at a time
        try:
            each = socket.create_connection(address, PATIENCE)
            each.sendall([b"", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00" * 9][i % 3])
            silent.append(each)
        except OSError:
            break  # the run may be over by now
    stop = threading.Event()

    def flood():
        while not stop.is_set():
            try:
                with socket.create_connection(address, 1) as each:
                    each.sendall(b"GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            except OSError:
                stop.wait(0.05)

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for each in threads:
        each.start()
    try:
        run.end()
    finally:
        stop.set()
        for each in threads:
            each.join(PATIENCE)
    for each in silent:
        each.close()
    models = [(bench.folder / out / "ckpt/last/model.safetensors").read_bytes()
              for out in ("alone", "rude")]
    require(models[0] == models[1], "being watched changed the result")


def check_stall(bench):
    """Nothing goes on for longer than is allowed."""
    toml = bench.write("stall.toml", 10**7, more='[log]\nstalled_after = "1ms"\n')
    run = Run(bench, "stall", "train", toml, "--http", "127.0.0.1:0")
    # A look between two steps that take longer than that finds it out.
    code, body, _ = until(lambda: (lambda r: r if r[0] == 503 else None)(run.get("/healthz")), "503")
    require("log.stalled_after" in body and "1 ms allowed" in body, body)
    run.stop()


def check_sites(bench):
    """Sites apart: peers in words and numbers; a site that is killed, and waited for, is named everywhere."""
    ports = free_ports(2)
    sites = "".join(f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n'
                    for name, port in zip(("east", "west"), ports))
    toml = bench.write("sites.toml", 10**7, workers="", more=sites)
    both = ("--set", "net.min_sites=2")  # else the first goes on alone
    east = Run(bench, "east", "train", toml, "--site", "east", *both, "--http", "127.0.0.1:0")
    code, _, _ = until(lambda: (lambda r: r if "waiting" in r[1] else None)(east.get("/healthz")),
                       "waiting for west")
    require(code == 200, f"alone: {code}")
    require(east.status()["peers"][0]["connected"] is False, "nobody is there yet")
    west = Run(bench, "west", "train", toml, "--site", "west", *both)
    status = east.reach(50)
    peer = status["peers"][0]
    require(peer["name"] == "west" and peer["connected"] and peer["cause"] == "", str(peer))
    require(peer["bytes_sent"] > 0 and peer["bytes_received"] > 0 and peer["heard_ago_s"] >= 0,
            str(peer))
    samples = exposition(east.get("/metrics")[1])
    require(samples[("isthmus_peer_connected", (("peer", "west"),))] == 1, "peer_connected")
    require(samples[("isthmus_link_drops_total", (("kind", "lost"), ("peer", "west")))] == 0, "drops")
    west.process.kill()
    west.process.wait(PATIENCE)
    seen = until(lambda: (lambda s: s if s["state"] == "waiting" else None)(east.status()),
                 "east waits for west")
    require("net.min_sites = 2 (west is gone)" in seen["word"] and seen["healthy"], seen["word"])
    require(seen["drops"][-1]["peer"] == "west" and seen["drops"][-1]["cause"], "no drop")
    require(not seen["peers"][0]["connected"] and seen["peers"][0]["cause"], str(seen["peers"]))
    metrics = exposition(east.get("/metrics")[1])
    require(sum(v for (name, _), v in metrics.items()
                if name == "isthmus_link_drops_total") > 0, "a drop that is not counted")
    require(east.get("/healthz")[0] == 200, "to wait is no fault")
    require(any("link:" in line and "west" in line for line in east.said), "".join(east.said))
    stood = seen["step"]
    west = Run(bench, "west", "train", toml, "--site", "west", *both, "--resume", "auto")
    require(east.reach(stood + 20)["state"] == "running", "it goes on")
    west.stop()
    east.end(130)  # with west: a signal now might come too late to be one to stop


def check_simulated(bench):
    links = '[[link]]\nbetween = ["*", "*"]\nrate = "10Mbit/s"\nrtt = "10ms"\n[sim]\nstep_time = "50ms"\n'
    toml = bench.write("simulated.toml", 10**7, more=links)
    run = Run(bench, "simulated", "simulate", toml, "--http", "127.0.0.1:0")
    status = run.reach(60)
    require(status["clock"] == "virtual" and status["simulated_s"] > 60 * 0.05, str(status["simulated_s"]))
    exposition(run.get("/metrics")[1])
    run.stop()
    row = {r["step"]: r for r in run.lines("train")}[status["step"]]
    require(close(status["simulated_s"], row["ts"]), f"{status['simulated_s']} {row['ts']}")
    emulated = Run(bench, "emulated", "simulate", toml, "--emulate", "--http", "127.0.0.1:0")
    require(emulated.reach(20)["clock"] == "real", "emulated")
    emulated.stop()


def check_refusals(bench):
    toml = bench.write("refused.toml", 10)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, words = bench.call("train", toml, "--http", f"127.0.0.1:{port}", "--out",
                              str(bench.folder / "refused"), code=4)
        require(f"127.0.0.1:{port}" in words and "another program listens" in words, words)
    for wrong in ("9090", "localhost", ":80", "a\"b:1"):
        _, words = bench.call("train", toml, "--http", wrong, "--out",
                              str(bench.folder / "refused"), code=3)
        require("log.http" in words and "127.0.0.1:9090" in words, words)
    _, words = bench.call("train", toml, "--http", "192.0.2.1:0", "--out",
                          str(bench.folder / "refused"), code=4)
    require("192.0.2.1" in words, words)
    require(not (bench.folder / "refused").exists(), "something was written")
    bench.call("status", str(bench.folder), code=3)
    bench.call("status", "https://127.0.0.1:1/", code=3)
    open_to_all = Run(bench, "open", "train", bench.write("open.toml", 10**7), "--http", "0.0.0.0:0")
    open_to_all.url()
    until(lambda: "open to everybody" in "".join(open_to_all.said), "a warning")
    require(open_to_all.get("/healthz", headers={"Host": "east.example.org"})[0] == 200, "a name")
    open_to_all.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--isthmus", required=True)
    arguments = parser.parse_args()
    checks = [check_refusals, check_pages, check_rude_clients, check_stall, check_simulated]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.isthmus, pathlib.Path(folder))
        parts, _ = bench.call("doctor", "--json")
        if '"ZeroMQ","value":"not in this build"' not in parts:
            checks.append(check_sites)
        for check in checks:
            begin = time.monotonic()
            try:
                check(bench)
            except Failure as failure:
                print(f"{check.__name__}: {failure}", file=sys.stderr)
                return 1
            print(f"{check.__name__}: ok, {time.monotonic() - begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
