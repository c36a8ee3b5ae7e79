// SPDX-License-Identifier: Apache-2.0
// The arithmetic of reductions between ranks: each element in rank order, in float (double for f64,
// integers modulo 2^bits; bf16 is summed in float and rounded once). Pure; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "transport/collectives/communicator.h"

namespace isthmus {

/// True for f32, f64, bf16, i32, i64.
[[nodiscard]] bool reducible(Dtype dtype);

/// outputs[*][i] := reduction of inputs[0][i], inputs[1][i], ... for i in [0, count). An output may
/// be an input; other overlaps are not allowed. Reads each input and writes each output once.
/// REQUIRES: reducible(dtype), at least one input.
void reduce_in_rank_order(Dtype dtype, Reduce reduce, std::span<const void* const> inputs,
                          std::int64_t count, std::span<void* const> outputs);

}  // namespace isthmus
