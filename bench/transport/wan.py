#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges over shaped links: network namespaces joined by bench_wan, a process a member.

  sudo python3 bench/transport/wan.py --build BUILD [--row m2-cubic ...] [--trials 20] [--streams 4]
       [--gloo PYTHON]      interpreter that has torch: its gloo is measured in turns with isthmus
       [--mpi]              Open MPI's all-reduce over its TCP, in turns too
       [--commit-in-turns]  the same exchange without commit, in turns too

Prints the JSON lines of member 0, one a trial, then one a row and contender; on stderr a table.
With --commit-in-turns the line of isthmus also says what the commit costs in round trips of the link.
seconds are member 0's, from a barrier to its result; span_s is from the first member's start to the
last one's end. The bound is the least time any schedule of direct links needs. RTT is 50 ms, queues
are 1 BDP. Connections do not inherit what the kernel remembers of earlier ones (tcp_no_metrics_save).
Without root it is skipped, by name. Read late_us of the row: it is bench_wan's own lateness.
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

import open_mpi

SUBNET = "10.0.0"
DEVICE = "wan0"
PORT = 4000
HERE = pathlib.Path(__file__).parent
COMMIT_RTT = 1.5  # what a commit may add to an exchange, at most


@dataclass
class Row:
    name: str
    mbit: list  # of each member's line, up and down
    mb: float  # of the vector in fp32
    congestion: str = "cubic"
    codec: str = "fp32"
    loss: float = 0
    shares: list = field(default_factory=list)
    rtt_ms: float = 50
    streams: object = None  # connections of a directed link, or "auto"; none: as --streams says
    along: str = ""  # "ring" in the place of the exchange of runs


ROWS = [
    Row("m2-cubic", [100] * 2, 25),
    Row("m2-bbr", [100] * 2, 25, congestion="bbr"),
    Row("m4-cubic", [50] * 4, 12.5),
    Row("m2-loss-cubic", [100] * 2, 25, loss=0.001),
    Row("m2-loss-cubic-24", [100] * 2, 25, loss=0.001, streams=24),
    Row("m2-loss-cubic-auto", [100] * 2, 25, loss=0.001, streams="auto"),
    Row("m2-int8-cubic", [100] * 2, 25, codec="int8"),
    Row("m4-int8-cubic", [50] * 4, 12.5, codec="int8"),
    Row("m4-slow-even", [50] * 3 + [12.5], 12.5),
    Row("m4-slow-shares", [50] * 3 + [12.5], 12.5, shares=[1, 1, 1, 0]),
    Row("m4-slow-ring", [50] * 3 + [12.5], 12.5, along="ring"),
    Row("m4-ring", [50] * 4, 12.5, along="ring"),
    Row("m4-int8-ring", [50] * 4, 12.5, codec="int8", along="ring"),
]


class Failure(Exception):
    pass


def address(member):
    return f"{SUBNET}.{member + 1}"


def namespace(member):
    return "isthmus-" + "abcdefghijklmnop"[member]


def inside(member, *command):
    return ["ip", "netns", "exec", namespace(member), *map(str, command)]


def call(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def end_in_order():
    """On SIGTERM too everything made is removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def end(process):
    """Stops one of our processes; RETURNS what it had still to say."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


@contextlib.contextmanager
def namespaces(count):
    made = []
    try:
        for member in range(count):
            if pathlib.Path("/run/netns", namespace(member)).exists():
                raise Failure(f"network namespace {namespace(member)} is there already; if no other wan.py "
                              f"runs: ip netns delete {namespace(member)}")
            call("ip", "netns", "add", namespace(member))
            made.append(namespace(member))
            call("ip", "-n", namespace(member), "link", "set", "lo", "up")
            call(*inside(member, "sysctl", "-qw", "net.ipv4.tcp_no_metrics_save=1"))
        yield
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=False)


@contextlib.contextmanager
def shaped_links(row, build, seed):
    """Yields a dict that holds bench_wan's counters after the end."""
    nodes = [f"{namespace(i)},up_mbit={rate},down_mbit={rate},delay_ms={row.rtt_ms / 4},loss={row.loss}"
             for i, rate in enumerate(row.mbit)]
    wan = subprocess.Popen([build / "bench/transport/bench_wan", "--subnet", SUBNET, "--seed", str(seed),
                            "--node", *nodes], stdout=subprocess.PIPE, text=True)
    counters = {}
    try:
        if not wan.stdout.readline():
            raise Failure("bench_wan did not start; see its error above")
        for member in range(len(nodes)):
            call("ip", "-n", namespace(member), "route", "replace", SUBNET + ".0/24", "dev", DEVICE,
                 "src", address(member), "congctl", row.congestion)
        yield counters
    finally:
        text = end(wan)
        if text.strip():
            counters.update(json.loads(text.strip().splitlines()[-1]))


