# SPDX-License-Identifier: Apache-2.0
"""What a site holds beside its model between two syncs: anchors, momentum and little else."""
import json
import os
import socket
import subprocess
import sys

import pytest

VALUES = 16_000_000
BYTES_A_VALUE = 8.2  # anchors and momentum, 4 each, rounded up to pages of 2 MiB
FIXED = 14 << 20  # threads, and what a near link holds under way (8 MiB)
MOST = int(BYTES_A_VALUE * VALUES) + FIXED

SITE = """
import ctypes, json, os, pathlib, sys, time
import numpy
import isthmus

class InUse(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks",
                                                     "fsmblks", "uordblks", "fordblks", "keepcost")]
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = InUse

def in_use():
    found = libc.mallinfo2()  # what is allocated, without what is free and not given back
    return found.uordblks + found.hblkhd

values, most, file, name, out = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
params = {f"layers.{i}.w": numpy.ones(values // 8, numpy.float32) for i in range(8)}
before, held = in_use(), {}
with isthmus.join(file, params, site=name, out=out) as site:
    for t, _ in site.steps():
        for each in params.values():
            each *= 0.999
        site.step(0.0)
        held[t] = in_use() - before
        if t % 2 == 1:  # the next round begins once both have looked
            until = time.monotonic() + 30  # the last frames of a round are acknowledged a moment later
            while held[t] > most and time.monotonic() < until:
                os.sched_yield()
                held[t] = in_use() - before
            pathlib.Path(out + f".{t}").touch()
            while not all(os.path.exists(os.path.join(os.path.dirname(out), f"{each}.{t}")) for each in ("east", "west")):
                os.sched_yield()
print(json.dumps(held))
"""


@pytest.mark.parametrize("codec", ["fp32", "int8"])
def test_between_syncs_a_site_holds_anchors_and_momentum(tmp_path, codec):
    """Neither encoded contributions nor results of the last round stay until the next one."""
    held = [socket.socket() for _ in range(2)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    file = tmp_path / "run.toml"
    file.write_text(f'[train]\nsteps = 7\n[outer]\nmethod = "diloco"\nH = 2\ncodec = "{codec}"\n[net]\n'
                    'plaintext = true\ngather = "60s"\n[ckpt]\nevery = "1000 steps"\n'
                    f'[[site]]\nname = "east"\naddress = "127.0.0.1:{ports[0]}"\n'
                    f'[[site]]\nname = "west"\naddress = "127.0.0.1:{ports[1]}"\n')
    sites = [subprocess.Popen([sys.executable, "-c", SITE, str(VALUES), str(MOST), file, name, tmp_path / name],
                              stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
             for name in ("east", "west")]
    for name, site in zip(("east", "west"), sites):
        said, _ = site.communicate(timeout=240)
        assert site.returncode == 0
        of_step = {int(t): bytes_held for t, bytes_held in json.loads(said).items()}
        # Step 3 follows the first round, step 5 the second, and neither ends one.
        for t in (3, 5):
            assert of_step[t] <= MOST, (name, t, of_step[t] / VALUES)
