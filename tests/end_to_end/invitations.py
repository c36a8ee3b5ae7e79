#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sites without a key in the file come by an invitation of the hub, and are barred again.

  python3 tests/end_to_end/invitations.py --isthmus build/src/app/isthmus

Three sites and a hub with keys; the third, `north`, has none in the file. Invited before the start
it takes part from the first round. Invited while the other two train it joins, and all hold the
same bits. Revoked, it is gone for the others, ends with exit code 5, and cannot come back, nor with
its old invitation and a new key; nor can a stranger who has copied the invitation. A hub that is
killed and started again keeps all that. What is wrong with an invitation is said in one line, and
no log holds the token. An invited site that reaches nobody but the hub and a relay, because neither
it nor the others can be dialled, does all that too, and a relay may itself be one that was invited.
"""
import json
import signal
import subprocess

import sites_come_and_go
from scenario import Failure, free_ports, play, require

NAMES = sites_come_and_go.NAMES


class KeyedRun(sites_come_and_go.Run):
    """Sites with keys but for those invited, and a hub, each a process. `hidden` have no address."""

    def __init__(self, isthmus, folder, corpus, method="diloco", invited=("north",), hidden=(), relay=None):
        self.isthmus, self.folder, self.names = isthmus, folder, NAMES[:3]
        folder.mkdir()
        printed = self.command("keygen", *self.names, "hub").stdout
        keys = [line for line in printed.splitlines() if line.startswith("key")]
        ports = free_ports(5)
        tables = f'[hub]\naddress = "127.0.0.1:{ports[3]}"\n{keys[3]}\n'
        for name, port, key in zip(self.names, ports, keys):
            tables += f'[[site]]\nname = "{name}"\n'
            tables += "" if name in hidden else f'address = "127.0.0.1:{port}"\n'
            tables += f'relay = "127.0.0.1:{ports[4]}"\n' if name == relay else ""
            tables += "" if name in invited else key + "\n"
        self.toml = folder / "run.toml"
        self.toml.write_text(sites_come_and_go.TEXT.format(
            method=method, keys=sites_come_and_go.METHODS[method], sites=tables, batch=3 * 128,
            corpus=corpus, min_sites=1, gather="60s"))
        self.sites, self.hub, self.invitations = {}, None, []
        self.start_hub()

    def command(self, *words, code=0):
        done = subprocess.run([self.isthmus, *words], cwd=self.folder, capture_output=True,
                              text=True, timeout=120)
        require(done.returncode == code, f"{words}: exit {done.returncode}: {done.stderr}")
        return done

    def start_hub(self, *flags):
        self.hub = subprocess.Popen(
            [self.isthmus, "hub", str(self.toml), "--out", str(self.folder / "hub"), *flags],
            stdout=subprocess.DEVNULL, stderr=open(self.folder / "hub.err", "a"))

    def keys(self, what, *words, code=0):
        return self.command("hub", what, str(self.toml), "--hub", str(self.folder / "hub"), *words,
                            code=code)

    def invite(self, *words, name="north"):
        text = self.keys("invite", "--name", name, *words).stdout.strip()
        self.invitations.append(text)
        return text

    def refused(self, words, *flags, name="north", code=5):
        """A site that cannot come in, and is told why in its last line."""
        done = subprocess.run(
            [self.isthmus, "train", str(self.toml), "--site", name, "--progress", "none", "--out",
             str(self.folder / "refused"), "--force", *flags], capture_output=True, text=True,
            timeout=120)
        require(done.returncode == code, f"{flags}: exit {done.returncode}: {done.stderr}")
        require(words in done.stderr.splitlines()[-1], f"no '{words}' in: {done.stderr}")
        require(not (self.folder / "refused").exists(), "something was written")

    def until(self, what, condition, patience=120):
        try:
            return super().until(what, condition, patience)
        except Failure as failure:
            raise Failure(f"{failure}\nhub: {self.said('hub')[-1500:]}")

    def said(self, name):
        path = self.folder / f"{name}.err"
        return path.read_text() if path.exists() else ""

    def how(self):
        listed = json.loads(self.keys("keys", "--json").stdout)
        return [(row["site"], row["how"].split(",")[0]) for row in listed["keys"]]

    def no_token_in_logs(self):
        for path in self.folder.rglob("*"):
            if path.is_file() and path.suffix in (".err", ".jsonl", ".json", ".toml", ".keys", ".log"):
                for text in self.invitations:
                    require(text[20:] not in path.read_text(errors="replace"), f"token in {path}")

    def end(self):
        super().end()
        if self.hub and self.hub.poll() is None:
            self.hub.kill()
            self.hub.wait()


def invited_before_the_start(isthmus, folder, corpus):
    run = KeyedRun(isthmus, folder / "before", corpus)
    try:
        text = run.invite()
        require(len(text.split()) == 1 and text.startswith("isthmus1."), text)
        run.start("east")
        run.start("west")
        run.until("the hub waits for who is invited",
                  lambda: "waiting for north" in run.said("hub"))
        run.start("north", "--invite", text)
        run.until("rounds of three", lambda: run.members_of_last_round("east") == 3)
        require(run.rows("east", "round")[0]["members"] == 3, "a round without the invited site")
        require(("north", "invitation") in run.how(), str(run.how()))
        run.stop()
        require(run.hub.wait(timeout=60) == 0, run.said("hub"))
        run.no_token_in_logs()
    finally:
        run.end()


def invited_while_it_runs(isthmus, folder, corpus):
    """... then the hub dies, then the site is revoked, and cannot come back."""
    run = KeyedRun(isthmus, folder / "while", corpus)
    try:
        run.start("east")
        run.start("west")
        run.until("rounds of two", lambda: run.members_of_last_round("west") == 2)
        run.refused("lets no member with this key")
        text = run.invite()
        run.refused("needs no invitation", "--invite", text, name="east", code=3)
        run.refused("damaged", "--invite", text[:-3] + "abc")
        run.start("north", "--invite", text)
        run.until("rounds of three", lambda: run.members_of_last_round("west") == 3)

        stranger = run.folder / "stranger"
        run.command("keygen", "north", "--out", str(stranger))
        run.refused("used up", "--invite", text, "--key", str(stranger / "north.key"))
        require(run.members_of_last_round("west") == 3, "a stranger has disturbed the run")

        run.hub.kill()
        run.hub.wait()
        run.start_hub("--resume", "auto")
        run.until("it is back", lambda: "the hub is back" in run.said("north"))
        before = len(run.rows("west", "round"))
        run.until("rounds go on", lambda: len(run.rows("west", "round")) > before + 3)
        require(run.members_of_last_round("west") == 3, "the hub has forgotten who came")

        run.keys("revoke", "north")
        run.until("rounds of two", lambda: run.members_of_last_round("west") == 2, 60)
        require(run.code_of("north") == 5, run.said("north"))
        require(("north", "revoked") in run.how(), str(run.how()))
        run.refused("lets no member with this key")
        run.refused("revoked", "--invite", text)
        run.refused("revoked", "--invite", text, "--key", str(stranger / "north.key"))
        require(run.members_of_last_round("west") == 2, "a revoked site is in again")

        second = run.invite()
        run.refused("has been revoked", "--invite", second)
        run.start("north", "--invite", second, "--key", str(stranger / "north.key"), "--resume",
                  "auto")
        run.until("rounds of three again", lambda: run.members_of_last_round("west") == 3)
        run.stop()
        run.no_token_in_logs()
    finally:
        run.end()


def invited_where_only_hub_and_relay_are_reached(isthmus, folder, corpus):
    """... then the relay's process dies, then the site is revoked, and comes with another key."""
    run = KeyedRun(isthmus, folder / "behind_nat", corpus, hidden=("west", "north"), relay="east")
    try:
        run.start("east")
        run.start("west")
        run.until("rounds of two", lambda: run.members_of_last_round("west") == 2)
        run.start("north", "--invite", run.invite())
        run.until("rounds of three", lambda: run.members_of_last_round("west") == 3)

        run.sites["east"].kill()
        run.sites["east"].wait()
        run.start("east", "--resume", "auto")
        before = len(run.rows("west", "round"))
        run.until("rounds of three go on", lambda: len(run.rows("west", "round")) > before + 3 and
                  run.members_of_last_round("west") == 3)

        run.keys("revoke", "north")
        run.until("rounds of two again", lambda: run.members_of_last_round("west") == 2, 60)
        require(run.code_of("north") == 5, run.said("north"))
        run.refused("lets no member with this key")
        stranger = run.folder / "stranger"
        run.command("keygen", "north", "--out", str(stranger))
        run.start("north", "--invite", run.invite(), "--key", str(stranger / "north.key"), "--resume",
                  "auto")
        run.until("rounds of three again", lambda: run.members_of_last_round("west") == 3)
        run.stop()
        run.no_token_in_logs()
    finally:
        run.end()


