// SPDX-License-Identifier: Apache-2.0
// Memory traffic of a rank's passes and update other than products and attention: bytes of arrays,
// each traversed once, which memory bandwidth bounds rather than arithmetic. Pure functions.
//
// Per token and layer, with d the stream's width, a queries, k keys, f feed-forward (a, k and f of
// one rank), the stream in fp32 and the rest `wide`, in the order of the blocks
// (inner/model/llama.cpp, inner/model/gpt2.cpp):
//   a norm, forward    x read, y written; two a layer, one before the head
//   a norm, backward   dy, x and the stream's gradient read, the gradient written
//   Llama              rotary 2 (a + k) each way; SwiGLU 3 f forward, 5 f backward
//   GPT-2              GELU is part of its product, which writes slope and result: f forward,
//                        and f read back; as a separate pass, see below, 2 f forward (sum, result)
//   zb-h1              copies of data that weight gradients read later
// Recomputation traverses the recomputed arrays once more: all but the stage's last layer; or, if
// selective, in every layer norms, SwiGLU, and, in fp32, GPT-2's GELU: from the saved sum it writes
// result and slope (3 f); its forward pass, which writes no slope, is then a separate pass too. The
// embedding reads and writes the stream forward; backward it reads the stream, and reads and writes
// rows of the table. The head traverses its logits three times (maximum and sum; gradient, read and
// written). Omitted: operands of products, which are read during the products, and their results.
#pragma once

#include "plan/mesh_cost.h"
#include "plan/mesh_share.h"

namespace isthmus::plan {

/// Of one micro-batch in a stage.
struct PassBytes {
  double forward = 0;  // with the head's logits and the final norm, both directions
  double backward = 0;
  double again = 0;  // recomputation, in the backward pass
};
[[nodiscard]] PassBytes pass_bytes(const MeshWorkload& workload, const MeshChoice& choice,
                                   const StageShare& stage);

/// For an update of `values` values by an optimizer with `moments` moments a value: weights and
/// moments are read and written, gradients read and cleared.
[[nodiscard]] double update_bytes(double values, double moments);

}  // namespace isthmus::plan
