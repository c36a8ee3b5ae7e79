# SPDX-License-Identifier: Apache-2.0
"""Trainers of comparisons, for test_compare.py. As a script it is one run (or, with `join`, one site of a run) of a
comparison: compared.py HOW."""
import os
import signal
import sys
import threading

import bodies
import numpy

import isthmus
from isthmus import _native

PARTS = 3
WISHED = threading.Event()  # a signal has come


def note_wishes():
    wish = _native.NativeSession.wish

    def noted(session, what):
        wish(session, what)
        WISHED.set()

    _native.NativeSession.wish = noted


def body(site, how=""):
    """Vectors pulled towards a worker's own targets; the seed makes the start, [inner] the rate."""
    trainer = bodies.Trainer(site.index, bodies.initial(site.config.run.seed))
    evaluate = None if how == "blind" else evaluation_of(trainer)
    go(site, trainer, lambda: site.attach(trainer.params, state=trainer.state, evaluate=evaluate), how)


def evaluation_of(trainer):
    """Distance of the outer parameters from zero, in parts: the mean over all of the parts is the loss."""
    def evaluate(part):
        values = numpy.concatenate([each.reshape(-1) for each in trainer.params.values()]).astype(numpy.float64)
        return float(numpy.square(values[part::PARTS]).sum()), len(values[part::PARTS])
    return evaluate


def go(site, trainer, attach, how):
    attach()
    for t, _ in site.steps():
        loss, gradients = trainer.gradients(t)
        loss *= site.config.inner.lr  # a setting that a variant or a grid may have
        if how == "nan" and site.config.outer.method == "diloco" and t == 7:
            loss = float("nan")
        if how == "dies" and t == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "fails" and t == 7:
            raise KeyError("mine")
        if how == "waits" and t == 5 and site.index == 0 and site.config.run.seed == 2:
            with open(os.environ["COMPARED_FIFO"], "w"):  # somebody reads it
                pass
            assert "COMPARED_GOES_ON" in os.environ or WISHED.wait(120)
        if not site.average_gradients(loss, tokens=bodies.TOKENS, gradients=gradients):
            continue
        rate = numpy.float32(site.config.inner.lr)
        for name, value in trainer.params.items():
            value -= rate * gradients[name]
        site.step(loss, tokens=bodies.TOKENS)


def main():
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "nothing":
        print("no run here")
        return
    if how == "join":
        name = os.environ["ISTHMUS_SITE"]
        config = isthmus.load_config("no-such-file.toml")
        trainer = bodies.Trainer({"east": 0, "west": 1}[name], bodies.initial(config.run.seed))
        with isthmus.join("no-such-file.toml", trainer.params, state=trainer.state, evaluate=evaluation_of(trainer),
                          evaluation_parts=PARTS) as site:
            go(site, trainer, lambda: None, how)
        sys.exit(site.outcome.exit_code)
    if how == "joins":
        isthmus.join("no-such-file.toml", bodies.initial(), site="east")
    note_wishes()
    words = ["train.steps=5"] if how == "steps" else ["inner.lr=0.123"] if how == "keys" else []
    play = isthmus.simulate if how == "link" else isthmus.run
    link = {"link": "1Gbit/s,1ms"} if how == "link" else {}
    outcome = play("no-such-file.toml", lambda site: body(site, how), overrides=words,
                   evaluation_parts=0 if how == "blind" else PARTS, **link)
    if how == "twice":
        isthmus.run("no-such-file.toml", body, evaluation_parts=PARTS)
    sys.exit(outcome.exit_code)


if __name__ == "__main__":
    main()
