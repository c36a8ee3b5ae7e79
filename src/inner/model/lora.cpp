// SPDX-License-Identifier: Apache-2.0
#include "inner/model/lora.h"

#include <algorithm>
#include <type_traits>

#include "core/base/check.h"
#include "kernels/gemm.h"

namespace isthmus {
namespace {

using kernels::Bf16;

/// Matrix products take bfloat16 operands where the activations are stored so.
template <typename X>
constexpr bool kNarrow = std::is_same_v<X, Bf16>;

template <typename Real>
void multiply(kernels::ThreadTeam& team, std::int64_t n, Real factor, Real* x) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 14;
  team.for_blocks(n, kAtOnce, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) x[i] *= factor;
  });
}

/// y (rows, columns) += left (rows, rank) right, where right is (rank, columns), or (columns, rank)
/// when transposed. A Bf16 y takes each sum through `tile`, since products do not add into one.
template <typename Y, typename Real>
void add_product(kernels::ThreadTeam& team, std::int64_t rows, std::int64_t rank,
                 std::int64_t columns, bool bf16, const Real* left, const Real* right,
                 bool transposed, Real* tile, Y* y, std::int64_t ldy) {
  kernels::Gemm<Real> product{.n = columns,
                              .k = rank,
                              .lda = rank,
                              .b = right,
                              .ldb = transposed ? rank : columns,
                              .b_transposed = transposed,
                              .bf16 = bf16};
  if constexpr (std::is_same_v<Y, Real>) {
    product.m = rows;
    product.a = left;
    product.c = y;
    product.ldc = ldy;
    product.accumulate = true;
    kernels::gemm(team, product);
  } else {
    for (std::int64_t first = 0; first < rows; first += kAdapterTileRows) {
      product.m = std::min(kAdapterTileRows, rows - first);
      product.a = left + first * rank;
      product.c = tile;
      product.ldc = columns;
      kernels::gemm(team, product);
      constexpr std::int64_t kRowsAtOnce = 16;
      team.for_blocks(product.m, kRowsAtOnce, [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const Real* const from = tile + row * columns;
          Y* const to = y + (first + row) * ldy;
          for (std::int64_t i = 0; i < columns; ++i) to[i] = Y(Real(to[i]) + from[i]);
        }
      });
    }
  }
}

/// inner := scale x A^T.
template <typename X, typename Real>
void inner_product(const Pass& pass, const LayerAdapters<Real>& layer, const Adapter<Real>& adapter,
                   const X* x, std::int64_t ldx) {
  kernels::gemm<Real>(pass.team, {.m = pass.rows(),
                                  .n = layer.rank,
                                  .k = adapter.in,
                                  .a = x,
                                  .lda = ldx,
                                  .b = adapter.a,
                                  .ldb = adapter.in,
                                  .b_transposed = true,
                                  .c = layer.inner,
                                  .ldc = layer.rank,
                                  .bf16 = kNarrow<X>});
  multiply(pass.team, pass.rows() * layer.rank, static_cast<Real>(layer.scale), layer.inner);
}

/// Products of one input have a place each.
template <typename Real>
Real* scratch_of(const LayerAdapters<Real>& layer, LoraTarget target) {
  switch (target) {
    case LoraTarget::kKey:
    case LoraTarget::kUp:
      return layer.d_inner[1];
    case LoraTarget::kValue:
      return layer.d_inner[2];
    default:
      return layer.d_inner[0];
  }
}

std::int64_t widest(const ModelShape& s) {
  std::int64_t width = 0;
  for (const LoraProduct& product : lora_products(s)) {
    width = std::max({width, product.in, product.out});
  }
  return width;
}

}  // namespace

template <typename X, typename Y, typename Real>
void add_adapter(const Pass& pass, const LayerAdapters<Real>* layer, LoraTarget target, const X* x,
                 std::int64_t ldx, Y* y, std::int64_t ldy) {
  if (layer == nullptr || (*layer)[target].a == nullptr) return;
  const Adapter<Real>& adapter = (*layer)[target];
  inner_product(pass, *layer, adapter, x, ldx);
  add_product(pass.team, pass.rows(), layer->rank, adapter.out, kNarrow<X>, layer->inner, adapter.b,
              true, layer->tile, y, ldy);
}

