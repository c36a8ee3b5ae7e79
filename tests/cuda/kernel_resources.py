#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the compiler says of each kernel's registers, spills and static shared memory keeps to what a device takes.

  python3 tests/cuda/kernel_resources.py --build build/release

The emulated device knows nothing of registers, so a kernel that it runs may be refused by a real one, or be slow on
it. The reports are those of `-Xptxas -v`, which the build keeps beside the objects (cmake/keep_ptxas_report.py).
"""
import argparse
import pathlib
import re
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
SUFFIX = ".cu.o.ptxas"

REGISTERS = 65536  # of a block
MOST_THREADS = 1024  # of a block of a kernel without launch bounds
MOST_SPILLED_BYTES = 100  # stored or loaded; more is time in the loops
PLAIN_SHARED_BYTES = 48 << 10  # static and dynamic, of a kernel that is not allowed more

# (source, kernel, what it goes beyond): why it may. A line that nothing needs is an error.
ALLOWED = {
    ("src/quant/cuda/sparse_encode.cu", "topk_kernel", "spills"):
        "104 bytes, so that four blocks fit a multiprocessor: 0.91 of a copy's speed on an H100",
}


class Kernel(NamedTuple):
    source: str  # relative to the repository
    name: str  # without namespaces and template arguments
    symbol: str
    architecture: str
    registers: int
    spilled: int  # bytes, the larger of stores and loads
    shared: int  # bytes, static


def plain_name(symbol):
    """The function's own name of a mangled one: _ZN3abc1fIfEEvT_ is f."""
    if not symbol.startswith("_Z"):
        return symbol
    at = 3 if symbol.startswith("_ZN") else 2
    name = symbol
    while match := re.compile(r"\d+").match(symbol, at):
        end = match.end() + int(match.group())
        name, at = symbol[match.end():end], end
    return name


def kernels_of(report, source):
    found = []
    for text in report.split("Compiling entry function ")[1:]:
        head = re.match(r"'([^']+)' for '([^']+)'", text)
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
        used = re.search(r"Used (\d+) registers(.*)", text)
        if not (head and spills and used):
            raise ValueError(f"{source}: the report of a kernel has another form: {text[:300]!r}")
        shared = re.search(r"(\d+) bytes smem", used.group(2))
        found.append(Kernel(source, plain_name(head.group(1)), head.group(1), head.group(2), int(used.group(1)),
                            max(map(int, spills.groups())), int(shared.group(1)) if shared else 0))
    return found


def with_headers(path, seen):
    """The source's text and that of our headers that it includes."""
    text = path.read_text()
    for header in re.findall(r'#include "([^"]+)"', text):
        for folder in (ROOT, ROOT / "src"):
            if (folder / header).is_file() and header not in seen:
                seen.add(header)
                text += with_headers(folder / header, seen)
    return text


def bounded_kernels(text):
    """Names of kernels that the text gives launch bounds."""
    bounds = r"__launch_bounds__\((?:[^()]|\([^()]*\))*\)"
    return set(re.findall(rf"__global__\s+void\s+{bounds}\s*(\w+)\s*\(", text))


def faults_of(kernel, bounded, dynamic_bytes):
    """What it goes beyond, as (word, text). bounded: it has launch bounds, to which the compiler fits registers.
    dynamic_bytes: dynamic shared memory that it may have without being allowed more."""
    if kernel.spilled > MOST_SPILLED_BYTES:
        yield "spills", f"{kernel.spilled} bytes of registers are spilled, more than {MOST_SPILLED_BYTES}"
    if not bounded and kernel.registers * MOST_THREADS > REGISTERS:
        yield "registers", (f"{kernel.registers} registers a thread and no __launch_bounds__: a block of {MOST_THREADS} "
                            f"threads has {REGISTERS}; say how many threads its blocks have")
    if kernel.shared + dynamic_bytes > PLAIN_SHARED_BYTES:
        yield "shared", (f"{kernel.shared} bytes of static shared memory and up to {dynamic_bytes} of dynamic "
                         f"(kPlainSharedBytes) are more than {PLAIN_SHARED_BYTES}")


def check(kernels, bounded_in, dynamic_bytes, allowed):
    """RETURNS: a line for each fault. bounded_in: by source, names of kernels with launch bounds."""
    lines, used = [], set()
    for kernel in kernels:
        for word, text in faults_of(kernel, kernel.name in bounded_in[kernel.source], dynamic_bytes):
            key = (kernel.source, kernel.name, word)
            if key in allowed:
                used.add(key)
            else:
                lines.append(f"{kernel.source}: {kernel.name} for {kernel.architecture}: {text} ({kernel.symbol})")
    lines += [f"{key}: allowed ({allowed[key]}), and nothing needs it" for key in sorted(allowed.keys() - used)]
    return lines


def reports_in(build):
    """By source: the report's text. A module's objects lie in MODULE/CMakeFiles/TARGET.dir/."""
    found = {}
    for path in build.rglob("*" + SUFFIX):
        parts = path.relative_to(build).parts
        at = parts.index("CMakeFiles")
        source = "/".join(parts[:at] + parts[at + 2:])[: -len(".o.ptxas")]
        found[source] = path.read_text()
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    reports = reports_in(parser.parse_args().build)
    sources = {str(path.relative_to(ROOT)): path for module in ("kernels", "src") for path in (ROOT / module).rglob("*.cu")}
    missing = sorted(sources.keys() - reports.keys())
    if missing:
        sys.exit(f"FAILED: the build has no report of {', '.join(missing)}: build all again")
    kernels, bounded_in = [], {}
    for source, path in sorted(sources.items()):
        kernels += kernels_of(reports[source], source)
        bounded_in[source] = bounded_kernels(with_headers(path, set()))
    plain = re.search(r"kPlainSharedBytes = (\d+) << 10;", (ROOT / "kernels/cuda/simt_device.h").read_text())
    lines = check(kernels, bounded_in, int(plain.group(1)) << 10, ALLOWED)
    if lines or not kernels:
        sys.exit("FAILED: " + "\n".join(lines or ["no kernel was found"]))
    most = max(kernels, key=lambda kernel: kernel.spilled)
    print(f"ok: {len(kernels)} kernels; most spilled: {most.spilled} bytes by {most.name} of {most.source}; "
          f"most static shared memory: {max(kernel.shared for kernel in kernels)} bytes")


if __name__ == "__main__":
    main()
