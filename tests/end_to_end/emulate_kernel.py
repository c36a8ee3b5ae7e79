#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`simulate --emulate --kernel`: processes in network namespaces, over the kernel's TCP.

  sudo python3 tests/end_to_end/emulate_kernel.py --isthmus build/src/app/isthmus

The same losses as the simulation, bit for bit; rounds take as long as the declared link makes them;
the closed form and the clock are laid beside one another. After it, and after its process was killed
in the middle, no site, device or namespace is left. Without root it names what is missing and ends
with exit code 4. Needs root, TUN devices and iproute2.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/sites.toml"
SKIPPED = 77  # for ctest
# One round of 123 kB each way: about half a second at 2 Mbit/s, three rounds.
LINK = """
[[link]]
between = ["east", "west"]
rate = "2Mbit/s"
rtt = "40ms"
streams = 2
congestion = "cubic"
"""


def require(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def rows(folder, kind):
    path = folder / "metrics.jsonl"
    whole = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return [row for row in map(json.loads, whole) if row["k"] == kind]


def command(isthmus, toml, out, *flags, steps=60):
    return [isthmus, "simulate", str(toml), "--progress", "none", "--set", f"train.steps={steps}",
            "--set", "eval.every=0", "--out", str(out), *flags]


def processes_of(folder):
    """Of this machine, whose command line names the folder."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            pass
    return [pid for pid in found if pid != os.getpid()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isthmus", required=True)
    isthmus = str(pathlib.Path(parser.parse_args().isthmus).resolve())
    if missing := what_is_missing():
        print(f"skipped: {missing}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.chmod(folder, 0o755)
        toml = folder / "run.toml"
        text = EXAMPLE.read_text()
        text = text.replace("text:../", f"text:{EXAMPLE.parents[1]}/")
        toml.write_text(without_links(text) + LINK)

        bare = folder / "bare.toml"
        bare.write_text(without_links(text))
        refused = subprocess.run(command(isthmus, bare, folder / "bare", "--emulate", "--kernel"),
                                 capture_output=True, text=True, timeout=60)
        require(refused.returncode == 3 and "add [[link]]" in refused.stderr,
                f"without links: exit {refused.returncode}: {refused.stderr}")

        done = subprocess.run(command(isthmus, toml, folder / "kernel", "--emulate", "--kernel", "--json"),
                              capture_output=True, text=True, timeout=300)
        require(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
        said = json.loads(done.stdout)
        subprocess.run(command(isthmus, toml, folder / "simulated"), check=True, capture_output=True,
                       timeout=300)
        sites = sorted(each for each in (folder / "kernel").iterdir() if each.is_dir())
        require(len(sites) == said["sites"] >= 2, f"{sites}, {said}")
        want = [(row["step"], row["loss"]) for row in rows(folder / "simulated", "train")]
        for site in sites:
            found = [(row["step"], row["loss"]) for row in rows(site, "train")]
            require(found == want, f"{site.name}: other losses than the simulation's")
        waits = [row["wait_s"] for row in rows(sites[0], "round")]
        least = 123000 * 8 / 2e6 + 0.02  # bytes at the line's rate, and half a round trip
        require(len(waits) == 3 and min(waits) >= 0.9 * least, f"waits {waits}, least {least}")
        require(sum(waits) < 3 * 3 * least, f"waits {waits}, least {least}")

        for name, sign, code in (("killed", signal.SIGKILL, -signal.SIGKILL),
                                 ("interrupted", signal.SIGINT, 130)):
            out = folder / name
            run = subprocess.Popen(command(isthmus, toml, out, "--emulate", "--kernel", steps=100000),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            begin = time.monotonic()
            while not (out.exists() and any(rows(each, "round") for each in out.iterdir())):
                require(time.monotonic() - begin < 60 and run.poll() is None, f"{name}: no round")
                time.sleep(0.05)
            run.send_signal(sign)
            require(run.wait(timeout=60) == code, f"{name}: exit {run.returncode}")
            while processes_of(out):
                require(time.monotonic() - begin < 90, f"{name}: sites go on: {processes_of(out)}")
                time.sleep(0.05)

        try:
            refused = subprocess.run(command(isthmus, toml, folder / "plain", "--emulate", "--kernel"),
                                     capture_output=True, text=True, timeout=60, user=65534,
                                     env={**os.environ, "HOME": "/"})
            require(refused.returncode == 4 and "needs root" in refused.stderr,
                    f"without root: exit {refused.returncode}: {refused.stderr}")
        except PermissionError:
            print("left out: nobody else may start this program where it lies")
        print(f"ok: predicted {said['predicted_s']:.2f} s, measured {said['measured_s']:.2f} s; "
              f"waits {', '.join(f'{wait:.2f}' for wait in waits)} s, bound {least:.2f} s")
    return 0


def what_is_missing():
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    if shutil.which("ip") is None:
        return "needs ip, of iproute2"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return f"needs /dev/net/tun: {error.strerror}"
    return ""


def without_links(text):
    """The file less its [[link]] entries."""
    kept, inside = [], False
    for line in text.splitlines():
        if line.startswith("["):
            inside = line.startswith("[[link]]")
        if not inside:
            kept.append(line)
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    sys.exit(main())
