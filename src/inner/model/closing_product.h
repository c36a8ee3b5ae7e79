// SPDX-License-Identifier: Apache-2.0
// The row-parallel matrix product that closes a tensor-parallel pair, with its residual: g of
// inner/model/tensor_parallel.h.
#pragma once

#include <cstdint>

#include "inner/model/model_block.h"
#include "kernels/gemm.h"

namespace isthmus {

/// y := x + the sum over the ranks of `product`, a request of all rows without target or residual;
/// its bias is added once. x, y (own rows, product.n); not the same.
template <typename Real>
void close_pair(const Pass& pass, kernels::Gemm<Real> product, const Real* x, Real* y) {
  const TensorGroup& ranks = pass.tensor;
  const std::int64_t columns = product.n;
  product.c = ranks.summand(y);
  if (!ranks.first()) product.bias = nullptr;
  if (ranks.first() && !ranks.split()) {
    product.residual = x;
    product.ldr = columns;
  }
  kernels::gemm(pass.team, product);
  ranks.sum(y, pass.rows(), columns);
  if (!ranks.split()) return;
  constexpr std::int64_t kRowsAtOnce = 64;
  pass.team.for_blocks(pass.own_rows(), kRowsAtOnce, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * columns; i < end * columns; ++i) y[i] += x[i];
  });
}

}  // namespace isthmus
