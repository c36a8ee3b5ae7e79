# SPDX-License-Identifier: Apache-2.0
"""One PyTorch site of a run, as a process of its own: `torch_site.py FILE NAME OUT [OVERRIDE | WORD=VALUE]...`.

dies=T     killed in step T, between being given the step and telling of it
stops=N    asks all sites to stop after N steps of its own
seed=S     another start
loader=N   torchdata's StatefulDataLoader with N worker processes

OUT.steps has a line a step: t, digests of the parameters and moments that it begins with, of the batch, and the loss.
"""
import json
import os
import pathlib
import pickle
import signal
import sys

import torch
import torch_bodies as bodies

import isthmus
import isthmus.torch
from isthmus import _abi, _errors


def refuse(*_, **__):
    raise AssertionError("pickle was used")


def moments(opt):
    """Of each parameter in order, without names."""
    return bodies.digest([dict(opt.state[each]) for group in opt.param_groups for each in group["params"]])


def loader_of(index, workers):
    if workers is None:
        return bodies.Loader(index)
    from torchdata.stateful_dataloader import StatefulDataLoader

    torch.manual_seed(100 + index)
    pairs = [tuple(each[0] for each in bodies.batch_of(index, t)) for t in range(20)]
    return StatefulDataLoader(pairs, batch_size=4, shuffle=True, num_workers=workers)


def main():
    file, name, out, *words = sys.argv[1:]
    own = dict(each.split("=") for each in words if each.split("=")[0] in ("dies", "stops", "seed", "loader"))
    overrides = [each for each in words if each.split("=")[0] not in own]
    if os.environ.get("ISTHMUS_FAULT"):
        _errors.check(_abi.lib.isthmus_kill_at(os.environ["ISTHMUS_FAULT"].encode()))
    loader = loader_of({"east": 0, "west": 1}[name], int(own["loader"]) if "loader" in own else None)
    model, opt, sched = bodies.made()
    if "seed" in own:
        torch.manual_seed(int(own["seed"]))
        for each in model.parameters():
            torch.nn.init.normal_(each)
    if "loader" not in own:
        pickle.load = pickle.loads = pickle.Unpickler = torch.load = refuse
    begun = 0
    with isthmus.torch.join(file, model, opt, site=name, out=out, state={"sched": sched, "loader": loader},
                            overrides=overrides) as site, open(out + ".steps", "a", buffering=1) as steps:
        for t, batch in site.steps(loader):
            line = [t, bodies.digest(list(model.parameters())), moments(opt), sched.last_epoch, bodies.digest(batch)]
            loss = bodies.train(model, opt, sched, batch)
            if t == int(own.get("dies", 0)):
                os.kill(os.getpid(), signal.SIGKILL)
            steps.write(json.dumps([*line, loss.item().hex()]) + "\n")
            begun += 1
            if begun == int(own.get("stops", 0)):
                site.stop()
            site.step(loss, tokens=24)
    pathlib.Path(out + ".end").write_text(bodies.digest(
        model.state_dict(), opt.state_dict(), sched.state_dict(), torch.get_rng_state()))
    sys.exit(site.outcome.exit_code)


if __name__ == "__main__":
    main()
