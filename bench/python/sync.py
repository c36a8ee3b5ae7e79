# SPDX-License-Identifier: Apache-2.0
"""A sync of 9.0 M float32 values in 148 tensors between two processes: isthmus beside DiLoCo written in PyTorch with
one flat all-reduce over gloo, and beside torchft's DiLoCo over gloo where torchft is installed, in turns.

  python3 bench/python/sync.py [--rounds 3] [--syncs 20]                          # on loopback
  sudo python3 bench/python/sync.py --wan 100,50 --build build/release --rounds 2 --syncs 6
                                                             # 100 Mbit/s, 50 ms: two network namespaces by bench_wan

JSON lines. The inner step is empty, so the time of a step is that of a sync. Bounds of the ratio to gloo on loopback:
fp32 1.0, int8 and bf16 0.6; to torchft: fp32 0.8, int8 0.45. Over 100 Mbit/s and 50 ms both are to take 1.4 times as
long as fp32 and 4 times as long as int8."""
import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import torch

SHAPES = [(5000, 192)] + [(64, 192), (192,), (192, 192), (576, 64), (192,), (192, 192), (192,)] * 21


def model_of():
    torch.manual_seed(0)
    shapes = SHAPES[:148]
    rest = 9_000_000 - sum(torch.Size(each).numel() for each in shapes[1:])
    return torch.nn.ParameterList([torch.nn.Parameter(0.01 * torch.randn(rest))]
                                  + [torch.nn.Parameter(0.01 * torch.randn(each)) for each in shapes[1:]])


def change(model, rank, t):
    with torch.no_grad():
        for each in model:
            each.mul_(1 - 1e-4 * (1 + rank))


def torchft(rank, host, lighthouse, syncs):
    import torch.distributed as dist
    from torchft.local_sgd import DiLoCo
    from torchft.manager import Manager
    from torchft.process_group import ProcessGroupGloo
    model = model_of()
    store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    manager = Manager(pg=ProcessGroupGloo(), load_state_dict=None, state_dict=None, min_replica_size=2,
                      use_async_quorum=False, rank=0, world_size=1, store_addr=host, store_port=store.port,
                      lighthouse_addr=lighthouse, replica_id=f"replica{rank}", hostname=host, init_sync=False)
    inner = torch.optim.SGD(model.parameters(), lr=0.0)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    times = []
    with DiLoCo(manager, [model], inner, outer, sync_every=1):
        for t in range(1, syncs + 1):
            change(model, rank, t)
            begin = time.perf_counter()
            inner.step()
            times.append(time.perf_counter() - begin)
    return times


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def gloo(rank, address, syncs):
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=2)
    model = model_of()
    anchor = torch.cat([each.detach().reshape(-1) for each in model])
    outer = torch.nn.Parameter(anchor)
    optimizer = torch.optim.SGD([outer], lr=0.7, momentum=0.9, nesterov=True)
    times = []
    for t in range(1, syncs + 1):
        change(model, rank, t)
        dist.barrier()
        begin = time.perf_counter()
        with torch.no_grad():
            delta = outer - torch.cat([each.detach().reshape(-1) for each in model])
            dist.all_reduce(delta)
            outer.grad = delta.div_(2)
            optimizer.step()
            at = 0
            for each in model:
                each.copy_(outer[at : at + each.numel()].view_as(each))
                at += each.numel()
        times.append(time.perf_counter() - begin)
    return times


def isthmus_site(rank, file, out):
    import isthmus.torch
    model = model_of()
    times = []
    with isthmus.torch.join(file, model, site=("east", "west")[rank], out=out) as site:
        for t, _ in site.steps():
            change(model, rank, t)
            begin = time.perf_counter()
            site.step(0.0)
            times.append(time.perf_counter() - begin)
    return times[:-1]  # the last one writes the run's end


def child(kind, rank, *rest):
    torch.set_num_threads(1)
    if kind == "gloo":
        times = gloo(int(rank), rest[0], int(rest[1]))
    elif kind == "torchft":
        times = torchft(int(rank), rest[0], rest[1], int(rest[2]))
    else:
        times = isthmus_site(int(rank), *rest)
    print(json.dumps(times[3:] if len(times) > 8 else times[1:]))
    sys.stdout.flush()
    os._exit(0)  # torchft's servers may wait for one another


