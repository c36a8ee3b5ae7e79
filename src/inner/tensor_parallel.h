// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism inside a layer (Megatron-LM, arXiv:1909.08053, section 3): each rank holds a
// column share of the matrices that open a pair (queries, keys and values; up and gate) and the row
// share of those that close it. Forward sums the closing products over the ranks (g), backward the
// gradients of the opening products' input (f). The residual stream is whole on every rank.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/bf16.h"
#include "transport/communicator.h"

namespace isthmus {

template <typename T>
[[nodiscard]] constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>) return Dtype::kF32;
  if constexpr (std::is_same_v<T, double>) return Dtype::kF64;
  if constexpr (std::is_same_v<T, kernels::Bf16>) return Dtype::kBf16;
  if constexpr (std::is_same_v<T, std::int32_t>) return Dtype::kI32;
}

/// The ranks that share one layer; none: one rank has all of it.
class TensorGroup {
 public:
  TensorGroup() = default;
  /// `ranks` is borrowed; null or of size 1: no group.
  explicit TensorGroup(Communicator* ranks)
      : ranks_(ranks != nullptr && ranks->size() > 1 ? ranks : nullptr) {}

  /// What is added once, not once a rank (a residual, the bias of a closing product), is added by
  /// the first.
  [[nodiscard]] bool first() const { return ranks_ == nullptr || ranks_->rank() == 0; }
  [[nodiscard]] bool alone() const { return ranks_ == nullptr; }
  [[nodiscard]] Communicator& ranks() const { return *ranks_; }

  /// values := their sum over the ranks, in rank order.
  template <typename T>
  void sum(T* values, std::int64_t count) const {
    if (ranks_ != nullptr) ranks_->all_reduce({values, count, dtype_of<T>()}, Reduce::kSum);
  }

 private:
  Communicator* ranks_ = nullptr;
};

}  // namespace isthmus
