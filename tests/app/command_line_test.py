#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drives the real program: exit codes, last lines of stderr, machine output.

command_line_test.py PROGRAM
"""
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

PROGRAM = ""
RUN = """[run]
workers = 2
[model]
preset = "nano"
[data]
source = "text:words.txt"
[train]
steps = 3
global_batch = "256 tok"
context = 32
"""


def site_lines(text):
    """(name, key) of each [[site]] in what keygen printed, which has no other lines."""
    lines = [line for line in text.splitlines() if line]
    assert all(line == "[[site]]" for line in lines[0::3]), text
    values = [line.split(" = ", 1)[1].strip('"') for line in lines if line != "[[site]]"]
    return list(zip(values[0::2], values[1::2]))


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.write("run.toml", RUN)
        self.write("words.txt", "the quick brown fox jumps over the lazy dog. " * 200)

    def tearDown(self):
        self.scratch.cleanup()

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def run_program(self, *arguments, **kwargs):
        environment = {**os.environ, "NO_COLOR": "1"}
        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder, capture_output=True,
                              text=True, timeout=60, env=environment, **kwargs)

    def refuses(self, code, words, *arguments):
        done = self.run_program(*arguments)
        told = f"{arguments}\n{done.stdout}\n{done.stderr}"
        self.assertEqual(done.returncode, code, told)
        self.assertTrue(done.stderr.strip(), told)
        last = done.stderr.strip().splitlines()[-1]
        self.assertTrue(last.startswith("isthmus: error: "), told)
        self.assertIn(words, last, told)
        return done

    def prints(self, *arguments):
        done = self.run_program(*arguments)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stderr}")
        return done.stdout

    def object_of(self, *arguments):
        lines = self.prints(*arguments, "--json").splitlines()
        self.assertEqual(len(lines), 1)
        return json.loads(lines[0])


class Usage(CommandLine):
    def test_misspelt_commands_and_flags_get_a_suggestion(self):
        self.refuses(2, "did you mean 'train'?", "trian", "run.toml")
        self.refuses(2, "did you mean '--force'?", "train", "run.toml", "--fore")
        self.refuses(2, "did you mean 'verify'?", "data", "verfy", "x")
        self.refuses(2, "did you mean '--progress'?", "--progres", "none", "doctor")

    def test_what_is_missing_or_too_much(self):
        self.refuses(2, "--help")
        self.refuses(2, "CONFIG", "train")
        self.refuses(2, "unexpected argument 'other.toml'", "train", "run.toml", "other.toml")
        self.refuses(2, "--set", "train", "run.toml", "--set")
        self.refuses(2, "--color", "doctor", "--color", "sometimes")
        self.refuses(2, "--workers", "train", "run.toml", "--workers", "-3")
        self.refuses(2, "--workers", "train", "run.toml", "--workers", "many")
        self.refuses(2, "--link", "simulate", "run.toml", "--link", "fast")
        self.refuses(2, "hf", "export", "run", "--to", "gguf", "out")
        self.refuses(2, "[0, 1024]", "bench", "compute", "--threads", "1025")
        self.refuses(2, "--seconds 0: must be above 0", "bench", "compute", "--seconds", "0")
        self.refuses(2, "--batch -1: must be at least 0", "bench", "compute", "--batch", "-1")
        self.refuses(2, "--attention", "bench", "compute", "--device", "cuda", "--attention", "flash")
        self.refuses(2, "add --device cuda", "bench", "compute", "--attention", "cudnn")
        self.refuses(2, "--device", "bench", "codec", "--device", "tpu")
        self.refuses(2, "--values", "bench", "codec", "--device", "cuda", "--values", "0")

    def test_help_and_version(self):
        self.assertIn("simulate", self.prints("--help"))
        self.assertIn("--resume", self.prints("train", "--help"))
        self.assertTrue(self.prints("--version").startswith("isthmus "))


class Keygen(CommandLine):
    def test_keys_are_ready_to_paste_and_for_their_owner_alone(self):
        done = self.run_program("keygen", "east", "west-2")
        self.assertEqual(done.returncode, 0, done.stderr)
        sites = site_lines(done.stdout)
        self.assertEqual([name for name, _ in sites], ["east", "west-2"])
        folder = self.folder / "keys"
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        for name, key in sites:
            self.assertEqual(len(key), 40)
            path = folder / f"{name}.key"
            self.assertEqual(path.stat().st_mode & 0o777, 0o600)
            lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
            self.assertEqual(lines[0], f'public-key = "{key}"')
            secret = lines[1].removeprefix('secret-key = "').removesuffix('"')
            self.assertEqual(len(secret), 40)
            self.assertNotIn(secret, done.stdout + done.stderr)
        self.assertIn("keys/east.key, keys/west-2.key: secret", done.stderr)
        self.assertNotEqual(sites[0][1], sites[1][1])

    def test_json(self):
        answer = self.object_of("keygen", "east", "west", "--out", "deep/er")
        self.assertEqual(answer["folder"], "deep/er")
        self.assertEqual([site["name"] for site in answer["sites"]], ["east", "west"])
        for site in answer["sites"]:
            self.assertIn(site["key"], (self.folder / site["file"]).read_text())

    def test_what_is_there_stays(self):
        self.prints("keygen", "east")
        before = (self.folder / "keys/east.key").read_bytes()
        self.refuses(4, "keys/east.key: there is a key already", "keygen", "west", "east")
        self.assertEqual((self.folder / "keys/east.key").read_bytes(), before)
        self.assertFalse((self.folder / "keys/west.key").exists())
        self.write("file", "")
        self.refuses(4, "file", "keygen", "north", "--out", "file")

    def test_names(self):
        self.refuses(2, "NAME", "keygen")
        self.refuses(2, "'east' is named twice", "keygen", "east", "east")
        for name in ["../east", ".hidden", "a b", "x" * 65, ""]:
            self.refuses(2, "cannot be the name of a site", "keygen", name)
        self.assertFalse((self.folder / "keys").exists())


class Compare(CommandLine):
    def setUp(self):
        super().setUp()
        self.write("two.toml", RUN + """