ECHO = """
import socket, sys, time
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.settimeout(2)
if sys.argv[1] == "answer":
    end.bind((sys.argv[2], 4001)); print("ready", flush=True)
    for _ in range(9): end.sendto(*end.recvfrom(100))
else:
    for _ in range(9):
        begin = time.monotonic(); end.sendto(b"x", (sys.argv[2], 4001)); end.recv(100)
        print((time.monotonic() - begin) * 1e3)
"""


def rtt_ms(member, other):
    """Median of nine UDP echoes; none where packets are lost."""
    answer = subprocess.Popen(inside(other, sys.executable, "-c", ECHO, "answer", address(other)),
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        answer.stdout.readline()
        ask = subprocess.run(inside(member, sys.executable, "-c", ECHO, "ask", address(other)),
                             capture_output=True, text=True)
        times = [float(line) for line in ask.stdout.split()]
        return round(statistics.median(times), 2) if times else None
    finally:
        end(answer)


def isthmus_commands(row, args, trials, commit):
    endpoints = ",".join(f"tcp://{address(i)}:{PORT}" for i in range(len(row.mbit)))
    for member in range(len(row.mbit)):
        command = [args.build / "bench/transport/bench_exchange_member", "--member", member,
                   "--endpoints", endpoints, "--streams", row.streams or args.streams, "--bytes", int(row.mb * 1e6),
                   "--codec", row.codec, "--kind", args.kind, "--trials", trials, "--pause", args.pause,
                   "--line-mbit", ",".join(map(str, row.mbit))]
        command += ["--shares", ",".join(map(str, row.shares))] if row.shares else []
        command += ["--along", row.along] if row.along else []
        command += [] if commit else ["--no-commit"]
        yield command


def gloo_commands(row, args, trials):
    for member in range(len(row.mbit)):
        yield [args.gloo, HERE / "gloo_member.py", "--member", member, "--members", len(row.mbit),
               "--address", address(0), "--interface", DEVICE, "--bytes", int(row.mb * 1e6),
               "--trials", trials, "--pause", args.pause]


def run_members(commands, limit_s, where=inside):
    """Runs one process a member, `where(member, *command)` says how. RETURNS the JSON lines of each."""
    running = [subprocess.Popen(where(member, *command), stdout=subprocess.PIPE, text=True)
               for member, command in enumerate(commands)]
    deadline = time.monotonic() + limit_s
    lines = []
    try:
        for member, process in enumerate(running):
            try:
                text = process.communicate(timeout=max(1, deadline - time.monotonic()))[0]
            except subprocess.TimeoutExpired:
                raise Failure(f"member {member} was not through after {limit_s:.0f} s") from None
            if process.returncode:
                raise Failure(f"member {member} ended with {process.returncode}; see above")
            lines.append([json.loads(line) for line in text.splitlines() if line.startswith("{")])
    finally:
        for process in running:
            end(process)
    return lines


def a_process_each(commands):
    """How a block of trials is run where members are started one by one."""
    return lambda row, args, trials, limit_s: run_members(commands(row, args, trials), limit_s)


class Contender:
    """`run(row, args, trials, limit_s)` gives the JSON lines of each member; commit: None where there is none."""

    def __init__(self, name, run, commit=None):
        self.name = name
        self.run = run
        self.commit = commit
        self.seconds = []
        self.spans = []
        self.bound_s = None

    def block(self, row, args, trials):
        lines = self.run(row, args, trials, 120 + trials * args.patience)
        by_member = [[line for line in its if line["bench"] == "exchange"] for its in lines]
        for trial in zip(*by_member):
            print(json.dumps({"row": row.name, "contender": self.name, **trial[0]}), flush=True)
            self.seconds.append(trial[0]["seconds"])
            self.spans.append(max(t["end_s"] for t in trial) - min(t["begin_s"] for t in trial))
            self.bound_s = trial[0].get("bound_s", self.bound_s)


def quantile(values, q):
    return sorted(values)[max(1, math.ceil(q * len(values))) - 1]


def summary(row, args, contender, bound_s, rtt, load, wan):
    ours = contender.commit is not None
    median, p95 = quantile(contender.seconds, 0.5), quantile(contender.seconds, 0.95)
    return {
        "bench": "wan_row", "row": row.name, "contender": contender.name, "members": len(row.mbit),
        "mbit": row.mbit, "mb": row.mb, "codec": row.codec, "congestion": row.congestion,
        "loss": row.loss, "shares": row.shares, "along": row.along, "streams": (row.streams or args.streams) if ours else None,
        "commit": contender.commit, "pause_s": args.pause, "trials": len(contender.seconds),
        "bound_s": bound_s, "best_s": min(contender.seconds), "median_s": median, "p95_s": p95,
        "span_median_s": round(quantile(contender.spans, 0.5), 4),
        "fraction_median": round(bound_s / median, 3), "fraction_p95": round(bound_s / p95, 3),
        "rtt_ms": rtt, "load": load, "cores": os.cpu_count(), "realtime": wan.get("realtime"),
        "late_us": wan.get("late_us"),
        "late_over_1ms": wan.get("late_over_1ms"), "late_over_10ms": wan.get("late_over_10ms"),
        "lost": sum(n["lost"] for n in wan.get("nodes", [])),
        "dropped": sum(n["dropped_up"] + n["dropped_down"] for n in wan.get("nodes", [])),
        "packets": sum(n["sent"] for n in wan.get("nodes", [])),
    }


def commit_cost(row, rows):
    """What the commit costs, in round trips of the link as declared, where both were measured."""
    of = {line["commit"]: line for line in rows if line["commit"] is not None}
    if len(of) < 2:
        return {}
    rtts = {at: round((of[True][at] - of[False][at]) * 1e3 / row.rtt_ms, 2) for at in ("median_s", "p95_s")}
    return {"commit_rtt_median": rtts["median_s"], "commit_rtt_p95": rtts["p95_s"], "commit_rtt_promised": COMMIT_RTT}


def isthmus(name, commit):
    return Contender(name, a_process_each(lambda *how: isthmus_commands(*how, commit)), commit)


def open_mpi_job(row, args, trials, limit_s):
    places = [(address(member), namespace(member)) for member in range(len(row.mbit))]
    return open_mpi.over_namespaces(args.build, places, DEVICE, int(row.mb * 1e6), trials, args.pause, limit_s)


def contenders_of(row, args):
    contenders = [isthmus("isthmus", not args.no_commit)]
    if args.commit_in_turns:
        contenders.append(isthmus("isthmus, no commit", False))
    if row.codec == "fp32" and not row.shares and not row.along:  # the others have none of them
        if args.gloo:
            contenders.append(Contender("gloo", a_process_each(gloo_commands)))
        if args.mpi:
            contenders.append(Contender("open mpi", open_mpi_job))
    return contenders


def measure(row, args):
    contenders = contenders_of(row, args)
    before = os.getloadavg()[0]
    with namespaces(len(row.mbit)):
        with shaped_links(row, args.build, args.seed) as wan:
            rtt = rtt_ms(0, 1)
            left = args.trials
            while left > 0:
                for contender in contenders:
                    contender.block(row, args, min(left, args.block))
                left -= args.block
    load = [round(before, 2), round(os.getloadavg()[0], 2)]
    rows = [summary(row, args, c, contenders[0].bound_s, rtt, load, wan) for c in contenders]
    rows[0].update(commit_cost(row, rows))
    for line in rows:
        print(json.dumps(line), flush=True)
    return rows


def table(rows):
    print(f"{'row':16} {'contender':18} {'bound':>7} {'best':>7} {'median':>7} {'p95':>7} {'span':>7}"
          f" {'of bound':>8} {'late >1ms':>9} load", file=sys.stderr)
    for r in rows:
        late = "?" if r["late_over_1ms"] is None else f"{r['late_over_1ms']:.1%}"
        print(f"{r['row']:16} {r['contender']:18} {r['bound_s']:7.3f} {r['best_s']:7.3f}"
              f" {r['median_s']:7.3f} {r['p95_s']:7.3f} {r['span_median_s']:7.3f}"
              f" {r['fraction_median']:8.1%} {late:>9} {r['load'][1]}", file=sys.stderr)
    for r in rows:
        if "commit_rtt_median" in r:
            print(f"{r['row']:16} the commit takes {r['commit_rtt_median']:+.2f} RTT (median), "
                  f"promised: {COMMIT_RTT} at most; the 95th of 100 trials are {r['commit_rtt_p95']:+.2f} RTT apart",
                  file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=lambda p: pathlib.Path(p).resolve(), required=True)
    parser.add_argument("--row", action="append", choices=[row.name for row in ROWS])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--block", type=int, default=5, help="trials before it is the other's turn")
    parser.add_argument("--streams", type=lambda text: text if text == "auto" else int(text), default=4)
    parser.add_argument("--kind", choices=["auto", "reduce", "gather"], default="auto")
    commits = parser.add_mutually_exclusive_group()
    commits.add_argument("--no-commit", action="store_true")
    commits.add_argument("--commit-in-turns", action="store_true", help="with and without, a block of trials each")
    parser.add_argument("--pause", type=float, default=0, help="seconds of silence before each trial")
    parser.add_argument("--patience", type=float, default=60, help="seconds a trial may take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gloo", metavar="PYTHON", help="interpreter that has torch")
    parser.add_argument("--mpi", action="store_true", help="Open MPI too, in turns")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: wan.py needs root for network namespaces; use sudo", file=sys.stderr)
        return 0
    if args.mpi and (why := open_mpi.missing(args.build)):
        print(f"error: --mpi: {why}", file=sys.stderr)
        return 1
    end_in_order()
    rows = []
    try:
        for row in ROWS:
            if not args.row or row.name in args.row:
                rows += measure(row, args)
    except (Failure, open_mpi.MpiFailure) as failure:
        print(f"error: {row.name}: {failure}", file=sys.stderr)
        return 1
    finally:
        if rows:
            table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
