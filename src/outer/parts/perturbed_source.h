// SPDX-License-Identifier: Apache-2.0
// Parameters moved by eps along a random direction, made up as a forward pass asks for them: a
// layer at a time, and rows of the matrices outside the layers, so that a pass needs one layer's
// worth of memory beyond the parameters, which are only read. Nothing is undone, so nothing drifts.
//
// Borrows the parameters and the team. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "isthmus/inner_loop.h"
#include "kernels/aligned_buffer.h"
#include "kernels/spsa.h"

namespace isthmus::outer {

class PerturbedSource final : public ParameterSource {
 public:
  PerturbedSource(std::span<const Parameter> parameters, std::uint64_t run_key,
                  kernels::ThreadTeam& team);

  /// From now on values are w + eps z.
  void set(const kernels::SpsaDirection& z, float eps);

  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  [[nodiscard]] std::span<const float> rows(std::size_t parameter, std::int64_t columns,
                                            std::int64_t first, std::int64_t count) const override;
  [[nodiscard]] bool by_rows() const override { return true; }

  /// Bytes of scratch in use; the largest layer and, where a pass asks for them whole, the tensors
  /// outside the layers.
  [[nodiscard]] std::size_t scratch_bytes() const;

 private:
  static constexpr int kNothing = -2;  // no layer's copy is valid

  void fill_layer(int layer) const;

  std::span<const Parameter> parameters_;
  std::uint64_t run_key_;
  kernels::ThreadTeam& team_;
  kernels::SpsaDirection z_;
  float eps_ = 0;
  std::vector<std::size_t> places_;        // of a layer's tensor in the layer's copy
  std::vector<std::size_t> layer_values_;  // by layer
  // Caches behind const reads: a ParameterSource is asked, it does not change.
  mutable kernels::AlignedBuffer layer_copy_, rows_copy_;
  mutable int copied_layer_ = kNothing;
  mutable std::vector<kernels::AlignedBuffer> outside_;  // by parameter, once asked for whole
  mutable std::vector<bool> outside_valid_;
};

}  // namespace isthmus::outer
