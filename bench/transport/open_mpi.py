#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Open MPI's all-reduce, the peer that wan.py --mpi and loopback.py --mpi measure.

mpirun starts the members of a job, here or in network namespaces. For those this file is the launch
agent too, in the place of ssh:  open_mpi.py ADDRESS COMMAND...  runs COMMAND in the namespace that
ISTHMUS_NAMESPACES ("10.0.0.1=NAME,...") gives for ADDRESS. Each gets a host name of its own, else the
members would take themselves for processes of one machine.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

# A process that waits leaves its core to the others, which are on this machine too.
SETTINGS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
            "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMPI_MCA_hwloc_base_binding_policy": "none"}
SOCKETS = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
NAMESPACES = "ISTHMUS_NAMESPACES"


class MpiFailure(Exception):
    pass


def missing(build):
    """What has to be there and is not; none: nothing."""
    if shutil.which("mpirun") is None:
        return "mpirun is not on PATH: apt install openmpi-bin, or leave --mpi out"
    if not program(build).is_file():
        return (f"there is no {program(build)}: build bench_mpi_member (apt install libopenmpi-dev, then configure "
                "again), or leave --mpi out")
    return None


def program(build):
    return pathlib.Path(build) / "bench/transport/bench_mpi_member"


def in_namespace(name, host, command):
    """`command` of a shell, in a network namespace, on a machine of that name as far as it knows."""
    return ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", f"hostname {host} && {command}"]


def run_job(command, members, limit_s, settings=None):
    """RETURNS: the JSON lines of each member."""
    environment = {**os.environ, **SETTINGS, **(settings or {})}
    job = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        text = job.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        raise MpiFailure(f"mpirun was not through after {limit_s:.0f} s") from None
    finally:
        if job.poll() is None:
            job.terminate()  # it ends its members
            try:
                job.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                job.kill()
                job.communicate()
    if job.returncode:
        raise MpiFailure(f"mpirun ended with {job.returncode}; see above")
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [[line for line in lines if line["member"] == member] for member in range(members)]


def here(build, members, size, trials, limit_s, sockets):
    """Members on this machine: over TCP as the others, or as Open MPI does it by itself."""
    over = [*SOCKETS, "--mca", "btl_tcp_if_include", "lo"] if sockets else []
    return run_job(["mpirun", "-n", members, *over, program(build), "--bytes", size, "--trials", trials],
                   members, limit_s)


def over_namespaces(build, places, device, size, trials, pause, limit_s):
    """Members in network namespaces, `places`: [(address, namespace)] by member."""
    hosts = ",".join(address for address, _ in places)
    words = ["mpirun", "-n", len(places), "--host", hosts, "--map-by", "node", *SOCKETS,
             "--mca", "btl_tcp_if_include", device, "--mca", "oob_tcp_if_include", device,
             "--mca", "plm_rsh_agent", pathlib.Path(__file__).resolve(), "--mca", "plm_rsh_no_tree_spawn", 1,
             program(build), "--bytes", size, "--trials", trials, "--pause", pause]
    command = "exec " + " ".join(str(word) for word in words)
    settings = {NAMESPACES: ",".join(f"{address}={name}" for address, name in places)}
    return run_job(in_namespace(places[0][1], places[0][1], command), len(places), limit_s, settings)


def main():
    """As mpirun's launch agent: ADDRESS COMMAND..., which a shell is to read."""
    names = dict(each.split("=") for each in os.environ.get(NAMESPACES, "").split(",") if each)
    if len(sys.argv) < 3 or sys.argv[1] not in names:
        print(f"error: open_mpi.py {' '.join(sys.argv[1:2])}: started by mpirun alone, with {NAMESPACES} set by "
              "wan.py --mpi", file=sys.stderr)
        return 2
    name = names[sys.argv[1]]
    command = in_namespace(name, name, " ".join(sys.argv[2:]))
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
