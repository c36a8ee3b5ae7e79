#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A site of three is slow for a while, and net.deadline lets the others go on.

  python3 tests/end_to_end/slow_site.py --isthmus build/src/app/isthmus

Its process is stopped most of the time, in pulses. The others have rounds without its work; it skips
steps to be where they are, nobody counts it as gone, and once it is fast again all contribute. All
end after the same step with the same parameters.
"""
import contextlib
import signal
import threading

import sites_come_and_go
from scenario import play, require
from sites_come_and_go import Run

STANDS_S, RUNS_S = 0.2, 0.02  # an eleventh of its speed: slow beside others on a busy machine, too
sites_come_and_go.KEYS["diloco slow"] = 'H = 20\ncodec = "int8"\n'
sites_come_and_go.KEYS["streaming-diloco slow"] = "H = 20\nfragments = 2\noverlap = 5\n"


@contextlib.contextmanager
def slow(site):
    over = threading.Event()

    def pulse():
        while not over.is_set():
            site.send_signal(signal.SIGSTOP)
            over.wait(STANDS_S)
            site.send_signal(signal.SIGCONT)
            over.wait(RUNS_S)

    pulses = threading.Thread(target=pulse)
    pulses.start()
    try:
        yield
    finally:
        over.set()
        pulses.join()


def holds_nobody_up(isthmus, folder, corpus, method, deadline):
    run = Run(isthmus, folder / f"{method}-{deadline}", corpus, method, 3,
              net=f'deadline = "{deadline}"')
    try:
        run.until("rounds of all", lambda: run.members_of_last_round() == 3)
        before = len(run.rows("east", "round"))
        with slow(run.sites["north"]):
            run.until("a round without it", lambda: any(
                row["members"] == 2 for row in run.rows("east", "round")[before:]))
            run.until("it knows", lambda: "has not begun the round" in run.said("north") and
                      "was not counted" in run.said("north"))
            run.until("it skips steps", lambda: "it has skipped" in run.said("north"))
        run.until("rounds of all again", lambda: run.members_of_last_round() == 3)
        for name in run.names:
            require("is gone (" not in run.said(name), f"{name}: {run.said(name)}")
        run.stop()
    finally:
        run.end()


def a_slow_site_holds_nobody_up(isthmus, folder, corpus):
    holds_nobody_up(isthmus, folder, corpus, "diloco slow", "100ms")


def nor_with_fragments_under_way(isthmus, folder, corpus):
    holds_nobody_up(isthmus, folder, corpus, "streaming-diloco slow", "100ms")


if __name__ == "__main__":
    play(__doc__, [a_slow_site_holds_nobody_up, nor_with_fragments_under_way])