template <typename X, typename Dy, typename Real>
void add_adapter_gradients(const Pass& pass, const LayerAdapters<Real>* layer, LoraTarget target,
                           const X* x, std::int64_t ldx, const Dy* dy, std::int64_t lddy) {
  if (layer == nullptr || (*layer)[target].a == nullptr) return;
  const Adapter<Real>& adapter = (*layer)[target];
  ISTHMUS_CHECK(adapter.d_a != nullptr);
  const std::int64_t rows = pass.rows();
  const std::int64_t rank = layer->rank;
  constexpr bool kBf16 = kNarrow<X>;
  inner_product(pass, *layer, adapter, x, ldx);  // again: cheaper than to keep it
  kernels::gemm<Real>(pass.team, {.m = adapter.out,
                                  .n = rank,
                                  .k = rows,
                                  .a = dy,
                                  .lda = lddy,
                                  .a_transposed = true,
                                  .b = layer->inner,
                                  .ldb = rank,
                                  .c = adapter.d_b,
                                  .ldc = rank,
                                  .accumulate = true,
                                  .bf16 = kBf16});
  Real* const d_inner = scratch_of(*layer, target);
  kernels::gemm<Real>(pass.team, {.m = rows,
                                  .n = rank,
                                  .k = adapter.out,
                                  .a = dy,
                                  .lda = lddy,
                                  .b = adapter.b,
                                  .ldb = rank,
                                  .c = d_inner,
                                  .ldc = rank,
                                  .bf16 = kBf16});
  multiply(pass.team, rows * rank, static_cast<Real>(layer->scale), d_inner);
  kernels::gemm<Real>(pass.team, {.m = rank,
                                  .n = adapter.in,
                                  .k = rows,
                                  .a = d_inner,
                                  .lda = rank,
                                  .a_transposed = true,
                                  .b = x,
                                  .ldb = ldx,
                                  .c = adapter.d_a,
                                  .ldc = adapter.in,
                                  .accumulate = true,
                                  .bf16 = kBf16});
}

template <typename Dx, typename Real>
void add_adapter_input_gradient(const Pass& pass, const LayerAdapters<Real>* layer,
                                LoraTarget target, Dx* dx, std::int64_t lddx) {
  if (layer == nullptr || (*layer)[target].a == nullptr) return;
  const Adapter<Real>& adapter = (*layer)[target];
  add_product(pass.team, pass.rows(), layer->rank, adapter.in, kNarrow<Dx>,
              scratch_of(*layer, target), adapter.a, false, layer->tile, dx, lddx);
}

template <typename Real>
std::int64_t Adapters<Real>::scratch_values(const ModelShape& shape, std::int64_t rows) {
  return (1 + 3) * rows * shape.lora.rank + kAdapterTileRows * widest(shape);
}

template <typename Real>
Adapters<Real>::Adapters(const ModelLayout& layout, std::int64_t rows, const Real* values,
                         Real* gradients)
    : layout_(layout),
      values_(values),
      gradients_(gradients),
      memory_(static_cast<std::size_t>(scratch_values(layout.shape(), rows))) {
  const ModelShape& s = layout.shape();
  ISTHMUS_CHECK(s.lora.rank > 0);
  current_.rank = s.lora.rank;
  current_.scale = s.lora.alpha / static_cast<double>(s.lora.rank);
  current_.inner = memory_.data();
  Real* next = current_.inner;
  for (Real*& d_inner : current_.d_inner) d_inner = next += rows * s.lora.rank;
  current_.tile = next + rows * s.lora.rank;
}

template <typename Real>
const LayerAdapters<Real>& Adapters<Real>::layer(std::int64_t layer) {
  const LoraShape& lora = layout_.shape().lora;
  std::size_t tensor = layout_.first_tensor(layer);
  for (std::size_t target = 0; target < kLoraTargets; ++target) {
    if (!lora.targets[target]) continue;
    const TensorInfo& a = layout_.tensors()[tensor];
    const TensorInfo& b = layout_.tensors()[tensor + 1];
    const auto gradient = [&](const TensorInfo& of) {
      return gradients_ == nullptr ? nullptr : gradients_ + of.elements.begin;
    };
    current_.of[target] = {.a = values_ + a.elements.begin,
                           .b = values_ + b.elements.begin,
                           .d_a = gradient(a),
                           .d_b = gradient(b),
                           .in = a.shape[1],
                           .out = b.shape[0]};
    tensor += 2;
  }
  return current_;
}

template class Adapters<float>;
template class Adapters<double>;

template void add_adapter(const Pass&, const LayerAdapters<float>*, LoraTarget, const float*,
                          std::int64_t, float*, std::int64_t);
template void add_adapter(const Pass&, const LayerAdapters<float>*, LoraTarget, const Bf16*,
                          std::int64_t, float*, std::int64_t);
template void add_adapter(const Pass&, const LayerAdapters<float>*, LoraTarget, const Bf16*,
                          std::int64_t, Bf16*, std::int64_t);
template void add_adapter(const Pass&, const LayerAdapters<double>*, LoraTarget, const double*,
                          std::int64_t, double*, std::int64_t);
template void add_adapter_gradients(const Pass&, const LayerAdapters<float>*, LoraTarget,
                                    const float*, std::int64_t, const float*, std::int64_t);
template void add_adapter_gradients(const Pass&, const LayerAdapters<float>*, LoraTarget,
                                    const Bf16*, std::int64_t, const float*, std::int64_t);
template void add_adapter_gradients(const Pass&, const LayerAdapters<float>*, LoraTarget,
                                    const Bf16*, std::int64_t, const Bf16*, std::int64_t);
template void add_adapter_gradients(const Pass&, const LayerAdapters<double>*, LoraTarget,
                                    const double*, std::int64_t, const double*, std::int64_t);
template void add_adapter_input_gradient(const Pass&, const LayerAdapters<float>*, LoraTarget,
                                         float*, std::int64_t);
template void add_adapter_input_gradient(const Pass&, const LayerAdapters<float>*, LoraTarget,
                                         Bf16*, std::int64_t);
template void add_adapter_input_gradient(const Pass&, const LayerAdapters<double>*, LoraTarget,
                                         double*, std::int64_t);

}  // namespace isthmus
