// SPDX-License-Identifier: Apache-2.0
// Weights that are not trained, kept whole in fp32, or narrow: the layers' matrices in bfloat16 or
// NF4 (QLoRA: Dettmers et al., arXiv:2305.14314, section 3), other matrices in bfloat16, vectors in
// fp32. A pass reads narrow weights a layer at a time, widened into one layer's buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "inner/model/model_layout.h"
#include "inner/model/model_weights.h"
#include "isthmus/codec.h"
#include "kernels/thread_team.h"

namespace isthmus {

class FrozenWeights final : public Weights<float> {
 public:
  /// `layout`: the whole model's, borrowed, as is `team`, which widens. storage: "fp32", "bf16" or
  /// "nf4". Nothing is stored yet. THROWS: ConfigError naming another storage.
  FrozenWeights(const ModelLayout& layout, kernels::ThreadTeam& team, const std::string& storage);

  /// values: (n,) of a tensor; copied, rounded to what it is kept in.
  void store(std::size_t tensor, std::span<const float> values);

  /// Of narrow weights the values are good until the next call of anything.
  [[nodiscard]] const float* tensor(std::size_t index) override;
  [[nodiscard]] const float* rows(std::size_t index, std::int64_t first,
                                  std::int64_t count) override;
  [[nodiscard]] bool by_rows() const override { return flat_.empty(); }
  [[nodiscard]] const float* layer(std::int64_t layer) override;

  [[nodiscard]] std::size_t held_bytes() const;
  /// Bytes that such weights hold, their buffers included.
  [[nodiscard]] static std::int64_t bytes(const ModelLayout& layout, const std::string& storage);

 private:
  struct Kept {
    const Codec* codec = nullptr;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] const Codec& codec_of(const TensorInfo& tensor) const;
  /// Values [begin, end) of a tensor, widened to `out`.
  void widen(std::size_t tensor, std::int64_t begin, std::int64_t end, float* out);

  const ModelLayout& layout_;
  kernels::ThreadTeam& team_;
  std::unique_ptr<const Codec> matrices_, others_, vectors_;  // null: all is in flat_
  std::vector<float> flat_;                                   // (elements,) in canonical order
  std::vector<Kept> kept_;                                    // a tensor each
  std::vector<float> layer_values_;
  std::int64_t in_buffer_ = -1;  // the layer whose values these are
  std::vector<float> tensor_values_;
};

}  // namespace isthmus
