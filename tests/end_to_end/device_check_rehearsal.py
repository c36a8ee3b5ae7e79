#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/device-check run whole against stand-ins: programs of a pack that pass, skip, fail, crash, hang or print
garbage, and a stand-in for nvidia-smi, the sanitizer and the profiler. Verdicts, lines, times and archives are right.

  python3 tests/end_to_end/device_check_rehearsal.py
"""

import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/device-check"
CARD = "NVIDIA Stand-in 80GB"
SCALE = ("--scale", "0.15")  # of the limits of single steps: 6.75 s a test

# A googletest program whose cases do what CASES says.
PROGRAM = """#!{python} -IS
import fnmatch, os, signal, sys, time
CASES, GARBAGE = {cases!r}, {garbage!r}
words = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
if GARBAGE:
    sys.stdout.buffer.write(b"\\xff\\xfe[ nothing\\n{{\\n")
    sys.exit(0)
wanted = words.get("gtest_filter", "*").split(":")
names = [name for name in CASES if any(fnmatch.fnmatchcase(name, each) for each in wanted)]
if "--gtest_list_tests" in sys.argv:
    suites = list(dict.fromkeys(name.rsplit(".", 1)[0] for name in names))
    for suite in suites:
        print(suite + ".  # TypeParam = float")
        for name in names:
            if name.rsplit(".", 1)[0] == suite:
                print("  " + name.rsplit(".", 1)[1] + "  # GetParam() = 1")
    sys.exit(0)
print("Note: Google Test filter = x")
print(f"[==========] Running {{len(names)}} tests from 1 test suite.")
failed, stuck = [], False
for name in names:
    print(f"[ RUN      ] {{name}}", flush=True)
    what = CASES[name]
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)
    if what == "skip":
        print("x_test.cpp:7: Skipped\\nno device here\\n")
        print(f"[  SKIPPED ] {{name}} (0 ms)")
    elif what in ("fail", "stick") or stuck:
        stuck = stuck or what == "stick"
        print(f"x_test.cpp:8: Failure\\nCUDA error, blocking {{os.environ.get('CUDA_LAUNCH_BLOCKING', 'no')}}")
        print(f"[  FAILED  ] {{name}}, where GetParam() = 1 (1 ms)")
        failed.append(name)
    else:
        print(f"[       OK ] {{name}} (1 ms)")
print("[==========] done")
if failed:
    print("[  FAILED  ] 1 test, listed below:")
    for name in failed:
        print(f"[  FAILED  ] {{name}}")
sys.exit(1 if failed else 0)
"""

ISTHMUS = """#!{python} -IS
import json, os, pathlib, signal, sys
WAYS = {ways!r}
arguments = sys.argv[1:]
option = lambda name, other: arguments[arguments.index(name) + 1] if name in arguments else other
if arguments[0] == "doctor" and "doctor" in WAYS:
    sys.exit("libraries that do not load")
elif arguments[0] == "doctor":
    found = {{"isthmus": "0.1", "CUDA": WAYS.get("CUDA", "driver for CUDA 13.0, runtime 13.0"), "cuBLASLt": "13.1.0 found",
             "cuDNN": "9.19.0 found", "NCCL": "found, sees 1 device(s)"}}
    if "CUDA" not in WAYS:
        found["cuda:0"] = "{card}, compute capability 9.0"
    print(json.dumps({{"findings": [{{"name": name, "value": value, "advice": ""}} for name, value in found.items()]}}))
elif arguments[:2] == ["bench", "codec"]:
    print(WAYS.get("codec", '{{"codec": "int4:32", "encode_gb_s": 1.5}}'))
