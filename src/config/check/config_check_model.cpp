// SPDX-License-Identifier: Apache-2.0
// Rules of [model].
#include <fmt/format.h>

#include "config/check/config_check.h"

namespace isthmus::config {

bool heads_divide_width(const ModelConfig& model) {
  return model.head_dim != 0 || model.d_model % model.heads == 0;
}

void validate_model(const ModelConfig& model, CheckContext& check) {
  if (!heads_divide_width(model)) {
    check.refuse("E-DIVISIBLE", check.given("model.n_heads") ? "model.n_heads" : "model.d_model",
                 fmt::format("model.d_model = {} is not a multiple of model.n_heads = {}",
                             model.d_model, model.heads));
    return;
  }
  if (model.arch == "llama") {
    if (model.kv_heads > 0 && model.heads % model.kv_heads != 0) {
      check.refuse("E-DIVISIBLE", "model.n_kv_heads",
                   fmt::format("{}: must divide model.n_heads = {}",
                               check.quoted("model.n_kv_heads"), model.heads));
    }
    const std::int64_t head = model.head_dim > 0 ? model.head_dim : model.d_model / model.heads;
    if (head % 2 != 0) {
      check.refuse("E-DIVISIBLE",
                   check.given("model.head_dim") ? "model.head_dim" : "model.n_heads",
                   fmt::format("a head of {} values: rotary positions need an even width", head));
    }
  }
}

}  // namespace isthmus::config
