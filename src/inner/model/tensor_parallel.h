// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism inside a layer (Megatron-LM, arXiv:1909.08053, section 3). Matrices come in
// pairs: each rank holds a column share of those that open a pair (queries, keys and values; up and
// gate) and the row share of those that close it. g is an all-reduce of the closing products in the
// forward pass; f is an all-reduce of the gradients of the opening products' input in the backward
// pass. The residual stream is whole on every rank.
//
// Sequence parallelism (Korthikanti et al., arXiv:2205.05198, section 4.2.2): a rank holds its rows
// (tokens) of the residual stream, of norms and of their gradients; matrix products and attention
// work on all rows. f is an all-gather forward and a reduce-scatter backward; g the other way
// round. The products' inputs are gathered again in the backward pass, not kept.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/bf16.h"
#include "transport/collectives/communicator.h"

namespace isthmus {

template <typename T>
[[nodiscard]] constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, float>) return Dtype::kF32;
  if constexpr (std::is_same_v<T, double>) return Dtype::kF64;
  if constexpr (std::is_same_v<T, kernels::Bf16>) return Dtype::kBf16;
  if constexpr (std::is_same_v<T, std::int32_t>) return Dtype::kI32;
}

/// The ranks that share one layer; default: one rank has all of it.
class TensorGroup {
 public:
  TensorGroup() = default;
  /// `ranks` is borrowed; null or of size 1: no group. whole: null, or memory for all rows of a
  /// pass's stream; the rows are then split. Borrowed, and used by one pass at a time.
  explicit TensorGroup(Communicator* ranks, void* whole = nullptr)
      : ranks_(ranks != nullptr && ranks->size() > 1 ? ranks : nullptr),
        whole_(ranks_ != nullptr ? whole : nullptr) {}

  /// True on the first rank, which adds terms that are added once, not once a rank (a residual, the
  /// bias of a closing product).
  [[nodiscard]] bool first() const { return ranks_ == nullptr || ranks_->rank() == 0; }
  [[nodiscard]] bool alone() const { return ranks_ == nullptr; }
  [[nodiscard]] Communicator& ranks() const { return *ranks_; }

  /// True if the stream's rows are split over the ranks; else each rank holds all of them.
  [[nodiscard]] bool split() const { return whole_ != nullptr; }
  /// Number of the stream's rows that the rank holds in a pass over `rows`. Shares are consecutive
  /// in rank order and differ by at most one.
  [[nodiscard]] std::int64_t own_rows(std::int64_t rows) const {
    return split() ? share(rows, ranks_->rank()) : rows;
  }

  /// All rows of a matrix of which each rank holds its own rows: the argument itself without a
  /// split, else valid until the next call of any function here.
  template <typename T>
  [[nodiscard]] const T* all_rows(const T* own, std::int64_t rows, std::int64_t columns) const {
    if (!split()) return own;
    const std::vector<std::int64_t> counts = shares(rows, columns);
    ranks_->all_gather({own, own_rows(rows) * columns, dtype_of<T>()}, counts,
                       {whole_, rows * columns, dtype_of<T>()});
    return static_cast<const T*>(whole_);
  }

  /// Destination of the rank's summand (all rows) of a sum that goes to `own`.
  template <typename T>
  [[nodiscard]] T* summand(T* own) const {
    return split() ? static_cast<T*>(whole_) : own;
  }
  /// own := this rank's rows of the sum of all `summand(own)`, in rank order.
  template <typename T>
  void sum(T* own, std::int64_t rows, std::int64_t columns) const {
    if (alone()) return;
    if (!split()) {
      ranks_->all_reduce({own, rows * columns, dtype_of<T>()}, Reduce::kSum);
      return;
    }
    const std::vector<std::int64_t> counts = shares(rows, columns);
    ranks_->reduce_scatter({whole_, rows * columns, dtype_of<T>()}, counts,
                           {own, own_rows(rows) * columns, dtype_of<T>()}, Reduce::kSum);
  }

 private:
  [[nodiscard]] std::int64_t share(std::int64_t rows, int rank) const {
    return rows * (rank + 1) / ranks_->size() - rows * rank / ranks_->size();
  }
  [[nodiscard]] std::vector<std::int64_t> shares(std::int64_t rows, std::int64_t columns) const {
    std::vector<std::int64_t> counts;
    for (int r = 0; r < ranks_->size(); ++r) counts.push_back(share(rows, r) * columns);
    return counts;
  }

  Communicator* ranks_ = nullptr;
  void* whole_ = nullptr;
};

}  // namespace isthmus