elif arguments[:2] == ["bench", "compute"]:
    attention = option("--attention", "own")
    print("bench: words for people", file=sys.stderr)
    if WAYS.get("smoke") == attention and option("--config", "") == "tiny":
        print("CUDA error: an illegal memory access", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    loss = WAYS.get("loss", 5.5) if option("--precision", "") == "bf16" else 5.5
    beside = pathlib.Path(__file__).resolve().parent / "matmul-table.txt"
    table = json.dumps(beside.exists() and beside.read_text() == "table")
    line = '{{"bench": "compute", "config": "%s", "attention": "%s", "table": %s, "tok_s_med": 1000.5, "mfu": 0.4, "loss": %s}}'
    print(line % (option("--config", ""), attention, table, loss))
elif arguments[0] == "train":
    out = pathlib.Path(option("--out", ""))
    out.mkdir(parents=True)
    losses = [5.0, 4.0] if option("--device", "") == "cpu" else WAYS.get("losses", [5.000001, 4.000001])
    lines = [json.dumps({{"k": "train", "step": i, "loss": x}}) for i, x in enumerate(losses)]
    (out / "metrics.jsonl").write_text("\\n".join(lines))
"""
NVIDIA_SMI = """#!{python} -IS
import sys, time
while "-lms" in sys.argv:
    print("1980, 2619, 650.5, 60", flush=True)
    time.sleep(0.01)
else:
    print("{card}, 580.1, 81559 MiB, 345 MHz, 2619 MHz, 1980 MHz, 2619 MHz, 700.00 W, 30")
"""
SANITIZER = """#!{python} -IS
import subprocess, sys
at = sys.argv.index("--error-exitcode") + 2
done = subprocess.run(sys.argv[at:], stdout=subprocess.PIPE)
sys.stdout.buffer.write(done.stdout)
bad = {bad!r} in sys.argv[at]
if bad:
    print("========= Invalid __global__ write of size 4 bytes at norm.cu:70")
print(f"========= ERROR SUMMARY: {{int(bad)}} errors")
sys.exit(86 if bad else done.returncode)
"""
NCU = """#!{python} -IS
import sys
with open(sys.argv[sys.argv.index("--log-file") + 1], "w") as log:
    log.write("==PROF== Connected\\n")
    log.write('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\\n')
    update, norm = "isthmus::cuda::<unnamed>::adamw_kernel(A, B)", "void (anonymous namespace)::norm<(int)64>(float)"
    for name, us in [("gemm", "7,000"), (update, "3,000"), ("gemm", "1,500"), (norm, "500"), ("gemm", "1,000"),
                     (update, "2,000"), ("gemm", "9,000")]:
        log.write(f'"0","{{name}}","gpu__time_duration.sum","ns","{{us}}"\\n')
"""
LDD = """#!{python} -IS
import sys
for each in sys.argv[1:]:
    print(each + ":\\n\\tlibc.so.6 => /lib/libc.so.6 (0x1)\\n\\tlibmissing.so.1 => not found")
"""
TABLE = """#!{python} -IS
import pathlib, sys
pathlib.Path(sys.argv[sys.argv.index("--out") + 1]).write_text("table")
print('{{"choice": 1, "ms": 2}}\\n{{"products": 1}}')
"""
COMPARE = """
import json, sys
attentions = [sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == "--attention"]
config = sys.argv[sys.argv.index("--config") + 1]
for attention in attentions:
    print(json.dumps({"bench": "ratio", "config": config, "attention": attention, "tok_s_med": 1.2}))
"""
ALL_WELL = {
    "matmul_cuda_test": {"MatmulOnDevice.A": "ok"},
    "attention_cuda_test": {"AttentionOnDevice.Bf16TakesHeadsX": "ok", "AttentionOnDevice.TheScaleIsTheCallers": "ok"},
    "norm_cuda_test": {"NormOnDevice/0.NormalisesEachHeadX": "ok"},
    "loss_cuda_test": {"CrossEntropyOnDevice/0.TotalsAreAddedToX": "ok"},
    "codec_cuda_test": {
        "All/CodecOnDevice.EncodesAndDecodesX/int4_32": "ok",
        "All/CodecOnDevice.KeepsTheResidualX/topk": "ok",
    },
    "training_steps_cuda_test": {"Models/CudaLoopSteps.HaveTheSameBitsAsGraphs/gpt2": "ok"},
    "transport_nccl_device_test": {"NcclDevice.IsThere": "ok", "Sums.OfTwo": "skip"},
    "other_cuda_test": {"Other.A": "ok"},
}


def require(condition, text):
    if not condition:
        raise AssertionError(text)


class Pack:
    """A pack of stand-ins, and where device-check is run."""

    def __init__(
        self,
        folder,
        tests=None,
        ways=None,
        cudnn=True,
        tools=("nvidia-smi", "ncu", "compute-sanitizer"),
        bad=" none",
        garbage=(),
    ):
        self.folder, self.pack, self.out = folder, folder / "pack", folder / "out"
        for name in ("pack/tests", "pack/bench", "pack/lib", "bin"):
            (folder / name).mkdir(parents=True)
        (self.pack / "pack.json").write_text(json.dumps({"commit": "c0ffee", "arch": "90-real", "cudnn": cudnn}))
        self.program(self.pack / "isthmus", ISTHMUS, ways=ways or {})
        for name, cases in (ALL_WELL if tests is None else tests).items():
            self.program(self.pack / "tests" / name, PROGRAM, cases=cases, garbage=name in garbage)
        self.program(
            self.pack / "bench/bench_cuda_ops",
            '#!{python} -IS\nprint(\'{{"op": "norm", "us": 3}}\\nwords\\n{{"op": "adamw", "us": NaN}}\')\n',
        )
        self.program(self.pack / "bench/bench_cuda_matmul_table", TABLE)
        (self.pack / "bench/compare_with_torch.py").write_text(COMPARE)
        (self.pack / "bench/outer_overhead.py").write_text("print('{\"bench\": \"outer_overhead\"}\\n' * 3)")
        (self.pack / "train_on_device.py").write_text("print('ok')\n")
        shutil.copy(SCRIPT, self.pack)
        for name, text in (("nvidia-smi", NVIDIA_SMI), ("ncu", NCU), ("compute-sanitizer", SANITIZER), ("ldd", LDD)):
            if name in tools:
                self.program(folder / "bin" / name, text, bad=bad)

    def program(self, path, text, **values):
        path.write_text(text.format(python=sys.executable, card=CARD, **values))
        path.chmod(0o755)

    def start(self, *words, pack=None):
        environment = dict(os.environ, PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}")
        command = [sys.executable, str(SCRIPT), "--pack", str(pack or self.pack), "--out", str(self.out), *words]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def check(self, *words, code=0, pack=None):
        """RETURNS: the lines of results by their kind, in order, and all of them."""
        child = self.start(*words, pack=pack)
        out, err = child.communicate(timeout=300)
        require(child.returncode == code, f"{words}: exit {child.returncode}, not {code}: {out}{err}")
        self.screen = out + err
        return self.results() if code != 2 else None

    def results(self):
        require(sorted(os.listdir(self.out)) == ["logs.tar.gz", "results.jsonl"], os.listdir(self.out))
        lines = [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]
        require(lines[0]["device_check"] == "machine", lines[0])
        kinds = collections.defaultdict(list)
        for line in lines:
            require(line["gpu"] == CARD, f"a line that does not name the card: {line}")
            kinds[line["device_check"]].append(line)
        self.lines = lines
        return kinds

    def logs(self):
        with tarfile.open(self.out / "logs.tar.gz") as tar:
            return {name: tar.extractfile(name).read() for name in tar.getnames()}


def verdicts(lines, key):
    return {line[key]: line["verdict"] for line in lines}


def everything_is_well(folder):
    pack = Pack(folder)
    kinds = pack.check("run-1")
    machine = kinds["machine"][0]
    for key, value in (
        ("driver_version", "580.1"),
        ("clocks_max_sm", "1980 MHz"),
        ("memory_total", "81559 MiB"),
        ("commit", "c0ffee"),
    ):
        require(machine[key] == value, machine)
    require({"cublaslt", "cudnn", "nccl", "torch", "ncu", "compute_sanitizer"} <= set(machine), machine)
    order = [line.get("part", line["device_check"]) for line in pack.lines]
    parts = [part for i, part in enumerate(order) if i == 0 or order[i - 1] != part]
    run = ["machine", "smoke", "loss", "headline", "ncu", "matmul-table", "test", "benches", "sanitizers", "end"]
    require(parts == run, parts)
    tables = [line for line in kinds["result"] if line["part"] == "matmul-table"]
    require([line["table"] for line in tables if "table" in line] == [False, True] * 4, tables)
    require("logs/gpt2-124m-1k_32.matmul-table" in pack.logs(), "the table is kept")
    require(len([line for line in kinds["result"] if line["part"] == "headline"]) == 7, kinds["result"])
    require(any(line.get("clocks", {}).get("sm_mhz") == 1980 for line in kinds["result"]), "clocks beside measurements")
    require([each["attention"] for each in kinds["ncu"]] == ["own", "cudnn"], kinds["ncu"])
    profile = kinds["ncu"][0]
    require(profile["whole_step"] and profile["launches"] == 4 and profile["ms"] == 0.005, profile)
    require(profile["kernels"][0] == {"kernel": "gemm", "launches": 2, "us": 2.5}, profile)
    kernels = [each["kernel"] for each in profile["kernels"]]
    require(kernels == ["gemm", "isthmus::cuda::adamw_kernel", "norm<(int)64>"], kernels)
    names = [line["test"] for line in kinds["test"]]
    require(
        names[:2] == ["matmul_cuda_test", "attention_cuda_test"] and names[-1] == "other_cuda_test" and len(names) == 8,
        names,
    )
    require(set(verdicts(kinds["test"], "test").values()) == {"ok"}, kinds["test"])
    nccl = kinds["test"][names.index("transport_nccl_device_test")]
    require(nccl["skipped"] == 1 and "one device" in nccl["skipped_because"], nccl)
    require(
        len(kinds["sanitizer"]) == 8 and set(verdicts(kinds["sanitizer"], "name").values()) == {"ok"},
        kinds["sanitizer"],
    )
    ops = next(line for line in kinds["measurement"] if line["name"] == "bench_cuda_ops")
    require(ops["results"] == 1 and ops["other_lines"] == 2, ops)
    require(kinds["end"][0]["verdict"] == "ok" and not kinds["left_out"], kinds["end"])
    first = pack.logs()
    # Another run into the same folder adds its lines and its logs.
    kinds = pack.check("run-2")
    require(len(kinds["machine"]) == 2 and len(kinds["end"]) == 2, "lines are added")
    require(
        [line["attention"] for line in kinds["result"] if line["part"] == "torch"] == ["own", "cudnn"] * 2,
        kinds["result"],
    )
    require(kinds["test"][-1]["test"] == "train_on_device" and kinds["test"][-1]["verdict"] == "ok", kinds["test"][-1])
    require(set(first) < set(pack.logs()), "logs of the first run are kept")


def tests_in_trouble(folder):
    cases = {
        "norm_cuda_test": {"N.A": "ok", "N.B": "fail", "N.C": "ok"},
        "loss_cuda_test": {"L.A": "ok", "L.B": "crash", "L.C": "ok"},
        "codec_cuda_test": {"P/C.A/0": "ok", "P/C.A/1": "stick", "P/C.A/2": "ok"},
        "muon_cuda_test": {"M.A": "ok", "M.B": "hang"},
        "spsa_cuda_test": {"S.A": "skip", "S.B": "skip"},
        "mesh_cuda_test": {"G.A": "ok"},
        "empty_cuda_test": {},
        "transport_nccl_device_test": {"NcclDevice.IsThere": "skip", "T.A": "skip"},
        "matmul_cuda_test": {"A.A": "ok", "A.B": "skip"},
    }
    pack = Pack(folder, tests=cases, bad="codec", garbage=("mesh_cuda_test",))
    begin = time.monotonic()
    kinds = pack.check("tests", *SCALE, code=1)
    require(time.monotonic() - begin < 90, "a test that hangs has a limit")
    require(
        verdicts(kinds["test"], "test")
        == {
            "norm_cuda_test": "failed",
            "loss_cuda_test": "crash",
            "codec_cuda_test": "failed",
            "muon_cuda_test": "timeout",
            "spsa_cuda_test": "all skipped",
            "mesh_cuda_test": "nothing ran",
            "empty_cuda_test": "nothing ran",
            "transport_nccl_device_test": "all skipped",
            "matmul_cuda_test": "ok",
        },
        kinds["test"],
    )
    of = {line["test"]: line for line in kinds["test"]}
    require(of["norm_cuda_test"]["failed"] == ["N.B"] and of["norm_cuda_test"]["passed"] == 2, of["norm_cuda_test"])
    require(
        of["loss_cuda_test"]["exit"] == -signal.SIGSEGV and of["loss_cuda_test"]["ended_in"] == "L.B",
        of["loss_cuda_test"],
    )
    require(of["codec_cuda_test"]["failed"] == ["P/C.A/1", "P/C.A/2"], of["codec_cuda_test"])
    require(of["muon_cuda_test"]["ended_in"] == "M.B" and of["muon_cuda_test"]["exit"] is None, of["muon_cuda_test"])
    require("no device here" in of["spsa_cuda_test"]["skipped_because"], of["spsa_cuda_test"])
    again = {line["case"]: (line["before"], line["verdict"]) for line in kinds["case"]}
    require(
        again
        == {
            "N.B": ("failed", "failed"),
            "L.B": ("begun", "crash"),
            "L.C": ("not run", "ok"),
            "P/C.A/1": ("failed", "failed"),
            "P/C.A/2": ("failed", "ok"),
            "M.B": ("begun", "timeout"),
        },
        again,
    )
    require("blocking 1" in kinds["case"][0]["message"], kinds["case"][0])
    sanitized = {line["name"]: line for line in kinds["sanitizer"]}
    codec = sanitized["codec_cuda_test P/C.A/1, memcheck"]
    require(codec["findings"] == 1 and codec["verdict"] == "failed" and "norm.cu:70" in codec["message"], codec)
    require(
        set(sanitized)
        == {
            "norm_cuda_test N.B, memcheck",
            "codec_cuda_test P/C.A/1, memcheck",
            "loss_cuda_test L.B, memcheck",
            "muon_cuda_test M.B, memcheck",
        },
        sanitized,
    )
    require(b"Failure" in pack.logs()["logs/norm_cuda_test.log"], "the log of a test")


def measurements_in_trouble(folder):
    tests = {"matmul_cuda_test": {"A.A": "ok"}}
    # The first kernels crash: the sanitizer looks at once, tests come before the headline, which is tried all the same.
    pack = Pack(folder / "a", tests=tests, ways={"smoke": "cudnn", "codec": "no JSON"})
    kinds = pack.check("smoke", "headline", "tests", "benches", code=1)
    bad = {line["name"]: line["verdict"] for line in kinds["measurement"] if line["verdict"] != "ok"}
    require(bad == {"smoke bf16, attention cudnn": "crash", "bench codec": "no results"}, bad)
    require(
        [line["name"] for line in kinds["sanitizer"]] == ["smoke bf16, attention cudnn, memcheck"], kinds["sanitizer"]
    )
    order = [
        line["device_check"] for line in pack.lines if line.get("part") == "headline" or line["device_check"] == "test"
    ]
    require(order[0] == "test" and len(order) == 15, order)
    # Losses that are not those of the CPU, or no numbers.
    for name, ways, wrong in (
        ("b", {"loss": 5.9}, "smoke bf16"),
        ("c", {"losses": [5.0, 4.1]}, "smoke train"),
        ("d", {"losses": [5.0]}, "smoke train"),
    ):
        kinds = Pack(folder / name, tests=tests, ways=ways).check("smoke", code=1)
        failed = [line["name"] for line in kinds["loss"] if line["verdict"] == "failed"]
        require(len(failed) >= 1 and all(each.startswith(wrong) for each in failed), kinds["loss"])
    kinds = Pack(folder / "e", tests=tests, ways={"loss": "NaN"}).check("smoke", code=1)
    require(any(line["verdict"] == "no results" for line in kinds["measurement"]), kinds["measurement"])


def no_time(folder):
    tests = {f"t{i}_cuda_test": {"T.A": "hang"} for i in range(9)}
    pack = Pack(folder, tests=tests)
    begin = time.monotonic()
    kinds = pack.check("tests", "benches", "--limit", "30", *SCALE, code=1)
    require(time.monotonic() - begin < 60, "the limit of all")
    left_out = [line["name"] for line in kinds["left_out"]]
    require(0 < len(left_out) < 9 and all(line["part"] == "tests" for line in kinds["left_out"]), left_out)
    require(len(kinds["test"]) + len(left_out) == 9, "each test has a line")
    require(set(verdicts(kinds["test"], "test").values()) == {"timeout"}, kinds["test"])
    require(
        [line["name"] for line in kinds["measurement"]] == ["bench_cuda_ops", "bench codec"], "each part has its share"
    )


def nothing_to_run_on(folder):
    kinds = Pack(folder / "driver", ways={"CUDA": "no CUDA device can be used"}).check("run-1", code=1)
    require(kinds["no_device"][0]["why"] == "no CUDA device can be used" and not kinds["test"], kinds)
    kinds = Pack(folder / "doctor", ways={"doctor": "fails"}).check("smoke", "tests", code=1)
    require("do not load" in kinds["doctor"][0]["why"], kinds["doctor"])
    require(len(kinds["test"]) == 8 and len(kinds["measurement"]) == 3, "a doctor that fails does not end the visit")
    kinds = Pack(folder / "libraries", tools=("nvidia-smi", "ldd")).check("run-1", code=1)
    missing = kinds["loads"][0]["missing"]
    require(list(missing) == ["libmissing.so.1 => not found"] and "isthmus" in next(iter(missing.values())), missing)
    require(not kinds["test"], "nothing is run that cannot load")


def without_tools_and_cudnn(folder):
    tests = dict(ALL_WELL, cudnn_attention_cuda_test={"C.A": "skip"})
    pack = Pack(folder, tests=tests, cudnn=False, tools=("nvidia-smi",))
    kinds = pack.check("run-1")
    require(verdicts(kinds["test"], "test")["cudnn_attention_cuda_test"] == "excused", kinds["test"])
    require(not any("cudnn" in line.get("name", "") for line in kinds["measurement"]), kinds["measurement"])
    if not any(
        shutil.which(tool, path=f"{os.environ['PATH']}:/usr/local/cuda/bin") for tool in ("ncu", "compute-sanitizer")
    ):
        require([line["tool"] for line in kinds["absent"]] == ["ncu", "compute-sanitizer"], kinds["absent"])


def tools_that_do_not_work(folder):
    """No failure of the code that is checked."""
    pack = Pack(folder)
    for tool in ("ncu", "compute-sanitizer"):
        pack.program(folder / "bin" / tool, "#!/bin/sh\necho Device not supported\nexit 1\n")
    kinds = pack.check("ncu", "sanitizers")
    lines = kinds["ncu"] + kinds["sanitizer"]
    require(len(lines) == 10 and {line["verdict"] for line in lines} == {"unusable"}, lines)
    require("Device not supported" in lines[0]["message"], lines[0])


def archives(folder):
    pack = Pack(folder / "one", tests={"matmul_cuda_test": {"A.A": "ok"}})
    other = Pack(folder / "two", tests={"norm_cuda_test": {"N.A": "ok"}})
    archive = folder / "pack.tar.xz"

    def packed(each):
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(each.pack, arcname=".")

    def tests_of():
        shutil.rmtree(pack.out, ignore_errors=True)
        return [line["test"] for line in pack.check("tests", pack=archive)["test"]]

    packed(pack)
    require(tests_of() == ["matmul_cuda_test"] and tests_of() == ["matmul_cuda_test"], "an archive")
    packed(other)
    require(tests_of() == ["norm_cuda_test"], "another archive of that name")
    (folder / "pack/archive.sha256").unlink()
    (folder / "pack/tests/norm_cuda_test").unlink()
    require(tests_of() == ["norm_cuda_test"], "an archive that was half unpacked")
    shutil.rmtree(folder / "pack")
    (folder / "pack").mkdir()
    (folder / "pack/mine").write_text("")
    pack.check("tests", pack=archive, code=2)
    require((folder / "pack/mine").exists() and "no unpacked pack" in pack.screen, pack.screen)
    archive.write_bytes(archive.read_bytes()[:500])
    shutil.rmtree(folder / "pack")
    pack.check("tests", pack=archive, code=2)
    require(sorted(os.listdir(folder)) == ["one", "pack.tar.xz", "two"], os.listdir(folder))
    pack.check("no-such-part", code=2)
    pack.check("tests", pack=folder / "one/bin", code=2)


def ended_from_outside(folder):
    pack = Pack(folder, tests={"matmul_cuda_test": {"A.A": "ok"}, "norm_cuda_test": {"N.A": "hang"}})
    child = pack.start("tests")
    results = pack.out / "results.jsonl"
    for _ in range(600):
        if results.exists() and '"matmul_cuda_test"' in results.read_text():
            break
        time.sleep(0.1)
    time.sleep(1)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    require(child.returncode == 128 + signal.SIGTERM, child.returncode)
    require([line["test"] for line in pack.results()["test"]] == ["matmul_cuda_test"], "what is known is kept")
    require("logs/matmul_cuda_test.log" in pack.logs(), "logs are kept")
    running = subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, text=True).stdout
    require(str(pack.pack) not in running, "a program goes on")


def filters_are_looked_up(folder):
    pack = Pack(folder)
    pack.check_list = subprocess.run(
        [sys.executable, str(pack.pack / "device-check"), "--list", "run-1", "run-2"], capture_output=True, text=True
    )
    require(
        pack.check_list.returncode == 0
        and "headline: bench gpt2-124m-1k, batch 32, attention cudnn" in pack.check_list.stdout,
        pack.check_list,
    )
    (pack.pack / "tests/loss_cuda_test").unlink()
    pack.program(pack.pack / "tests/loss_cuda_test", PROGRAM, cases={"CrossEntropyOnDevice.New": "ok"}, garbage=False)
    done = subprocess.run([sys.executable, str(pack.pack / "device-check"), "--list"], capture_output=True, text=True)
    require(done.returncode == 1 and "loss_cuda_test" in done.stderr, done)


def main():
    for scenario in (
        everything_is_well,
        tests_in_trouble,
        measurements_in_trouble,
        no_time,
        nothing_to_run_on,
        without_tools_and_cudnn,
        tools_that_do_not_work,
        archives,
        ended_from_outside,
        filters_are_looked_up,
    ):
        with tempfile.TemporaryDirectory() as folder:
            try:
                scenario(pathlib.Path(folder).resolve())
            except AssertionError as error:
                sys.exit(f"FAILED: {scenario.__name__}: {error}")
    print("ok")


if __name__ == "__main__":
    main()