def an_invited_site_is_the_relay(isthmus, folder, corpus):
    run = KeyedRun(isthmus, folder / "relay", corpus, invited=("east", "north"), hidden=("west", "north"),
                   relay="east")
    try:
        texts = {name: run.invite(name=name) for name in ("east", "north")}
        run.start("west")
        for name, text in texts.items():
            run.start(name, "--invite", text)
        run.until("rounds of three", lambda: run.members_of_last_round("west") == 3)
        require(run.rows("west", "round")[0]["members"] == 3, "a round without an invited site")
        run.stop()
        run.no_token_in_logs()
    finally:
        run.end()


def what_is_refused(isthmus, folder, corpus):
    run = KeyedRun(isthmus, folder / "refused", corpus)
    try:
        late = run.invite("--ttl", "1s")
        run.until("it has expired", lambda: subprocess.run(["sleep", "0.1"]) and "expired" in
                  run.keys("keys", "--json").stdout)
        run.refused("has expired", "--invite", late)
        done = run.keys("invite", "--name", "east", code=3)
        require("needs no invitation" in done.stderr, done.stderr)
        done = run.keys("invite", "--name", "south", code=3)
        require("no such site" in done.stderr, done.stderr)
        text = run.invite()
        run.hub.send_signal(signal.SIGTERM)
        require(run.hub.wait(timeout=60) == 130, run.said("hub"))
        run.refused("was not reached within", "--invite", text, "--set", "net.gather=2s")
        # Of another hub's folder, with the same key: the token is none that it can have made.
        other = run.command("hub", "invite", str(run.toml), "--hub", str(run.folder / "other"),
                            "--name", "north").stdout.strip()
        run.start_hub("--resume", "auto")
        run.refused("does not know this invitation", "--invite", other)
        run.keys("revoke", "north")  # void, though nobody came with it
        run.refused("revoked", "--invite", text)
        bare = run.folder / "bare.toml"
        lines = run.toml.read_text()
        begin = lines.index("[hub]")
        bare.write_text(lines[:begin] + lines[lines.index("[[site]]"):])
        run.toml = bare
        run.refused("no [hub]", "--invite", text, code=3)
    finally:
        run.end()


if __name__ == "__main__":
    play(__doc__, (invited_before_the_start, invited_while_it_runs,
                   invited_where_only_hub_and_relay_are_reached, an_invited_site_is_the_relay,
                   what_is_refused))