class Place:
    """Where the two processes are: one machine, or two network namespaces with a thin link between."""

    def __init__(self, wan, build):
        self.hosts, self.before = ("127.0.0.1", "127.0.0.1"), ([], [])
        self.names, self.wan = [], None
        if not wan:
            return
        mbit, rtt = wan.split(",")
        self.hosts = ("10.213.7.1", "10.213.7.2")
        for end in (0, 1):
            name = f"isthmus-py-{os.getpid()}-{end}"
            self._ip("netns", "add", name)
            self.names.append(name)
            self._ip("-n", name, "link", "set", "lo", "up")
        nodes = [f"{name},up_mbit={mbit},down_mbit={mbit},delay_ms={float(rtt) / 4},loss=0" for name in self.names]
        self.wan = subprocess.Popen([build / "bench/transport/bench_wan", "--subnet", "10.213.7", "--seed", "1",
                                     "--node", *nodes], stdout=subprocess.PIPE, text=True)
        if not self.wan.stdout.readline():
            raise SystemExit("bench_wan did not start; see its error above")
        for name, host in zip(self.names, self.hosts):
            self._ip("-n", name, "route", "replace", "10.213.7.0/24", "dev", "wan0", "src", host)
        self.before = tuple(["ip", "netns", "exec", name, "env", "GLOO_SOCKET_IFNAME=wan0", "TP_SOCKET_IFNAME=wan0"]
                            for name in self.names)

    @staticmethod
    def _ip(*words):
        subprocess.run(["ip", *words], check=True)

    def close(self):
        if self.wan is not None:
            self.wan.terminate()
            self.wan.communicate()
        for name in self.names:
            self._ip("netns", "del", name)


def has_torchft():
    try:
        import torchft.local_sgd  # noqa: F401
    except ImportError:
        return False
    return True


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "child":
        child(*sys.argv[2:])
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--syncs", type=int, default=20)
    parser.add_argument("--wan", help="Mbit/s and round trip in ms, such as 100,50")
    parser.add_argument("--build", type=pathlib.Path, help="with --wan: the build that has bench_wan")
    parser.add_argument("--kinds", default="gloo,torchft,fp32,bf16,int8")
    args = parser.parse_args()
    kinds = [each for each in args.kinds.split(",") if each != "torchft" or has_torchft()]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    place = Place(args.wan, args.build)
    found = {}
    try:
        for _ in range(args.rounds):
            for kind in kinds:
                for times in times_of(kind, args.syncs, place):
                    found.setdefault(kind, []).extend(times)
    finally:
        place.close()
    for kind, times in found.items():
        median = statistics.median(times)
        ratios = {f"ratio_to_{base}": median / statistics.median(found[base]) for base in ("gloo", "torchft")
                  if base in found}
        low, _, high = statistics.quantiles(times, n=4)
        print(json.dumps({"bench": "sync", "kind": kind, "link": args.wan or "loopback", "torch": torch.__version__,
                          "values": 9_000_000, "tensors": 148, "syncs": len(times), "median_ms": median * 1e3,
                          "best_ms": min(times) * 1e3, "quartiles_ms": [low * 1e3, high * 1e3], **ratios}))


def times_of(kind, syncs, place):
    folder = pathlib.Path(tempfile.mkdtemp())
    lighthouse = None
    if kind == "gloo":
        address = f"{place.hosts[0]}:{free_port()}"
        given = [["child", kind, str(rank), address, str(syncs)] for rank in range(2)]
    elif kind == "torchft":
        port = free_port()
        command = [pathlib.Path(sys.executable).with_name("torchft_lighthouse"), "--min_replicas", "2", "--bind",
                   f"[::]:{port}", "--join_timeout_ms", "10000"]
        lighthouse = subprocess.Popen([*place.before[0], *command], stderr=subprocess.DEVNULL)
        given = [["child", kind, str(rank), place.hosts[rank], f"http://{place.hosts[0]}:{port}", str(syncs)]
                 for rank in range(2)]
    else:
        file = folder / "run.toml"
        file.write_text(
            f'[train]\nsteps = {syncs}\n[outer]\nmethod = "diloco"\nH = 1\ncodec = "{kind}"\n'
            f'[net]\nplaintext = true\n[[site]]\nname = "east"\naddress = "{place.hosts[0]}:{free_port()}"\n'
            f'[[site]]\nname = "west"\naddress = "{place.hosts[1]}:{free_port()}"\n')
        given = [["child", "isthmus", str(rank), str(file), str(folder / str(rank))] for rank in range(2)]
    children = [subprocess.Popen([*place.before[rank], sys.executable, __file__, *each], stdout=subprocess.PIPE,
                                 text=True) for rank, each in enumerate(given)]
    try:
        return [json.loads(each.communicate()[0].splitlines()[-1]) for each in children]
    finally:
        for each in [*children, *([lighthouse] if lighthouse else [])]:
            each.kill()
            each.wait()


if __name__ == "__main__":
    main()
