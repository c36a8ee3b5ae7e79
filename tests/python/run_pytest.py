# SPDX-License-Identifier: Apache-2.0
"""Runs one file of tests against a build: `run_pytest.py LIBRARY PROGRAM FILE`. Exit code 77, which
ctest takes for skipped, where numpy, pytest or, for its own files, torch is missing."""
import importlib.util
import os
import pathlib
import sys

library, program, file = map(os.path.abspath, sys.argv[1:])  # tests start both from folders of their own
needed = ["numpy", "pytest"] + (["torch"] if pathlib.Path(file).name.startswith(("test_torch", "test_ranks", "test_examples")) else [])
missing = [each for each in needed if importlib.util.find_spec(each) is None]
if missing:
    print(f"skipped: {sys.executable} has no {' and no '.join(missing)}: apt install "
          + " ".join(f"python3-{each}" for each in missing))
    sys.exit(77)
root = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ.update(ISTHMUS_LIBRARY=library, ISTHMUS_PROGRAM=program, PYTHONPATH=str(root / "python"),
                  PYTHONDONTWRITEBYTECODE="1")
os.execv(sys.executable, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file])
