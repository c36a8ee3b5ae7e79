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
