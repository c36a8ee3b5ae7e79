// SPDX-License-Identifier: Apache-2.0
// Layout of a GPT-2 layer's weights. Pointers only; the caller owns the memory.
#pragma once

#include <cstdint>

#include "inner/model/model_shape.h"

namespace isthmus {

/// Pointers into a layer's weights, or gradients, in the order of gpt2_layer_tensors.
template <typename T>
struct Gpt2Tensors {
  T *ln1_weight, *ln1_bias, *qkv_weight, *qkv_bias, *out_weight, *out_bias;
  T *ln2_weight, *ln2_bias, *up_weight, *up_bias, *down_weight, *down_bias;

  Gpt2Tensors(T* at, const ModelShape& s) {
    const std::int64_t d = s.d_model;
    const std::int64_t a = s.query_width();
    const auto next = [&at](std::int64_t count) {
      T* tensor = at;
      at += count;
      return tensor;
    };
    ln1_weight = next(d);
    ln1_bias = next(d);
    qkv_weight = next(d * 3 * a);
    qkv_bias = next(3 * a);
    out_weight = next(a * d);
    out_bias = next(d);
    ln2_weight = next(d);
    ln2_bias = next(d);
    up_weight = next(d * s.d_ff);
    up_bias = next(s.d_ff);
    down_weight = next(s.d_ff * d);
    down_bias = next(d);
  }
};

}  // namespace isthmus
