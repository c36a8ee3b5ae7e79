# SPDX-License-Identifier: Apache-2.0
"""Sites of a caller's trainer that freeze, leave, die and come back, with and without a hub: the others train on, and
all end with the same parameters, the newcomer's momentum being its donor's."""
import pathlib
import signal
import subprocess
import time

import bodies
import numpy
import pytest
from test_session import start  # noqa: F401 (a fixture)

import isthmus

TOML = """
[run]
name = "membership"
seed = 2
[train]
trainer = "external"
steps = 10000000
[outer]
method = "{method}"
H = 5
codec = "int8"
{more}
[ckpt]
every = "5000 steps"
[net]
plaintext = true
gather = "60s"
min_sites = 1
dead_after = "4s"
{hub}
{sites}
"""
NAMES = ("east", "west", "north")


class Run:
    def __init__(self, folder, start, ports, method="diloco", more="", hub=False, names=NAMES):
        self.folder, self.names, self.begin_site, self.sites = folder, names, start, {}
        free = ports(len(names) + 1)
        sites = "".join(f'[[site]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\n' for name, port in zip(names, free))
        self.file = folder / "run.toml"
        text = TOML.format(method=method, more=more, sites=sites,
                           hub=f'[hub]\naddress = "127.0.0.1:{free[-1]}"' if hub else "")
        self.file.write_text(text.replace("H = 5\n", "") if method == "ddp" else text)
        self.hub = None
        if hub:
            self.start_hub()
        for name in names:
            self.start(name)

    def start(self, name, *more):
        self.sites[name] = self.begin_site(self.file, name, self.folder / name, *more)

    def start_hub(self, *more):
        self.hub = subprocess.Popen([isthmus.program_path(), "hub", self.file, "--out", self.folder / "hub", *more],
                                    stdout=subprocess.DEVNULL, stderr=(self.folder / "hub.err").open("a"))

    def table(self, name, kind):
        out = self.folder / name
        return isthmus.open(out).table(kind) if (out / "manifest.json").exists() else {}

    def members(self, name="east"):
        found = self.table(name, "round").get("members", [0])
        return found[-1] if len(found) else 0

    def step(self, name="east"):
        found = self.table(name, "train").get("step", [0])
        return int(found[-1]) if len(found) else 0

    def until(self, what, condition, seconds=120):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, what
            time.sleep(0.05)

    def kill(self, name):
        self.sites[name].kill()
        self.sites[name].wait()

    def ends_alike(self):
        """One site is asked to stop: all do, after one step, with one model."""
        self.sites[self.names[-1]].send_signal(signal.SIGINT)
        assert [self.sites[name].wait(120) for name in self.names] == [130] * len(self.names)
        models = {bodies.bits(isthmus.open(self.folder / name).weights()) for name in self.names}
        assert len(models) == 1
        steps = {isthmus.open(self.folder / name).summary["steps"] for name in self.names}
        assert len(steps) == 1

    def close(self):
        if self.hub is not None:
            self.hub.kill()
            self.hub.wait()


@pytest.fixture
def ports():
    import socket

    def free(count):
        held = [socket.socket() for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        found = [each.getsockname()[1] for each in held]
        for each in held:
            each.close()
        return found

    return free


@pytest.fixture
def run(tmp_path, start, ports):  # noqa: F811
    made = []

    def of(**how):
        folder = pathlib.Path(tmp_path) / f"run{len(made)}"
        folder.mkdir()
        made.append(Run(folder, start, ports, **how))
        return made[-1]

    yield of
    for each in made:
        each.close()


@pytest.mark.parametrize("method", ["diloco", "ddp"])
def test_a_frozen_site_is_left_out_and_comes_back_by_itself(run, method):
    sites = run(method=method)
    sites.until("rounds of three", lambda: sites.members() == 3)
    sites.sites["west"].send_signal(signal.SIGSTOP)
    sites.until("rounds of two", lambda: sites.members() == 2)
    sites.sites["west"].send_signal(signal.SIGCONT)
    sites.until("rounds of three again", lambda: sites.members() == 3)
    sites.ends_alike()


@pytest.mark.parametrize("method, more", [("streaming-diloco", "fragments = 2\noverlap = 2"), ("delayed", ""),
                                          ("ddp", "")])
def test_a_site_leaves_in_order_and_comes_back(run, method, more):
    sites = run(method=method, more=more)
    sites.until("rounds of three", lambda: sites.members() == 3)
    sites.sites["north"].send_signal(signal.SIGUSR2)
    assert sites.sites["north"].wait(120) == 85
    sites.until("rounds of two", lambda: sites.members() == 2)
    left = numpy.load(sites.folder / "north.npz")["taken"]
    sites.start("north", "seed=9")  # another start, which does not count
    sites.until("rounds of three again", lambda: sites.members() == 3)
    sites.ends_alike()
    # The counter of steps came with a donor's momentum.
    assert numpy.load(sites.folder / "north.npz")["taken"] > left


def test_a_hub_dies_and_the_first_site_too(run):
    sites = run(hub=True)
    sites.until("rounds of three", lambda: sites.members("west") == 3)
    sites.hub.kill()
    sites.hub.wait()
    at = sites.step("west")
    sites.start_hub("--resume", "auto")
    sites.until("steps beside the hub's next process", lambda: sites.step("west") > at + 200)
    assert sites.members("west") == 3
    sites.kill("east")
    sites.until("rounds of two", lambda: sites.members("west") == 2)
    sites.start("east", "seed=9")
    sites.until("rounds of three again", lambda: sites.members("west") == 3)
    sites.ends_alike()
