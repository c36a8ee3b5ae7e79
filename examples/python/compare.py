# SPDX-License-Identifier: Apache-2.0
"""Methods compared by a PyTorch body, that of simulate.py: the same seeds for each variant of compare.toml, a paired
test, and a page. In the repository's root:

  python3 examples/python/compare.py runs/compared                      may be stopped, and gone on with by --resume
  isthmus report runs/compared --links 1Gbit/s,10ms                     the page again

Without a folder the program is one run of a comparison that `isthmus compare --program` makes."""
import pathlib
import sys

from simulate import body

import isthmus

FILE = pathlib.Path(__file__).parent / "compare.toml"

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(isthmus.run(FILE, body, evaluation_parts=1, kind="pytorch").exit_code)
    found = isthmus.compare(FILE, train=body, evaluation_parts=1, kind="pytorch", out=sys.argv[1],
                            resume="--resume" in sys.argv,
                            seeds=int(sys.argv[2]) if sys.argv[2:] and sys.argv[2].isdigit() else None)
    for variant in found["variants"]:
        loss = variant["final_eval_loss"]
        print(f"{variant['name']:16}{loss['mean']:8.3f} +- {loss['sd']:.3f}   {variant['verdict']}")