[compare]
seeds = 2
tune = { seeds = 1, space = { "inner.lr" = [1e-3, 2e-3] } }
[variant.ddp]
[variant.diloco]
outer = { method = "diloco", H = 1 }
""")

    def test_flags_and_names_are_checked(self):
        self.refuses(2, "FILE", "compare")
        self.refuses(2, "did you mean '--require'?", "compare", "two.toml", "--requrie")
        self.refuses(2, "--jobs", "compare", "two.toml", "--jobs", "0")
        self.refuses(2, "did you mean 'diloco'?", "compare", "two.toml", "--only", "dilco")
        self.refuses(2, "the baseline alone", "compare", "two.toml", "--only", "ddp")
        self.refuses(2, "did you mean 'ddp'?", "compare", "two.toml", "--require=dpd")
        self.refuses(2, "--resume together with --force", "compare", "two.toml", "--resume",
                     "--force")

    def test_a_run_is_no_comparison_and_the_other_way_round(self):
        self.refuses(2, "--against together with --quick", "compare", "--against", "ref:nano",
                     "--quick", "--out", "out")
        self.refuses(3, "100 steps evaluated every 25, its reference runs 200", "compare",
                     "--against", "ref:nano", "--out", "out", "--set", "train.steps=100")
        self.refuses(3, "no [variant.NAME]", "compare", "run.toml")
        self.refuses(3, "`isthmus compare`", "train", "two.toml")
        self.refuses(3, "belongs to a comparison", "train", "run.toml", "--set", "compare.seeds=3")
        self.refuses(4, "no such file", "compare", "absent.toml")

    def test_what_a_variant_cannot_do_is_told_before_anything_is_written(self):
        self.refuses(3, "half of the validation part", "compare", "two.toml", "--out", "out",
                     "--set", "eval.tokens=640")
        self.refuses(3, "train.kernels", "compare", "two.toml", "--out", "out", "--set",
                     "variant.ddp.train.kernels=portable")
        self.refuses(3, "data.val_fraction = 0 leaves no window", "compare", "two.toml", "--out",
                     "out", "--set", "data.val_fraction=0.0")
        self.refuses(3, 'outer.placement = "device": runs side by side', "compare",
                     "two.toml", "--out", "out", "--set",
                     'variant.diloco.outer.placement="device"')
        self.refuses(3, 'train.attention = "cudnn": runs side by side', "compare", "two.toml", "--out",
                     "out", "--set", 'train.precision="bf16"', "--set", 'train.attention="cudnn"')
        self.assertFalse((self.folder / "out").exists())

    def test_a_run_that_leaves_the_numbers_in_its_last_step_has_failed(self):
        self.write("boom.toml", RUN + """
