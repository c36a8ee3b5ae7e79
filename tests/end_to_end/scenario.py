# SPDX-License-Identifier: Apache-2.0
"""What the scripts beside this one share: how scenarios are played and fail, where they may listen."""
import argparse
import concurrent.futures
import errno
import functools
import pathlib
import random
import socket
import sys
import tempfile


class Failure(Exception):
    pass


def require(condition, text):
    if not condition:
        raise Failure(text)


def free_ports(count):
    """Ports that were free a moment ago; all held at once, so they differ. None is of those that the
    kernel gives to connections: they might be gone again before a site listens."""
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    quiet = [port for port in range(10000, 65536) if not low <= port <= high] or [0]
    held = []
    for _ in range(1000):
        if len(held) == count:
            break
        end = socket.socket()
        try:
            end.bind(("127.0.0.1", random.choice(quiet)))
            held.append(end)
        except OSError as error:
            end.close()
            require(error.errno == errno.EADDRINUSE, str(error))
    require(len(held) == count, "no free ports on loopback")
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def together(tests, at_once=3):
    """Plays tests that mostly wait, so many at a time; the first failure is raised once all have ended."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for each in [pool.submit(test) for test in tests]:
            each.result()


def play(doc, scenarios, at_once=1):
    """The main of a script: each scenario gets the program, a folder and a corpus. `--only`: one."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--isthmus", required=True)
    parser.add_argument("--text", default="/usr/include/linux/bpf.h")
    parser.add_argument("--only")
    arguments = parser.parse_args()
    isthmus = str(pathlib.Path(arguments.isthmus).resolve())
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        corpus = folder / "corpus.txt"
        corpus.write_bytes(pathlib.Path(arguments.text).read_bytes())

        def played(scenario):
            try:
                scenario(isthmus, folder, corpus)
            except Failure as failure:
                raise Failure(f"{scenario.__name__}: {failure}") from None
            print(f"ok: {scenario.__name__}", flush=True)

        try:
            together([functools.partial(played, scenario) for scenario in scenarios
                      if arguments.only in (None, scenario.__name__)], at_once)
        except Failure as failure:
            sys.exit(str(failure))
