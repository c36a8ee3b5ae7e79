#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs nvcc; what ptxas says of kernels (-Xptxas -v) goes to OBJECT.ptxas beside the object, not to the terminal.

  keep_ptxas_report.py [ccache] nvcc ... -o OBJECT ...

The build starts nvcc by this script where tests are built: tests/cuda/kernel_resources.py reads the reports.
"""
import pathlib
import re
import subprocess
import sys

REPORT = re.compile(r"ptxas info\s*:|\s+\d+ bytes stack frame,")


def main():
    command = sys.argv[1:]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    lines = result.stderr.splitlines(keepends=True)
    sys.stderr.writelines(line for line in lines if not REPORT.match(line))
    if result.returncode == 0 and "-o" in command:
        report = "".join(line for line in lines if REPORT.match(line) and "Compile time" not in line)
        pathlib.Path(command[command.index("-o") + 1] + ".ptxas").write_text(report)
    sys.exit(result.returncode)


if __name__ == "__main__":
    main()
