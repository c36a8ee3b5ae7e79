# SPDX-License-Identifier: Apache-2.0
"""A small trainer for the tests, and the same outer loop written out: each worker pulls a vector
towards a target of its own by SGD with momentum. Run as a script it is one site of a run."""
import os
import signal
import sys

import numpy

import isthmus
from isthmus import _abi, _errors

LR, MOMENTUM, TOKENS = numpy.float32(0.05), numpy.float32(0.6), 16
SHAPES = {"embed": (6, 3), "layers.0.w": (5, 4), "layers.1.w": (4,), "scale": ()}


def initial(seed=1):
    rng = numpy.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(numpy.float32) for name, shape in SHAPES.items()}


def target(worker, t, name, shape):
    return numpy.random.default_rng([worker, t, len(name)]).standard_normal(shape).astype(numpy.float32)


class Trainer:
    def __init__(self, worker, params=None, dies=0):
        self.worker = worker
        self.dies = dies
        self.params = params or initial()
        self.momentum = {name: numpy.zeros_like(each) for name, each in self.params.items()}
        self.state = {"momentum": self.momentum, "taken": 0}

    def gradients(self, t):
        found = {name: numpy.asarray(value - target(self.worker, t, name, value.shape))
                 for name, value in self.params.items()}
        return float(sum(numpy.square(each, dtype=numpy.float64).sum() for each in found.values()) / 2), found

    def apply(self, gradients):
        for name, value in self.params.items():
            moment = self.momentum[name]
            moment *= MOMENTUM
            moment += gradients[name]
            value -= LR * moment
        self.state["taken"] += 1

    def train(self, t):
        loss, gradients = self.gradients(t)
        self.apply(gradients)
        return loss

    def go_through(self, site):
        for t, _ in site.steps():
            loss, gradients = self.gradients(t)
            if not site.average_gradients(loss, tokens=TOKENS, gradients=gradients):
                continue
            self.apply(gradients)
            if t == self.dies:
                os.kill(os.getpid(), signal.SIGKILL)
            site.step(loss, tokens=TOKENS)


def diloco(workers, steps, H, lr=0.7, momentum=0.9):
    """Algorithm 1 of arXiv:2311.08105 with Nesterov momentum, in float64 beside the float32 steps."""
    trainers = [Trainer(worker) for worker in range(workers)]
    anchor = {name: each.astype(numpy.float64) for name, each in initial().items()}
    velocity = {name: numpy.zeros_like(each) for name, each in anchor.items()}
    losses = []
    for t in range(1, steps + 1):
        losses.append([each.train(t) for each in trainers])
        if t % H and t != steps:
            continue
        for name in anchor:
            delta = sum(anchor[name] - each.params[name] for each in trainers) / workers
            velocity[name] = momentum * velocity[name] + delta
            anchor[name] = anchor[name] - lr * (delta + momentum * velocity[name])
            for each in trainers:
                each.params[name][...] = anchor[name]
    return anchor, losses


def written_out(method, workers, steps, H):
    """Losses of `localsgd`, `streaming-diloco` (two layer fragments and the rest, overlap 2, alpha 0.5), `delayed` and
    `co2`, as docs/reference/methods.md has them, in float64 beside the float32 steps. Nothing is sent at the end."""
    trainers = [Trainer(worker) for worker in range(workers)]
    params = [each.params for each in trainers]
    anchor = {name: each.astype(numpy.float64) for name, each in initial().items()}
    velocity = {name: numpy.zeros_like(each) for name, each in anchor.items()}
    fragments, offsets, overlap, alpha = [list(anchor)], [0], 0, 0.0
    if method == "streaming-diloco":
        fragments = [["layers.0.w"], ["layers.1.w"], ["embed", "scale"]]
        offsets, overlap, alpha = [p * H // 3 for p in range(3)], 2, 0.5
    losses, flying, stale = [], [], None
    for t in range(1, steps + 1):
        losses.append([each.train(t) for each in trainers])
        if method in ("delayed", "co2"):
            if t % H == 0:
                fresh = {name: sum(anchor[name] - each[name] for each in params) / workers for name in anchor}
                for name in anchor if stale else ():
                    if method == "co2":
                        velocity[name] = 0.5 * velocity[name] + stale[name]
                        anchor[name] = anchor[name] - velocity[name]
                    else:
                        velocity[name] = 0.9 * velocity[name] + stale[name]
                        anchor[name] = anchor[name] - 0.4 * (stale[name] + 0.9 * velocity[name])
                for name in anchor:
                    for each in params:
                        each[name][...] = anchor[name]
                stale = fresh
            continue
        for names, offset in zip(fragments, offsets):
            if t % H == offset:
                flying.append((t + overlap, {name: sum(anchor[name] - each[name] for each in params) / workers
                                             for name in names}))
        while flying and flying[0][0] == t:
            for name, delta in flying.pop(0)[1].items():
                if method == "localsgd":
                    anchor[name] = anchor[name] - delta
                else:
                    velocity[name] = 0.9 * velocity[name] + delta
                    anchor[name] = anchor[name] - 0.4 * (delta + 0.9 * velocity[name])
                for each in params:
                    each[name][...] = alpha * each[name] + (1 - alpha) * anchor[name]
    return losses


def bits(params):
    return b"".join(params[name].tobytes() for name in sorted(params))


def main():
    file, name, out, *overrides = sys.argv[1:]
    index = {"east": 0, "west": 1, "north": 2}[name]
    # "seed=5": another start; "dies=7": killed between being given step 7 and telling of it.
    own = dict(each.split("=") for each in overrides if each.startswith(("seed=", "dies=")))
    overrides = [each for each in overrides if each.split("=")[0] not in own]
    if os.environ.get("ISTHMUS_FAULT"):
        _errors.check(_abi.lib.isthmus_kill_at(os.environ["ISTHMUS_FAULT"].encode()))
    trainer = Trainer(index, initial(int(own.get("seed", 1))), dies=int(own.get("dies", 0)))
    with isthmus.join(file, trainer.params, site=name, out=out, state=trainer.state, overrides=overrides,
                      alike={"lr": LR}) as site:
        assert site.index == index
        trainer.go_through(site)
    numpy.savez(out + ".npz", taken=trainer.state["taken"], **trainer.params)
    sys.exit(site.outcome.exit_code)


if __name__ == "__main__":
    main()
