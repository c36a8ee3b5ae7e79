// SPDX-License-Identifier: Apache-2.0
// Times of optimizers' kernels.
#pragma once

#include "cuda_bench.h"

namespace isthmus::cuda {

void bench_optimizer(CudaBench& bench);  // AdamW and the norm, of GPT-2
void bench_muon(CudaBench& bench);

}  // namespace isthmus::cuda