[compare]
seeds = 2
[variant.ddp]
[variant.boom]
inner = { lr = 1e6, weight_decay = 10.0, clip = 0 }
""")
        command = ["compare", "boom.toml", "--out", "out", "--set", "train.steps=2", "--set",
                   "eval.every=0"]
        done = self.object_of(*command)
        self.assertEqual([each["failed"] for each in done["variants"]], [0, 2])
        self.assertIn("step 2: the loss on the validation part", done["variants"][1]["verdict"])
        again = self.object_of(*command, "--resume")
        self.assertEqual((again["cells_run"], again["cells_reused"]), (0, 4))

    def test_a_dry_run_lists_the_cells(self):
        text = self.prints("compare", "two.toml", "--dry-run", "--out", "out")
        self.assertIn("diloco/tune-02", text)
        self.assertIn("inner.lr = 0.002", text)
        self.assertIn("12 cells", text)
        plan = self.object_of("compare", "two.toml", "--dry-run", "--only", "diloco")
        self.assertEqual(plan["total"], 12)
        self.assertEqual(len(plan["cells"]), 8)
        self.assertGreater(plan["wall_s"], 0)
        self.assertFalse((self.folder / "out").exists())

    def test_a_comparison_prints_its_summary(self):
        done = self.object_of("compare", "two.toml", "--out", "out", "--progress", "none")
        self.assertEqual(done, json.loads((self.folder / "out/summary.json").read_text()))
        self.assertEqual((done["kind"], done["cells"], done["baseline"]), ("comparison", 12, "ddp"))
        ddp, diloco = done["variants"]
        self.assertEqual(ddp["difference"], None)
        self.assertEqual(diloco["difference"]["n"], 2)
        self.assertFalse(diloco["claim"])
        self.assertIn("too few seeds", diloco["verdict"])
        self.assertTrue((self.folder / "out/diloco/seed-2/metrics.jsonl").exists())
        self.assertFalse((self.folder / "out/diloco/seed-2/ckpt").exists())
        self.refuses(3, "not empty", "compare", "two.toml", "--out", "out")
        again = self.object_of("compare", "two.toml", "--out", "out", "--resume")
        self.assertEqual((again["cells_run"], again["cells_reused"]), (0, 12))
        self.prints("report", "out")

    def test_runs_of_other_commands_are_left_alone(self):
        self.prints("train", "run.toml", "--out", "out/sweep/seed-1", "--progress", "none")
        mine = (self.folder / "out/sweep/seed-1/summary.json").read_text()
        self.prints("compare", "two.toml", "--out", "out", "--force", "--seeds", "1", "--quick")
        self.assertEqual((self.folder / "out/sweep/seed-1/summary.json").read_text(), mine)
        self.refuses(3, "holds a run of `isthmus train`", "compare", "two.toml", "--out",
                     "out/sweep/seed-1", "--resume")
        self.assertEqual((self.folder / "out/sweep/seed-1/summary.json").read_text(), mine)
        self.assertTrue((self.folder / "out/ddp/seed-1").exists())
        self.prints("compare", "two.toml", "--out", "out", "--force", "--quick", "--set",
                    "compare.seeds=[2]")
        self.assertFalse((self.folder / "out/ddp/seed-1").exists())
        self.refuses(3, "which comparison?", "compare", "two.toml", "--resume")

    def test_the_template_is_a_comparison(self):
        self.prints("init", self.folder / "new", "--template", "compare")
        plan = self.object_of("compare", "new/run.toml", "--dry-run", "--quick")
        self.assertEqual([each["name"] for each in plan["variants"]],
                         ["ddp", "diloco", "diloco-4bit", "muloco-2bit"])


class Configuration(CommandLine):
    def test_every_error_is_told_with_its_place(self):
        self.write("bad.toml", RUN + "[inner]\nlrr = 1\nclip = \"x\"\n")
        done = self.refuses(3, "bad.toml:12:1: unknown key 'inner.lrr'", "train", "bad.toml")
        self.assertIn("bad.toml:13:8: error:", done.stderr)
        self.assertIn("(and 1 more error above)", done.stderr)
        self.assertIn("      | ^^^ did you mean 'lr'?", done.stderr)

    def test_json_errors_are_one_object(self):
        self.write("bad.toml", RUN + "[inner]\nlrr = 1\n")
        done = self.run_program("train", "bad.toml", "--json")
        error = json.loads(done.stdout)["error"]
        self.assertEqual((error["exit"], error["kind"]), (3, "config"))
        first = error["diagnostics"][0]
        self.assertEqual(first["code"], "E-KEY-UNKNOWN")
        self.assertEqual(first["range"]["start"], {"line": 11, "character": 0})
        self.assertEqual(first["range"]["end"], {"line": 11, "character": 3})

    def test_overrides_are_checked_like_the_file(self):
        self.refuses(3, "--set inner.lrr=1", "train", "run.toml", "--set", "inner.lrr=1")
        self.refuses(3, "\"192 tok\"", "train", "run.toml", "--set", "train.global_batch=200 tok",
                     "--set", "train.context=16", "--workers", "4")
        self.refuses(3, "key=value", "train", "run.toml", "--set", "nothing")

    def test_files_that_are_no_configuration(self):
        self.refuses(4, "no such file", "train", "absent.toml")
        self.refuses(4, "is a folder", "train", self.folder)
        self.write("empty.toml", "")
        self.refuses(3, "empty", "train", "empty.toml")
        self.write("bytes.toml", b"\xff\xfe\x00")
        self.refuses(3, "UTF-8", "train", "bytes.toml")
        self.write("huge.toml", "#" * (1 << 20) + "\n")
        self.refuses(3, "larger than 1 MiB", "train", "huge.toml")
        self.refuses(3, "larger than 1 MiB", "train", "/dev/zero")

    def test_what_cannot_fit_into_memory_is_refused_before_it_starts(self):
        self.write("huge.toml", RUN.replace('preset = "nano"', 'arch = "llama"\nlayers = 200\n'
                                            'd_model = 20480\nheads = 160\nvocab = 256'))
        done = self.refuses(4, "it would be killed; lower it by", "train", "huge.toml", "--out", "huge")
        self.assertRegex(done.stderr, "this machine has|control group")
        self.assertIn("train.offload", done.stderr)
        self.assertIn("train.recompute", done.stderr)
        self.assertFalse((self.folder / "huge").exists())
        self.assertIn("a machine for each site", done.stderr)
        done = self.refuses(4, "it would be killed", "simulate", "huge.toml", "--link", "1Gbit/s,1ms")
        self.assertNotIn("a machine for each site", done.stderr)

    def test_a_config_is_shown_with_origins(self):
        text = self.prints("inspect", "run.toml", "--set", "inner.lr=0.5")
        self.assertRegex(text, r"lr = 0.5 +# --set inner.lr=0.5")
        self.assertRegex(text, r"steps = 3 +# run.toml:8:9")
        shown = self.object_of("inspect", "run.toml")
        self.assertEqual(shown["origins"]["model.d_model"], "preset nano")

    def test_what_init_writes_loads(self):
        for name in ["laptop", "wan2"]:
            self.prints("init", self.folder / name, "--template", name)
            self.prints("inspect", self.folder / name / "run.toml")
            self.refuses(4, "exists already", "init", self.folder / name)
        self.refuses(2, "did you mean 'laptop'?", "init", "--template", "labtop")


class Words(CommandLine):
    def test_lines_for_people_are_not_long(self):
        for command in ("train", "simulate", "compare", "launch", "hub", "bench", "bench link", "plan mesh", "plan sync"):
            for line in self.prints(*command.split(), "--help").splitlines():
                self.assertLessEqual(len(line), 100, f"{command}: {line}")
        for topic in ("streaming-diloco", "muloco", "outer.H", "outer.grace"):
            for line in self.prints("explain", topic).splitlines():
                self.assertLessEqual(len(line), 80, f"{topic}: {line}")
        for line in self.prints("train", "run.toml", "--dry-run").splitlines():
            self.assertLessEqual(len(line), 100, line)

    def test_explain_knows_everything_that_has_a_name(self):
        methods = self.object_of("methods")
        topics = ["outer.H", "outer", "site", "link.rate", "E-RANGE", "exit", "outer.alpha", "overlap"]
        topics += [method["name"] for method in methods["methods"]]
        topics += [codec["name"] for codec in methods["codecs"]]
        for topic in topics:
            self.assertTrue(self.prints("explain", topic).strip(), topic)
            self.assertTrue(self.object_of("explain", topic), topic)
        self.refuses(2, "did you mean 'outer.momentum'?", "explain", "outer.momentun")
        self.assertIn("default   1; muloco: 30; decoupled: 24", self.prints("explain", "outer.H"))
        self.assertIn("1; muloco: 30; decoupled: 24", self.object_of("explain", "outer.H")["default_text"])
        self.assertIn(self.object_of("explain", "data.sources")["example"] + "\n", self.prints("explain", "data.sources"))

    def test_methods_name_the_keys_that_the_loader_takes(self):
        for method in self.object_of("methods")["methods"]:
            for key in method["keys"]:
                self.assertTrue(self.prints("explain", f"outer.{key}"), key)

    def test_doctor(self):
        names = [finding["name"] for finding in self.object_of("doctor")["findings"]]
        for name in ["processor", "memory", "kernels", "CUDA", "methods", "TCP"]:
            self.assertIn(name, names)
        self.assertIn("processor", self.prints("doctor"))
        by_name = {finding["name"]: finding for finding in self.object_of("doctor")["findings"]}
        if by_name["ZeroMQ"]["value"] != "not in this build":
            exchanges = by_name["exchanges"]
            self.assertRegex(exchanges["value"], r"^fill a line of [\d.e+]+ [MG]bit/s in fp32, of .* a core")
            # What is advised can be asked.
            command = exchanges["advice"].split("`")[1].split()[1:]
            answer = self.object_of(*command, "--params", "1M", "--rate", "1000Gbit/s")
            self.assertEqual(answer["bound"], "processor", answer)
        mpi = {finding["name"]: finding for finding in self.object_of("doctor")["findings"]}["MPI"]
        if mpi["value"] != "not in this build":
            running, built_with = mpi["value"].split(" runs, built with ")
            self.assertEqual(mpi["verdict"], "good" if built_with in running else "note", mpi)

    def test_completions_are_scripts(self):
        for shell in ["bash", "zsh", "fish"]:
            script = self.prints("completion", shell)
            self.assertIn("simulate", script)
        bash = self.prints("completion", "bash")
        asked = ("COMP_WORDS=(isthmus train --res); COMP_CWORD=2; _isthmus; echo ${COMPREPLY[@]}")
        done = subprocess.run(["bash", "-c", bash + asked], capture_output=True, text=True,
                              timeout=20, cwd=self.folder)
        self.assertEqual(done.stdout.split(), ["--resume"], done.stderr)
        record = ("COMP_WORDS=(isthmus frames --ro); COMP_CWORD=2; _isthmus; echo ${COMPREPLY[@]}")
        done = subprocess.run(["bash", "-c", bash + record], capture_output=True, text=True,
                              timeout=20, cwd=self.folder)
        self.assertEqual(done.stdout.split(), ["--rounds"], done.stderr)
        nested = ("COMP_WORDS=(isthmus plan utilisation --frag); COMP_CWORD=3; _isthmus; "
                  "echo ${COMPREPLY[@]}")
        done = subprocess.run(["bash", "-c", bash + nested], capture_output=True, text=True,
                              timeout=20, cwd=self.folder)
        self.assertEqual(done.stdout.split(), ["--fragment-layers"], done.stderr)
        self.refuses(2, "bash, zsh, fish", "completion", "tcsh")

    def test_recordings_of_frames(self):
        """What is shown of one, of a damaged one, and what is none; made by hand."""
        def crc32c(data):
            crc = 0xffffffff
            for byte in data:
                crc ^= byte
                for _ in range(8):
                    crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
            return crc ^ 0xffffffff
        def with_sum(data):
            return data + struct.pack("<I", crc32c(data))
        def record(ms, event, stream, kind, part, size):
            return with_sum(struct.pack("<QQIIIIIHBBI", ms * 10**6, 40, 0, part, 0, size, part,
                                        kind, event, stream, 1))
        head = with_sum(b"ISRF" + struct.pack("<HHIQ", 1, 2, 0, 1763900000000) + b"\4east\4west")
        records = [record(1000, 1, 255, 1, 0, 32836), record(1000, 2, 3, 1, 0, 32836),
                   *(record(1500 + 500 * k, 4, 255, 1, k, 32836) for k in range(9)),
                   record(5600, 1, 255, 3, 0, 84), record(5700, 4, 255, 4, 0, 68)]
        file = self.folder / "east.frames"
        file.write_bytes(head + b"".join(records))
        shown = self.object_of("frames", file)
        self.assertEqual((shown["site"], shown["records"], shown["damaged"]), ("east", 13, 0))
        (slow,) = shown["rounds"]
        self.assertAlmostEqual(slow["took_s"], 4.7)
        self.assertIn("values of west came for 4", slow["why"])
        self.assertIn("values of west came for 4", self.prints("frames", file).replace("\n", " "))
        self.assertIn("contribution", self.prints("frames", file, "--step", "40"))
        self.assertEqual(len(self.object_of("frames", file, "--step", "40")["frames"]), 13)
        damaged = bytearray(head + b"".join(records))[:-20]
        damaged[len(head) + 50] ^= 1
        file.write_bytes(damaged)
        shown = self.object_of("frames", file)
        self.assertEqual((shown["records"], shown["damaged"], shown["cut_off_bytes"]), (11, 1, 28))
        self.assertIn("damaged, the first at byte", shown["warnings"][0])
        file.write_bytes(head[:-1])
        self.refuses(1, "nothing has been recorded", "frames", file)
        file.write_text("no recording")
        self.refuses(1, "is no recording", "frames", file)
        self.refuses(4, "--record FILE", "frames", self.folder / "missing.frames")

    def test_a_closed_pipe_and_a_full_disk(self):
        if not pathlib.Path("/dev/full").exists():
            self.skipTest("no /dev/full")
        for words in (["methods"], ["--version"], ["--help"], ["train", "--help"], ["plan", "mesh", "--help"]):
            with self.subTest(words=words), open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
                self.assertEqual(done.returncode, 4)
                self.assertIn("stdout: No space left", done.stderr)
        for words, told in ((["--version"], "isthmus "), (["train", "--help"], "--resume")):
            done = self.run_program(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(told, done.stdout)


class Files(CommandLine):
    def test_bench_codec_keeps_its_contract(self):
        values = [0.5, -1.25, 3.0, 0.0, 1e-3] * 100
        self.write("x.f32", struct.pack(f"<{len(values)}f", *values))
        result = self.object_of("bench", "codec", "--codec", "fp32", "--in", "x.f32", "--out",
                                "y.f32", "--bytes", "b.bin")
        self.assertEqual(list(result), ["codec", "n", "bytes", "bits_per_value", "nmse",
                                        "encode_gb_s", "decode_gb_s"])
        self.assertEqual((result["codec"], result["n"], result["nmse"]), ("fp32", 500, 0))
        self.assertEqual((self.folder / "b.bin").stat().st_size, result["bytes"])
        self.assertEqual((self.folder / "y.f32").read_bytes(), (self.folder / "x.f32").read_bytes())

    def test_bench_link_looks_at_its_file_before_it_measures(self):
        def refuses(code, words, out):
            self.refuses(code, words, "bench", "link", "run.toml", "--site", "east", "--out", out)

        refuses(2, "is the CONFIG", "run.toml")
        refuses(2, "is the CONFIG", self.folder / "." / "run.toml")
        (self.folder / "alias.toml").symlink_to("run.toml")
        refuses(2, "is the CONFIG", "alias.toml")
        refuses(2, "no links file", "words.txt")
        refuses(2, "is no file", ".")
        refuses(2, "is no file", "/dev/null")
        refuses(4, "--out none/links.toml", "none/links.toml")
        refuses(4, "--out words.txt/links.toml", "words.txt/links.toml")
        self.write("links.toml", '[[link]]\nbetween = ["a", "b"]\nrate = "1Mbit/s"\nrtt = "1ms"\n')
        self.write("empty.toml", "")
        before = sorted(self.folder.iterdir())
        for good in ("new.toml", "links.toml", "empty.toml"):
            refuses(3, "no [[site]]", good)  # what comes next
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_bench_codec_refuses(self):
        self.write("odd.f32", b"1234567")
        self.write("none.f32", b"")
        self.write("x.f32", struct.pack("<4f", 1, 2, 3, 4))
        self.refuses(4, "odd.f32", "bench", "codec", "--codec", "int8", "--in", "odd.f32")
        self.refuses(4, "none.f32", "bench", "codec", "--codec", "int8", "--in", "none.f32")
        self.refuses(4, "absent.f32", "bench", "codec", "--codec", "int8", "--in", "absent.f32")
        self.refuses(3, "int8", "bench", "codec", "--codec", "int9", "--in", "x.f32")
        self.refuses(2, "--codec", "bench", "codec", "--in", "x.f32")
        self.refuses(2, "--in", "bench", "codec", "--codec", "int8", "--out", "y.f32")

    def test_bench_collectives_plays_one_round_in_every_way(self):
        sites = "".join(f'[[site]]\nname = "{name}"\n' for name in "abcd")
        links = "".join(f'[[link]]\nbetween = {pair}\nrate = "{rate}"\nrtt = "20ms"\n' for pair, rate in
                        (('["*", "*"]', "20Mbit/s"), ('["a", "b"]', "1Gbit/s"), ('["c", "d"]', "1Gbit/s")))
        self.write("wan.toml", RUN.replace("workers = 2\n", "") + sites + links)
        lines = self.prints("bench", "collectives", "wan.toml", "--set", "sim.link_model=ideal",
                            "--json").splitlines()
        ways = {way["way"]: way for way in map(json.loads, lines)}
        self.assertEqual(len(ways), 8, lines)  # gather, even shares, four stars, groups, ring
        self.assertTrue(ways["even shares"]["used"], lines)
        self.assertEqual(ways["gather"]["set"], "outer.exchange=gather")
        self.assertNotIn("set", ways["star of a"])
        self.assertNotIn("set", ways["groups (a, b | c, d)"])  # which the sites do not name
        for way in ways.values():
            self.assertAlmostEqual(way["predicted_s"] / way["simulated_s"], 1, delta=0.05)
            measured = way["bits"] == "reduce" and not way["way"].startswith("groups")  # as the file exchanges
            self.assertEqual("bound" in way, measured, way)
            if measured:
                self.assertGreater(way["gbit_s_a_core"], 0)
                self.assertEqual(way["bound"], "links" if way["processor_s"] <= way["simulated_s"] else "processor")
        # A ring sends 2 (M - 1) / M vectors to the next site alone: thin links carry 1.5 in the place of half a one.
        ring, even = ways["ring (a, b, c, d)"], ways["even shares"]
        self.assertEqual((ring["bits"], ring["used"]), ("ring", False))
        self.assertNotIn("set", ring)
        self.assertAlmostEqual(ring["thinnest_link_bytes"] / even["thinnest_link_bytes"], 3, delta=0.15)
        self.assertAlmostEqual(ring["shared_lines_s"] / even["shared_lines_s"], 1, delta=0.05)
        thin = {name: way["thinnest_link_bytes"] for name, way in ways.items()}
        self.assertLess(thin["groups (a, b | c, d)"], 0.7 * thin["even shares"])
        slow = "".join(f'[[link]]\nbetween = {pair}\nrate = "{rate}"\nrtt = "1ms"\n' for pair, rate in
                       (('["*", "*"]', "20Mbit/s"), ('["c", "*"]', "5Mbit/s")))
        self.write("slow.toml", RUN.replace("workers = 2\n", "") + sites + slow)
        by_links = "shares by links (1365:1365:0:1365)"
        settings = {"auto": "even shares", "links": by_links}
        for key, used in settings.items():
            lines = self.prints("bench", "collectives", "slow.toml", "--set", "sim.link_model=ideal",
                                "--set", "model.d_model=128", "--set", f"net.shares={key}",
                                "--json").splitlines()
            ways = {way["way"]: way for way in map(json.loads, lines)}
            self.assertEqual([way for way in ways if ways[way]["used"]], [used], lines)
            other, set_other = ((by_links, "net.shares=links") if key == "auto"
                                else ("even shares", "net.shares=auto"))
            self.assertEqual(ways[other]["set"], set_other)
            # One site four times slower: 1.5 vectors over its line, or its own one.
            ratio = ways["ring (a, b, c, d)"]["shared_lines_s"] / ways[by_links]["shared_lines_s"]
            self.assertAlmostEqual(ratio, 1.5, delta=0.02)
        # Nothing is proposed that a run would refuse.
        lines = self.prints("bench", "collectives", "slow.toml", "--set", "sim.link_model=ideal",
                            "--set", "outer.method=1bit-adam", "--json").splitlines()
        self.assertNotIn("net.", " ".join(way.get("set", "") for way in map(json.loads, lines)))
        self.refuses(2, "--inner", "bench", "collectives")
        # Flags of the other kind are refused by name, not left alone.
        for flag, value in (("--ranks", "2"), ("--backend", "threads"), ("--mix", "t.json"), ("--seconds", "1"),
                            ("--largest-mib", "1"), ("--out", "ways.toml")):
            self.refuses(2, flag, "bench", "collectives", "slow.toml", flag, value)
        for flag, value in (("--set", "train.steps=1"), ("--links", "links.toml")):
            self.refuses(2, flag, "bench", "collectives", "--inner", flag, value)
        self.refuses(2, "mpirun", "bench", "collectives", "--inner", "--mix", "t.json")
        self.refuses(3, "[[link]]", "bench", "collectives", "run.toml")

    def test_data_is_shown_verified_and_made(self):
        shown = self.object_of("data", "inspect", "words.txt")
        self.assertEqual((shown["format"], shown["tokens"]), ("text", 9000))
        verified = self.object_of("data", "verify", "text:words.txt")
        self.assertEqual(verified["tokens"], 9000)
        self.prints("data", "synth", "synth:zipf", "z.bin", "--tokens", "5000")
        self.assertEqual(self.object_of("data", "verify", "z.bin")["tokens"], 5000)
        made = self.object_of("data", "synth", "synth:markov1:tokens=5k,seed=3", "m.bin")
        self.assertEqual(made["tokens"], 5000)
        seeded = self.prints("data", "synth", "synth:markov1:tokens=5k", "s.bin", "--seed", "3")
        self.assertTrue(seeded)
        self.assertEqual((self.folder / "m.bin").read_bytes(), (self.folder / "s.bin").read_bytes())
        self.prints("data", "synth", "synth:markov1:tokens=5k", "0.bin")
        self.assertNotEqual((self.folder / "m.bin").read_bytes(),
                            (self.folder / "0.bin").read_bytes())
        self.refuses(2, "do not fit", "data", "synth", "synth:zipf:tokens=4Gi", "x.bin")
        self.refuses(2, "do not fit", "data", "synth", "synth:zipf", "x.bin", "--tokens",
                     str(2**31))
        self.refuses(4, "absent.txt", "data", "inspect", "absent.txt")
        self.refuses(4, "name a configuration, run", "inspect", "absent.toml")
        self.refuses(4, "is a folder", "data", "inspect", ".")

    def test_inspect_refuses_what_it_cannot_name(self):
        self.refuses(4, "no such file", "inspect", "absent")
        (self.folder / "nothing").mkdir()
        self.refuses(4, "neither a run", "inspect", "nothing")
        self.write("model.safetensors", b"\xff" * 40)
        self.refuses(4, "model.safetensors", "inspect", "model.safetensors")
        self.refuses(2, "--set", "inspect", "words.txt", "--set", "a.b=1")

    def test_import_export_and_report_refuse(self):
        self.refuses(4, "absent", "import", "absent", "out")
        self.refuses(4, "absent", "export", "absent", "--to", "hf", "out")
        self.refuses(4, "absent", "report", "absent")
        self.assertFalse((self.folder / "out").exists())


class Plan(CommandLine):
    MODEL = ["plan", "utilisation", "--params", "1B", "--layers", "24", "--step-time", "100ms"]

    def test_utilisation_keeps_its_contract(self):
        ddp = self.object_of(*self.MODEL, "--method", "ddp")
        self.assertEqual((ddp["method"], ddp["layers"], ddp["bits"]), ("ddp", 24, 16))
        self.assertEqual(list(ddp["gbit_s"]), ["0.5", "0.8", "0.9", "0.95", "0.99"])
        for rate, printed in zip(ddp["gbit_s"].values(), [86.8, 152.6, 184.2, 222.3, 569.0]):
            self.assertAlmostEqual(rate, printed, delta=0.06)
        streaming = self.object_of(*self.MODEL, "--method", "streaming-diloco", "--H", "100",
                                   "--fragment-layers", "3", "--overlap", "1", "--bits", "4",
                                   "--bandwidth", "1Gbit/s")
        self.assertEqual((streaming["H"], streaming["fragments"], streaming["overlap"]), (100, 8, 1))
        self.assertTrue(streaming["gbit_s"]["0.8"] < 1 < streaming["gbit_s"]["0.9"])
        self.assertTrue(0.5 < streaming["utilisation"] < 0.9)
        self.assertEqual(streaming["bandwidth_gbit_s"], 1)

    def test_several_methods_and_the_table(self):
        shown = self.object_of(*self.MODEL, "--method", "diloco:H=50", "--method", "co2", "--H",
                               "30")
        self.assertEqual([(row["method"], row["H"], row["overlap"]) for row in shown["methods"]],
                         [("diloco", 50, 0), ("co2", 30, 30)])
        text = self.prints(*self.MODEL, "--bandwidth", "1Gbit/s")
        for word in ["streaming-diloco:overlap=1,bits=4", "eager", "152.6", "at 1 Gbit/s", "99%"]:
            self.assertIn(word, text)
        huge = [word if word != "1B" else "900B" for word in self.MODEL]
        self.assertIn("1000+", self.prints(*huge, "--method", "ddp"))
        done = self.run_program(*self.MODEL, "--method", "ddp", "--overlap", "1")
        self.assertEqual((done.returncode, done.stderr), (0, "note: ddp has no use for --overlap\n"))

    def test_a_configured_run(self):
        self.write("plan.toml", RUN + """[outer]
