// SPDX-License-Identifier: Apache-2.0
// Parameters perturbed by eps along a random direction, generated on request of a forward pass: one
// layer at a time, and rows of the matrices outside the layers. A pass thus needs memory for only
// one layer beyond the parameters, which are only read. No perturbation is undone, so there is no
// drift.
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

  /// Sets the values to w + eps z.
  void set(const kernels::SpsaDirection& z, float eps);

  [[nodiscard]] std::span<const float> values(std::size_t parameter) const override;
  [[nodiscard]] std::span<const float> rows(std::size_t parameter, std::int64_t columns,
                                            std::int64_t first, std::int64_t count) const override;
  [[nodiscard]] bool by_rows() const override { return true; }

  /// Bytes of scratch in use: the largest layer and, if a pass requests them whole, the tensors
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
  // Caches filled by const reads: a ParameterSource is read through a const interface.
  mutable kernels::AlignedBuffer layer_copy_, rows_copy_;
  mutable int copied_layer_ = kNothing;
  mutable std::vector<kernels::AlignedBuffer> outside_;  // by parameter, once asked for whole
  mutable std::vector<bool> outside_valid_;
};

}  // namespace isthmus::outer
