#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: Flower's FedAvgM makes inf or NaN of fp16 weights that its FedAvg averages correctly.
# Guess: both strategies compute the same weighted mean, so two clients with 1.5 give 1.5 for any number of examples.
# Seen: with 20000 examples per client both give 1.5. With 25000 FedAvg gives 1.5 and FedAvgM inf; with 50000 FedAvgM
#   gives NaN. FedAvg averages in place with factors n / total; FedAvgM (as FedAvg with inplace=False) multiplies
#   the arrays by n and divides by the total, and an fp16 array times a Python integer stays fp16, which ends at 65504.
# Versions: flwr 1.42.0, numpy 2.4.6; Python 3.11.
# Why: fp16 is the usual halving of what a client sends, and FedAvgM is the strategy closest to DiLoCo's outer momentum.
#   The mean overflows only once clients have enough data, which is after the small test has passed.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3.11}" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check flwr==1.42.0 numpy==2.4.6
cat > "$work/expected" <<'EOF'
20000: FedAvg 1.5, FedAvg(inplace=False) 1.5, FedAvgM 1.5
25000: FedAvg 1.5, FedAvg(inplace=False) inf, FedAvgM inf
50000: FedAvg 1.5, FedAvg(inplace=False) nan, FedAvgM nan
EOF
FLWR_TELEMETRY_ENABLED=0 "$work/venv/bin/python" -W ignore - > "$work/seen" 2> "$work/log" <<'EOF'
import numpy as np
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.strategy import FedAvg, FedAvgM


def client(examples):
    weights = ndarrays_to_parameters([np.full(3, 1.5, np.float16)])
    return None, FitRes(Status(Code.OK, ""), weights, examples, {})


for n in (20000, 25000, 50000):
    start = ndarrays_to_parameters([np.zeros(3, np.float16)])
    strategies = {
        "FedAvg": FedAvg(),
        "FedAvg(inplace=False)": FedAvg(inplace=False),
        "FedAvgM": FedAvgM(server_momentum=0.9, initial_parameters=start),
    }
    told = []
    for name, strategy in strategies.items():
        mean, _ = strategy.aggregate_fit(1, [client(n), client(n)], [])
        told.append(f"{name} {parameters_to_ndarrays(mean)[0][0]}")
    print(f"{n}: " + ", ".join(told))
EOF
if ! diff "$work/expected" "$work/seen"; then
  echo "changed: '<' is what was seen first, '>' is what this run gave"
  exit 1
fi
cat "$work/seen"
echo "as stated"