method = "streaming-diloco"
H = 20
fragments = 2
overlap = 3
codec = "int8"
""")
        self.refuses(2, "--step-time", "plan", "utilisation", "plan.toml")
        file = ["plan", "utilisation", "plan.toml", "--params", "1B", "--step-time", "1s"]
        shown = self.object_of(*file, "--set", "outer.H=30")
        self.assertEqual((shown["method"], shown["H"], shown["fragments"], shown["overlap"]),
                         ("streaming-diloco", 30, 3, 3))
        self.assertTrue(8 <= shown["bits"] < 8.2)
        self.assertIn("3 fragments", self.prints(*file))
        for flags in [["--layers", "3"], ["--method", "ddp"], ["--H", "3"], ["--embedding-turn"]]:
            self.refuses(2, "--set outer.H=50", *file, *flags)
        self.refuses(4, "no such file", "plan", "utilisation", "absent.toml")
        self.write("spsa.toml", RUN + "[outer]\nmethod = \"spsa\"\n")
        self.refuses(3, "one byte a sample", "plan", "utilisation", "spsa.toml", "--step-time", "1s")

    def test_pipelines_are_drawn_and_checked(self):
        drawn = self.prints("plan", "pipeline", "--stages", "2", "--micro-batches", "2",
                            "--schedule", "zb-h1")
        self.assertIn("rank 0 | F0 F1 .  B0 W0 B1 W1\nrank 1 | .  F0 B0 F1 B1 W0 W1\n",
                      drawn.replace("\u00b7", "."))
        for kind, virtual, bubble in [("gpipe", 1, 9), ("1f1b", 1, 9), ("interleaved-1f1b", 2, 4.5),
                                      ("zb-h1", 1, 3)]:
            played = self.object_of("plan", "pipeline", "--schedule", kind, "--virtual",
                                    str(virtual))
            self.assertEqual((played["schedule"], played["bubble"], played["formula"]),
                             (kind, bubble, bubble))
            self.assertEqual(played["makespan"], 24 + bubble)
            self.assertEqual(len(played["ranks"]), 4)
            self.assertEqual(sum(each["pass"] == "F" for each in played["ranks"][0]["passes"]),
                             8 * virtual)
        late = self.object_of("plan", "pipeline", "--virtual", "2", "--message", "0.01")
        self.assertTrue(4.5 < late["bubble"] < 1.05 * 4.5)
        for code, words, flags in [
                (3, "4 and 8 are the nearest", ["--virtual", "2", "--micro-batches", "6"]),
                (3, "more need interleaved-1f1b", ["--virtual", "2", "--schedule", "zb-h1"]),
                (3, "parallel.pp = 0", ["--stages", "0"]), (2, "--forward 0", ["--forward", "0"]),
                (2, "at least 0", ["--message", "-1"]), (2, "zb-h1", ["--schedule", "dualpipe"])]:
            self.refuses(code, words, "plan", "pipeline", *flags)

    def test_meshes_are_ranked(self):
        model = ["plan", "mesh", "--model", "llama-8b", "--ranks", "64", "--nodes", "8"]
        shown = self.object_of(*model, "--memory", "80GB")
        self.assertEqual((shown["params"], shown["ranks"]), (8_030_261_248, 64))
        times = [mesh["step_s"] for mesh in shown["meshes"] if mesh["fits"]]
        self.assertEqual(times, sorted(times))
        best = shown["meshes"][0]
        self.assertLessEqual(best["memory_bytes"]["total"], 80e9)
        self.assertAlmostEqual(sum(best["time_s"].values()), best["step_s"])
        self.assertTrue(all(mesh["tp"] * mesh["pp"] * mesh["dp"] == 64
                            for mesh in shown["meshes"] + shown["refused"]))
        self.assertTrue(all("parallel." in each["reason"] for each in shown["refused"]))
        # All of the state and one rank: 16 bytes a parameter, exactly.
        one = self.object_of("plan", "mesh", "--model", "llama-8b", "--ranks", "1")["meshes"][0]
        state = [one["memory_bytes"][part] for part in ["parameters", "gradients", "moments"]]
        self.assertEqual(sum(state), 16 * 8_030_261_248)
        text = self.prints(*model, "--memory", "80GB", "--top", "3")
        for words in ["llama-8b: 8.03", "64 ranks on 8 nodes", "Best: tp", "Not possible",
                      "the nearest that works is 32", "--top"]:
            self.assertIn(words, text)

    def test_meshes_take_what_a_machine_is_said_to_do(self):
        plan = ["plan", "mesh", "--model", "mid", "--context", "256", "--batch", "2048 tok", "--precision", "fp32",
                "--ranks", "2", "--tp", "2", "--micro-batches", "1", "--compute", "100GFLOP/s"]
        plain = self.object_of(*plan, "--sequence-parallel", "false")["meshes"][0]
        self.assertFalse(plain["sequence_parallel"])
        self.assertTrue(self.object_of(*plan, "--sequence-parallel", "true")["meshes"][0]["sequence_parallel"])
        self.assertEqual(plain["time_s"]["update"], 0)
        # A third of the speed in attention: twice what it took comes on top, 12 d T operations a token and layer.
        slow = self.object_of(*plan, "--sequence-parallel", "false", "--attention", "33.33333333GFLOP/s")["meshes"][0]
        attention = 8 * 12 * 512 * 256 * 2048 / 2 / 100e9
        self.assertAlmostEqual(slow["step_s"] - plain["step_s"], 2 * attention, delta=1e-6)
        # 8 values of 4 bytes are read or written for a parameter, by two ranks.
        shown = self.object_of(*plan, "--sequence-parallel", "false", "--memory-rate", "10GB/s")
        memory = shown["meshes"][0]
        self.assertAlmostEqual(memory["time_s"]["update"], 32 * shown["params"] / 2 / 10e9)
        self.assertGreater(memory["time_s"]["compute"], plain["time_s"]["compute"])
        text = " ".join(self.prints(*plan, "--memory-rate", "10GB/s", "--attention", "50GFLOP/s").split())
        self.assertRegex(text, "0.05 in attention, [0-9.]+ GB/s of memory")
        self.assertIn(", the update ", text)
        self.refuses(2, "--memory-rate 10: needs a unit", *plan, "--memory-rate", "10")
        self.refuses(2, "--attention -1GFLOP/s", *plan, "--attention=-1GFLOP/s")
        self.refuses(2, "--sequence-parallel", *plan, "--sequence-parallel", "perhaps")

    def test_ranks_of_a_mesh_are_placed_by_links(self):
        plan = ["plan", "mesh", "--model", "llama:layers=4,d_model=256,heads=8,vocab=1024", "--context",
                "256", "--batch", "1Mi tok", "--ranks", "8", "--tp", "2", "--pp", "2"]
        slow = [*plan, "--nodes", "2", "--network", "0.2Gbit/s"]
        shown = self.object_of(*slow)
        best = shown["meshes"][0]
        # Large messages of a small model: stages beside one another, gradients over the network.
        self.assertEqual(best["innermost_first"], "tensor, pipeline, data")
        self.assertEqual(shown["ranks_of_nodes"], [[0, 1, 4, 5], [2, 3, 6, 7]])
        orders = {order["innermost_first"]: order["step_s"] for order in shown["orders"]}
        self.assertEqual(best["step_s"], min(orders.values()))
        self.assertEqual(best["rank_order_step_s"], orders["tensor, data, pipeline"])
        text = " ".join(self.prints(*slow).split())
        self.assertIn("place the ranks of this site 0 1 4 5 on node 0, 2 3 6 7 on node 1", text)
        self.assertIn("; ranks placed", text.partition("Best:")[0])
        alone = self.object_of(*plan)
        self.assertEqual(alone["ranks_of_nodes"], [list(range(8))])
        self.assertNotRegex(self.prints(*plan), "place the ranks|ranks placed")

    def test_meshes_are_refused_with_what_would_do(self):
        self.refuses(3, "ranks would do", "plan", "mesh", "--model", "llama-70b", "--ranks", "4",
                     "--memory", "80GB")
        self.refuses(3, "the nearest that works is 2", "plan", "mesh", "--model", "nano",
                     "--context", "64", "--batch", "192", "--ranks", "3", "--tp", "3")
        self.refuses(2, "required", "plan", "mesh", "--model", "llama-8b")
        model = ["plan", "mesh", "--model", "llama-8b", "--ranks", "8"]
        for words, flags in [("must divide the 8 ranks", ["--nodes", "3"]),
                             ("must divide the 8 ranks", ["--tp", "3"]),
                             ("needs a unit", ["--memory", "80"]), ("0 to 3", ["--zero", "4"]),
                             ("at least 1", ["--top", "0"]),
                             ("\"8192 tok\"", ["--batch", "9000 tok"]),
                             ("CONFIG", ["--set", "train.context=3"])]:
            self.refuses(2, words, *model, *flags)
        self.refuses(2, "did you mean 'llama-8b'?", "plan", "mesh", "--model", "lama-8b",
                     "--ranks", "8")
        self.refuses(2, "did you mean 'layers'?", "plan", "mesh", "--model", "llama:layer=3",
                     "--ranks", "8")
        for word in ["none", "selective", "full"]:
            asked = self.object_of(*model, "--recompute", word)["meshes"]
            self.assertEqual({mesh["recompute"] for mesh in asked}, {word})
        self.refuses(2, "--recompute", *model, "--recompute=some")
        self.write("mesh.toml", RUN)
        shown = self.object_of("plan", "mesh", "mesh.toml", "--ranks", "2")
        self.assertEqual(len(shown["meshes"]) + len(shown["refused"]), 3)
        self.refuses(2, "--set train.context", "plan", "mesh", "mesh.toml", "--ranks", "2",
                     "--context", "64")

    def test_recompute_alone_leaves_the_next_word_alone(self):
        def kinds(*words):
            printed = self.prints("plan", "mesh", "--json", "--ranks", "2", *words)
            return {mesh["recompute"] for mesh in json.loads(printed)["meshes"]}
        self.write("mesh.toml", RUN)
        for words in [["--recompute", "mesh.toml"], ["mesh.toml", "--recompute"],
                      ["--recompute", "full", "mesh.toml"], ["--recompute=full", "mesh.toml"],
                      ["--recompute", "--tp", "1", "mesh.toml"], ["--recompute", "--", "mesh.toml"]]:
            self.assertEqual(kinds(*words), {"full"}, words)
        for words in [["--recompute", "selective", "mesh.toml"],
                      ["--recompute=selective", "mesh.toml"],
                      ["mesh.toml", "--recompute", "selective"]]:
            self.assertEqual(kinds(*words), {"selective"}, words)
        self.write("none", RUN)  # a word of the flag's is the flag's, but after -- all is CONFIG
        self.refuses(2, "CONFIG", "plan", "mesh", "--ranks", "2", "--recompute", "none")
        self.assertEqual(kinds("--recompute", "none", "--", "none"), {"none"})
        self.assertEqual(kinds("--recompute", "--", "none"), {"full"})
        self.refuses(2, "--recompute", "plan", "mesh", "--ranks", "2", "--recompute=mesh.toml")

    def test_meshes_of_a_file_are_as_it_says(self):
        plan = ["plan", "mesh", "mesh.toml", "--ranks", "4"]
        self.write("mesh.toml", RUN)
        free = self.object_of(*plan)["meshes"]
        self.assertEqual({mesh["zero"] for mesh in free if mesh["dp"] > 1}, {1})
        self.assertIn(True, {mesh["sequence_parallel"] for mesh in free if mesh["tp"] > 1})
        values = self.object_of(*plan)["params"]
        outer = {mesh["dp"]: mesh["memory_bytes"]["outer"]
                 for mesh in free if mesh["fullest_stage"] == 0}
        self.assertEqual(outer[4], 4 * values)  # ddp: gradients, which ZeRO would not keep whole
        self.write("mesh.toml", RUN + "[parallel]\ntp = 2\ndp = 2\nzero = 3\nsequence_parallel = false\n"
                   "[outer]\nmethod = \"diloco\"\n")
        fixed = self.object_of(*plan)
        self.assertEqual({mesh["zero"] for mesh in fixed["meshes"]}, {3})
        self.assertEqual({mesh["sequence_parallel"] for mesh in fixed["meshes"]}, {False})
        self.assertIn((2, 2), {(mesh["dp"], mesh["pp"]) for mesh in fixed["meshes"]})
        gpipe = self.object_of(*plan, "--schedule", "gpipe")["refused"]
        self.assertTrue(all(mesh["dp"] > 1 for mesh in gpipe))
        self.assertIn("the most that works is 1", gpipe[0]["reason"])
        self.assertEqual(fixed["meshes"][0]["memory_bytes"]["outer"], 2 * 4 * values)
        asked = self.object_of(*plan, "--zero", "0")["meshes"]
        self.assertEqual({mesh["zero"] for mesh in asked}, {0})
        self.write("mesh.toml", RUN + "[outer]\nmethod = \"1bit-adam\"\n")
        self.assertEqual({mesh["zero"] for mesh in self.object_of(*plan)["meshes"]}, {0})
        self.refuses(3, "1bit-adam", *plan, "--zero", "1", "--dp", "4")
        self.write("mesh.toml", RUN + "[outer]\nmethod = \"spsa\"\n")
        self.refuses(3, "forward passes alone", *plan)

    def test_utilisation_refuses(self):
        self.refuses(2, "subcommand", "plan")
        self.refuses(2, "did you mean 'utilisation'?", "plan", "utilization")
        self.refuses(2, "--params 1B", "plan", "utilisation", "--layers", "24")
        self.refuses(2, "CONFIG", *self.MODEL, "--set", "outer.H=3")
        for words, flags in [("did you mean 'diloco'?", ["--method", "dilocco"]),
                             ("possible are 1, 2, 3", ["--fragment-layers", "7"]),
                             ("0 .. 95", ["--overlap", "100"]), ("0 .. 95", ["--overlap", "-1"]),
                             ("H = 0", ["--H", "0"]), ("H = -3", ["--H", "-3"]),
                             ("8 ..", ["--H", "7"]), ("--H", ["--H", "many"]),
                             ("bits = -4", ["--bits", "-4"]), ("bits = nan", ["--bits", "nan"]),
                             ("sequential", ["--pattern", "sideways"]),
                             ("needs a unit", ["--bandwidth", "5"]),
                             ("above 0", ["--bandwidth", "-5Gbit/s"]),
                             ("has no setting overlap; it has H", ["--method", "eager:overlap=3"])]:
            self.refuses(2, words, *self.MODEL, *flags)
        for flag, value, words in [("--params", "-1B", "above 0"), ("--params", "many", "number"),
                                   ("--layers", "0", "1 .. 10000"), ("--layers", "-2", "1 .."),
                                   ("--step-time", "0s", "above 0"),
                                   ("--step-time", "100", "needs a unit")]:
            changed = list(self.MODEL)
            changed[changed.index(flag) + 1] = value
            self.refuses(2, words, *changed)


class Machine(CommandLine):
    def test_a_step_is_timed_with_what_is_recomputed(self):
        def timed(*flags):
            return self.object_of("bench", "compute", "--config", "tiny", "--batch", "2", "--seconds", "0.01", *flags)
        kept = timed()
        for words, flags in [("selective", ["--recompute", "selective"]), ("full", ["--recompute"]),
                             ("full", ["--recompute=full"]), ("none", ["--recompute", "none"])]:
            again = timed(*flags)
            self.assertEqual((again["recompute"], again["loss"] if again["steps"] == kept["steps"] else kept["loss"]),
                             (words, kept["loss"]))
            self.assertEqual(again["arena_mib"] < kept["arena_mib"], words != "none")
        self.refuses(2, "--recompute", "bench", "compute", "--recompute=some")
        self.refuses(2, "'some'", "bench", "compute", "--recompute", "some")

    def test_a_refused_thread_is_an_error_that_names_the_remedy(self):
        def room_for_a_few_stacks():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        done = self.run_program("bench", "compute", "--config", "tiny", "--threads", "1024",
                                preexec_fn=room_for_a_few_stacks)
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertIn("of a team of 1024: ", done.stderr)
        self.assertIn("lower train.threads", done.stderr)


class Run(CommandLine):
    def test_a_dry_run_refuses_what_the_run_refuses(self):
        pair = '[[site]]\nname = "a"\n[[site]]\nname = "b"\n'
        fault = '[[fault]]\nkind = "pause"\nsite = "a"\nat = "1s"\nlasts = "1s"\n'
        self.write("faults.toml", RUN.replace("workers = 2\n", "") + pair + fault)
        self.write("groups.toml", RUN.replace("workers = 2\n", "") + '[outer]\nmethod = "diloco"\ncodec = "topk"\nH = 2\n'
                   + pair.replace("\n[[", '\ngroup = "x"\n[[', 1) + 'group = "y"\n')
        for words, *arguments in (("eval.tokens = 100000", "run.toml", "--set", "eval.tokens=100000"),
                                  ("[[fault]]: faults happen in virtual time", "faults.toml"),
                                  ("groups have nothing to sum", "groups.toml", "--set", "net.reduction=groups")):
            for dry in ((), ("--dry-run",)):
                self.refuses(3, words, "train", *arguments, *dry)

    def test_a_run_and_what_follows_from_it(self):
        self.prints("train", "run.toml", "--out", "run", "--progress", "none")
        text = (self.folder / "run/metrics.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        self.assertEqual([line["step"] for line in lines if line["k"] == "train"], [1, 2, 3])
        self.assertEqual(lines[-1]["k"], "end")
        self.assertEqual(self.object_of("inspect", "run")["manifest"]["status"], "ok")
        self.assertEqual(self.object_of("inspect", "run/ckpt/last")["state"]["step"], 3)
        self.prints("export", "run", "--to", "hf", "hf")
        self.prints("import", "hf", "again")
        self.assertEqual((self.folder / "hf/model.safetensors").read_bytes(),
                         (self.folder / "again/model.safetensors").read_bytes())
        self.prints("inspect", "hf", "--tensors")
        self.refuses(3, "not empty", "train", "run.toml", "--out", "run")
        self.prints("train", "run.toml", "--out", "run", "--force", "-q")
        self.write("from.toml", RUN.replace('preset = "nano"', 'init = "hf"'))
        shown = self.prints("inspect", "from.toml")
        self.assertRegex(shown, r"d_model = 64 +# model.init")
        self.write("clash.toml", RUN.replace('preset = "nano"', 'init = "hf"\nd_model = 65'))
        self.refuses(3, "has 64", "train", "clash.toml")
        self.prints("train", "--resume", "run.toml", "--out", "run", "-q")
        self.prints("train", "run.toml", "--out", "run", "-q", "--resume")
        self.refuses(2, "CONFIG", "train", "--resume", "auto", "-q")
        self.prints("report", "run", "--out", "page.html")
        self.assertIn("<html", (self.folder / "page.html").read_text())

    def test_a_downloaded_model_by_its_name(self):
        self.prints("train", "run.toml", "--out", "run", "-q")
        self.prints("export", "run", "--to", "hf", "hf")
        self.write("named.toml", RUN.replace('preset = "nano"', 'init = "lab/tiny"'))
        with unittest.mock.patch.dict(os.environ, HF_HOME=str(self.folder / "home")):
            self.refuses(3, "huggingface-cli download lab/tiny", "train", "named.toml")
            model = self.folder / "home/hub/models--lab--tiny"
            for part in ("refs", "blobs", "snapshots/abc"):
                (model / part).mkdir(parents=True)
            (model / "refs/main").write_text("abc")
            for file in (self.folder / "hf").iterdir():  # as huggingface_hub keeps them
                (model / "blobs" / file.name).write_bytes(file.read_bytes())
                (model / "snapshots/abc" / file.name).symlink_to(f"../../blobs/{file.name}")
            self.prints("train", "named.toml", "--out", "named", "-q")
            self.assertRegex(self.prints("inspect", "named.toml"), r"init = .*snapshots/abc")
        self.write("path.toml", RUN.replace('preset = "nano"', 'init = "hf"'))
        self.prints("train", "path.toml", "--out", "path", "-q")
        self.assertEqual(self.values("named/ckpt/last"), self.values("path/ckpt/last"))

    def values(self, folder):
        """Every value of its model.safetensors, by tensor."""
        raw = (self.folder / folder / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        values = {}
        for name, info in json.loads(raw[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = (8 + size + at for at in info["data_offsets"])
                values[name] = struct.unpack(f"<{(end - begin) // 4}f", raw[begin:end])
        return values

    def test_runs_are_listed_tagged_merged_and_removed(self):
        for seed in (1, 2):
            self.prints("train", "run.toml", "--out", f"runs/s{seed}", "--set", f"run.seed={seed}",
                        "-q")
        self.prints("runs", "tag", "runs/s1", "good", "lr=3e-3")
        rows = [json.loads(line) for line in self.prints("runs", "ls", "--json").splitlines()]
        self.assertEqual([(row["run"], row["state"], row["step"], row["tags"]) for row in rows],
                         [("runs/s1", "ok", 3, ["good", "lr=3e-3"]), ("runs/s2", "ok", 3, [])])
        listed = self.prints("runs", "ls", "--tag", "good")
        self.assertIn("s1", listed)
        self.assertNotIn("s2", listed)
        self.assertEqual(
            self.object_of("runs", "tag", "runs/s1", "--remove", "good")["tags"], ["lr=3e-3"])
        self.refuses(2, "no tag 'good'", "runs", "tag", "runs/s1", "--remove", "good")
        self.refuses(2, "tag 'a b'", "runs", "tag", "runs/s1", "a b")
        self.refuses(3, "no run's folder", "runs", "show", "runs")
        self.assertIn("ddp", self.prints("runs", "show", "runs/s1"))

        self.prints("merge", "runs/s1", "runs/s2", "--weights", "1,3", "--out", "mean")
        a, b, mean = (self.values(f) for f in ("runs/s1/ckpt/last", "runs/s2/ckpt/last", "mean"))
        self.assertEqual(mean.keys(), a.keys())
        for name, merged in mean.items():
            for x, y, z in zip(a[name], b[name], merged):
                self.assertAlmostEqual(z, 0.25 * x + 0.75 * y, delta=1e-7)
        self.refuses(3, "is there already", "merge", "runs/s1", "runs/s2", "--out", "mean")
        self.refuses(2, "1 given for 2", "merge", "runs/s1", "mean", "--weights", "1", "--out", "m")
        self.refuses(2, "not all 0", "merge", "runs/s1", "mean", "--weights", "0,0", "--out", "m")
        self.prints("train", "run.toml", "--out", "wide", "-q", "--set", "model.preset=tiny")
        self.refuses(3, "have different shapes", "merge", "runs/s1", "wide", "--out", "m")
        self.assertFalse((self.folder / "m").exists())

        self.write("runs/s2/mine.txt", "a note")
        self.refuses(3, "no run's folder", "runs", "rm", "runs/s1", "runs/absent")
        self.prints("runs", "rm", "runs/s1", "runs/s2")
        self.assertFalse((self.folder / "runs/s1").exists())
        self.assertEqual([f.name for f in (self.folder / "runs/s2").iterdir()], ["mine.txt"])


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
