// SPDX-License-Identifier: Apache-2.0
// What the passes and the update of a rank read and write beside products and attention: bytes of
// arrays each gone through once, which memory bounds rather than arithmetic. Pure functions.
//
// Of a token and layer, d the stream's width, a queries, k keys, f feed-forward (a, k and f a
// rank's own), stream fp32, the rest `wide`, as the blocks go through them (inner/model/llama.cpp,
// inner/model/gpt2.cpp):
//   a norm, forward    x read, y written; two a layer, one before the head
//   a norm, backward   dy, x and the stream's gradient read, that written
//   Llama              rotary 2 (a + k) each way; SwiGLU 3 f forward, 5 f backward
//   GPT-2              GELU is in its product, which writes the slope beside its result: f forward,
//                      and f read back; in a pass of its own, as below, 2 f forward (sum, result)
//   zb-h1              copies of what weight gradients read later
// Recomputation goes through what it makes again once more: all but the stage's last layer, or in
// every layer, if it is selective, norms, SwiGLU, and, in fp32, GPT-2's GELU: from the sum that the
// layer keeps it writes result and slope (3 f); its forward pass, which writes no slope, is then
// its own too. The embedding reads and writes the stream forward, and reads it, reads and writes
// rows of the table backward. The head goes through its logits three times (maximum and sum,
// gradient, as it writes that). Left out: operands of products, which are read while these compute,
// and their results.
#pragma once

#include "plan/mesh_cost.h"
#include "plan/mesh_share.h"

namespace isthmus::plan {

/// Of one micro-batch in a stage.
struct PassBytes {
  double forward = 0;  // the head's logits and the final norm, both ways, included
  double backward = 0;
  double again = 0;  // of recomputation, in the backward pass
};
[[nodiscard]] PassBytes pass_bytes(const MeshWorkload& workload, const MeshChoice& choice,
                                   const StageShare& stage);

/// Of an update of so many values by an optimizer with so many moments of them: weights and moments
/// are read and written, gradients read and cleared.
[[nodiscard]] double update_bytes(double values, double moments);

}  // namespace isthmus::plan
