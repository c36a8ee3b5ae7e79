// SPDX-License-Identifier: Apache-2.0
// Weights that are not trained, stored in fp32, or narrow: the layers' matrices in bfloat16 or NF4
// (QLoRA: Dettmers et al., arXiv:2305.14314, section 3), other matrices in bfloat16, vectors in
// fp32. A pass reads narrow weights one layer at a time, decoded into one layer's buffer.
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
  /// `layout`: the whole model's; `layout` and `team`, which decodes, are borrowed. storage:
  /// "fp32", "bf16" or "nf4". Nothing is stored yet. THROWS: ConfigError naming another storage.
  FrozenWeights(const ModelLayout& layout, kernels::ThreadTeam& team, const std::string& storage);

  /// values: (n,) of a tensor from `first` on; copied, rounded to the storage type. REQUIRES: whole
  /// tiles, or up to the tensor's end.
  void store(std::size_t tensor, std::int64_t first, std::span<const float> values);

  /// Values of narrow weights are valid until the next call of any function.
  [[nodiscard]] const float* tensor(std::size_t index) override;
  [[nodiscard]] const float* rows(std::size_t index, std::int64_t first,
                                  std::int64_t count) override;
  [[nodiscard]] bool by_rows() const override { return flat_.empty(); }
  [[nodiscard]] const float* layer(std::int64_t layer) override;

  [[nodiscard]] std::size_t held_bytes() const;
  /// Bytes of such weights, buffers included.
  [[nodiscard]] static std::int64_t bytes(const ModelLayout& layout, const std::string& storage);

 private:
  struct Kept {
    const Codec* codec = nullptr;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] const Codec& codec_of(const TensorInfo& tensor) const;
  /// Decodes values [begin, end) of a tensor to `out`.
  void widen(std::size_t tensor, std::int64_t begin, std::int64_t end, float* out);

  const ModelLayout& layout_;
  kernels::ThreadTeam& team_;
  std::unique_ptr<const Codec> matrices_, others_, vectors_;  // null: all weights are in flat_
  std::vector<float> flat_;                                   // (elements,) in canonical order
  std::vector<Kept> kept_;                                    // one per tensor
  std::vector<float> layer_values_;
  std::int64_t in_buffer_ = -1;  // the layer in the buffer
  std::vector<float> tensor_values_;
};

}  // namespace isthmus
