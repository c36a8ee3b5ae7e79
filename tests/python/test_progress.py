# SPDX-License-Identifier: Apache-2.0
"""Progress bars and the log of a run."""
import logging
import subprocess
import sys
import types

import bodies
import pytest
from test_session import toml  # noqa: F401 (fixture)

import isthmus
from isthmus import _progress


def trained(file, out):
    shown = []

    def body(site):
        trainer = bodies.Trainer(site.index)
        site.attach(trainer.params, state=trainer.state)
        for t, batch in site.progress(lambda t: 10 * t) if site.index == 0 else site.steps():
            assert batch == (10 * t if site.index == 0 else None)
            loss = trainer.train(t)
            shown.append((site.index, t, loss))
            site.step(loss, tokens=bodies.TOKENS)

    isthmus.run(file, body, out=out)
    return [each[1:] for each in shown if each[0] == 0]


class Bar:
    made = []

    def __init__(self, total, initial, **_):
        self.total, self.n, self.mininterval, self.seen, self.closed = total, initial, 0.0, [], False
        Bar.made.append(self)

    def set_postfix(self, words):
        self.seen.append((self.n, words))

    def refresh(self):
        pass

    def close(self):
        self.closed = True


def test_a_bar_shows_step_loss_waiting_and_bytes(toml, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    auto = types.ModuleType("tqdm.auto")
    auto.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    steps = trained(toml(), tmp_path / "x")
    bar = Bar.made.pop()
    assert bar.total == 23 and bar.closed
    assert [n for n, _ in bar.seen] == [t for t, _ in steps] == list(range(1, 24))
    assert [words["loss"] for _, words in bar.seen] == [f"{loss:.4g}" for _, loss in steps]
    sent = isthmus.open(tmp_path / "x").table("round")["bytes_wire"]
    assert bar.seen[3][1]["sent"] == "0 B"
    # The run's thread may write a round's row after the step that follows it.
    assert bar.seen[-1][1]["sent"] in {_progress.size_text(int(sent[:n].sum())) for n in (len(sent) - 1, len(sent))}
    assert all(words["waits"].endswith("%") for _, words in bar.seen)


def test_without_tqdm_lines_of_the_log_tell(toml, tmp_path, monkeypatch, caplog):  # noqa: F811
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(_progress, "_LINE_EVERY_S", 0.0)
    with caplog.at_level(logging.INFO, "isthmus"):
        steps = trained(toml(), tmp_path / "x")
    lines = [each.getMessage() for each in caplog.records if each.getMessage().startswith("step ")]
    assert len(lines) == 23
    assert lines[6].startswith(f"step 7 of 23: loss {steps[6][1]:.4g}, waits ") and " sent " in lines[6]


@pytest.mark.parametrize("count, text", [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_340_000, "2.34 MB"),
                                         (5 * 10**15, "5e+03 TB")])
def test_sizes_are_told_in_units(count, text):
    assert _progress.size_text(count) == text


@pytest.mark.parametrize("log", [True, False])
def test_the_log_is_shown_where_it_is_asked_for(toml, tmp_path, log):  # noqa: F811
    file = tmp_path / "alone.toml"
    text = toml().read_text()
    file.write_text(text[: text.rindex("[[site]]")] + "[net]\nplaintext = true\n")
    code = f"""
import bodies, isthmus
trainer = bodies.Trainer(0)
with isthmus.join({str(file)!r}, trainer.params, site="east", out={str(tmp_path / "x")!r}, log={log}) as site:
    isthmus._session._log.logger.info("a line of the run")
    trainer.go_through(site)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=bodies.__file__.rsplit("/", 1)[0], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ("isthmus INFO: a line of the run" in done.stderr) == log
