// SPDX-License-Identifier: Apache-2.0
// Keys and values of the tokens that a sequence has so far, for all layers, so that a pass computes
// its own tokens alone. Blocks put them in and read them by `attend`;
// LanguageModel::next_token_logits owns the passes, and the caller the cache. Meant for trying a
// model, not for serving: one sequence, floats, CPU. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "inner/model/model_block.h"
#include "inner/model/model_shape.h"
#include "kernels/attention.h"

namespace isthmus {

class KeyValueCache {
 public:
  /// positions: largest number of tokens of a sequence; the cache has 2 * layers * positions *
  /// key_width floats. THROWS: std::bad_alloc.
  KeyValueCache(const ModelShape& shape, std::int64_t positions);

  /// Number of tokens whose keys and values all layers have.
  [[nodiscard]] std::int64_t seen() const { return seen_; }
  [[nodiscard]] std::int64_t positions() const { return positions_; }
  /// All layers have had `tokens` more tokens.
  void add_seen(std::int64_t tokens) { seen_ += tokens; }

  /// Keeps keys and values of the pass's rows as those of pass.layer; out := attention of these
  /// rows over all keys so far, as kernels::attention_forward computes it. T: double, float or
  /// Bf16; sums are float. REQUIRES: one sequence, and pass.before is seen().
  template <typename T>
  void attend(const Pass& pass, const kernels::AttentionShape& shape,
              const kernels::HeadsView<const T>& q, const kernels::HeadsView<const T>& k,
              const kernels::HeadsView<const T>& v, const kernels::HeadsView<T>& out);

 private:
  std::int64_t positions_;
  std::int64_t width_;  // of a token's keys
  std::int64_t seen_ = 0;
  std::vector<float> keys_, values_;  // (layers, positions, width)
};

/// Attention of a block: over the pass's cache, if it has one.
template <typename T>
void attend(const Pass& pass, const kernels::AttentionShape& shape,
            const kernels::HeadsView<const T>& q, const kernels::HeadsView<const T>& k,
            const kernels::HeadsView<const T>& v, const kernels::HeadsView<T>& out,
            kernels::RealOf<T>* lse) {
  if (pass.cache != nullptr) {
    pass.cache->attend(pass, shape, q, k, v, out);
  } else {
    kernels::attention_forward<T>(pass.team, shape, q, k, v, out, lse);
  }
}

}  // namespace isthmus
