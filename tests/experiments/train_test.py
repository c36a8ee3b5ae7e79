#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`run --train` of an experiment loses no finished cell: not to a kill, not to a line that the kill has cut.

train_test.py ROOT: exit 1 on a failure. The program is a stand-in that stores one cell a start.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()

# Stores the next cell, then meets its fate. killed: kills the process that started it. outlives: the same, and stores
# a cell more once told. ended: tells that process to end, and stores a cell more when told the same. ends: ends well.
PROGRAM = """#!{python}
import json, os, pathlib, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
have = out.joinpath("cells.jsonl").read_text().splitlines()
cells = out.joinpath("cells.jsonl").open("a")
def store(key):
    cells.write(json.dumps({{"key": key}}) + "\\n")
    cells.flush()
store(f"cell-{{len(have)}}")
if "{fate}" == "killed":
    cells.write('{{"key": "cut')
    cells.flush()
if "{fate}" in ("killed", "outlives"):
    os.kill(os.getppid(), signal.SIGKILL)
if "{fate}" == "outlives":
    open("{folder}/go").read()
    store("of the orphan")
    open("{folder}/gone", "w").close()
    sys.exit()
if "{fate}" == "ended":
    os.kill(os.getppid(), signal.SIGTERM)
    if signal.sigtimedwait([signal.SIGTERM], 20):
        store("last")
out.joinpath("manifest.json").write_text(json.dumps({{"data": [{{"path": "a", "bytes": 3, "sha256": "{text}"}}]}}))
"""

# The experiment's own `run`, with the folder of runs moved into the test's.
RUN = """
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("comparison", "{module}")
comparison = importlib.util.module_from_spec(spec)
spec.loader.exec_module(comparison)
comparison.RUNS = pathlib.Path("{folder}") / "runs"
comparison.train("{program}", pathlib.Path("{folder}") / "asked" / "{stem}.toml", [])
"""


class Train(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        (self.folder / "asked").mkdir()
        for stem in ("compare", "other"):
            (self.folder / "asked" / f"{stem}.toml").touch()

    def start(self, fate, text="0", stem="compare"):
        program = self.folder / "program"
        program.write_text(PROGRAM.format(python=sys.executable, fate=fate, text=text, folder=self.folder))
        program.chmod(0o755)
        run = RUN.format(module=ROOT / "experiments" / "comparison.py", folder=self.folder, program=program, stem=stem)
        return subprocess.run([sys.executable, "-c", run], check=False).returncode

    def keys(self, name="cells.jsonl"):
        return [json.loads(line)["key"] for line in (self.folder / "asked" / name).read_text().splitlines()]

    def test_cells_of_a_start_that_was_killed_are_kept_by_the_next(self):
        self.assertEqual(self.start("killed"), -9)
        self.assertEqual(self.start("ends"), 0)
        self.assertEqual(self.keys(), ["cell-0", "cell-1"])

    def test_what_a_program_that_outlives_the_kill_still_stores_is_kept(self):
        for name in ("go", "gone"):
            os.mkfifo(self.folder / name)
        self.assertEqual(self.start("outlives"), -9)
        self.assertEqual(self.start("ends"), 0)
        (self.folder / "go").write_text("")
        (self.folder / "gone").read_text()
        self.assertEqual(self.start("ends"), 0)
        self.assertEqual(self.keys(), ["cell-0", "cell-1", "of the orphan", "cell-3"])

    def test_a_start_that_is_told_to_end_ends_its_program_first(self):
        self.assertEqual(self.start("ended"), 1)
        self.assertEqual(self.keys(), ["cell-0", "last"])

    def test_cells_of_the_experiment_stay_and_stay_first(self):
        (self.folder / "asked" / "cells.jsonl").write_text('{"key": "of another machine"}\n')
        self.assertEqual(self.start("ends"), 0)
        self.assertEqual(self.keys(), ["of another machine", "cell-1"])

    def test_another_text_has_a_record_of_its_own(self):
        self.start("ends", text="0")
        self.start("ends", text="1", stem="other")
        names = sorted(path.name for path in (self.folder / "asked").glob("*data.json"))
        self.assertEqual(names, ["data.json", "other.data.json"])

    def test_a_record_of_its_own_goes_once_the_texts_agree(self):
        self.start("ends", text="0")
        self.start("ends", text="1", stem="other")
        self.start("ends", text="0", stem="other")
        self.assertEqual([path.name for path in (self.folder / "asked").glob("*data.json")], ["data.json"])

    def test_the_same_text_has_one_record(self):
        self.start("ends")
        self.start("ends", stem="other")
        self.assertEqual([path.name for path in (self.folder / "asked").glob("*data.json")], ["data.json"])


if __name__ == "__main__":
    unittest.main()
