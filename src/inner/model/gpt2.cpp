// SPDX-License-Identifier: Apache-2.0
#include "inner/model/gpt2.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "inner/model/arena.h"
#include "inner/model/closing_product.h"
#include "inner/model/copy_values.h"
#include "inner/model/gpt2_tensors.h"
#include "inner/model/key_value_cache.h"
#include "inner/model/model_linear.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/norm.h"

namespace isthmus {

std::vector<LayerTensor> gpt2_layer_tensors(const ModelShape& s) {
  const std::int64_t d = s.d_model;
  const std::int64_t a = s.query_width();  // d, or a tensor-parallel rank's share of it
  const auto one = TensorInit::kOne;
  const auto zero = TensorInit::kZero;
  return {
      {"ln_1.weight", {d}, one},
      {"ln_1.bias", {d}, zero},
      {"attn.c_attn.weight", {d, 3 * a}, TensorInit::kNormal},
      {"attn.c_attn.bias", {3 * a}, zero},
      {"attn.c_proj.weight", {a, d}, TensorInit::kResidual},
      {"attn.c_proj.bias", {d}, zero},
      {"ln_2.weight", {d}, one},
      {"ln_2.bias", {d}, zero},
      {"mlp.c_fc.weight", {d, s.d_ff}, TensorInit::kNormal},
      {"mlp.c_fc.bias", {s.d_ff}, zero},
      {"mlp.c_proj.weight", {s.d_ff, d}, TensorInit::kResidual},
      {"mlp.c_proj.bias", {d}, zero},
  };
}

namespace {
using kernels::RealOf;

template <typename T>
constexpr bool kStoresBf16 = std::is_same_v<T, kernels::Bf16>;

/// GELU from a pre-activation that was rounded has other bits than from the sum before it.
template <typename T>
constexpr bool makes_gelu_again(LayerKeeps keeps) {
  return keeps == LayerKeeps::kProducts && !kStoresBf16<T>;
}

/// The activations that the forward pass keeps: 7 d + 2 d_ff values a row, less than half of an
/// autograd tape of the same layer; 2 d fewer if norms are recomputed, d_ff fewer if GELU is, and
/// then `gelu_slope` holds the pre-activation between the passes. Operands of products are stored
/// as T. The backward pass writes its wide gradients over kept activations that it has read: the
/// gradient of the up projection over `activated`, those of queries, keys and values from
/// `gelu_slope` on (in scratch if GELU is recomputed). In a split backward pass these lie over
/// `gelu_slope` and `qkv`, and the gradient of the attention's output over `middle`.
template <typename T>
struct Gpt2Memory {
  using Real = RealOf<T>;
  Real *mean1, *rstd1, *lse, *middle, *mean2, *rstd2;
  T *normed1, *qkv, *attended, *normed2, *gelu_slope, *activated;

  /// own: rows of norms and of the stream.
  Gpt2Memory(ArenaLayout& arena_layout, const ModelShape& s, std::int64_t rows, std::int64_t own,
             LayerKeeps keeps) {
    const std::int64_t d = s.d_model;
    const std::int64_t a = s.query_width();
    const std::int64_t normed = keeps == LayerKeeps::kAll ? own * d : 0;
    const std::int64_t activations = makes_gelu_again<T>(keeps) ? 0 : rows;
    mean1 = arena_layout.take<Real>(own);
    rstd1 = arena_layout.take<Real>(own);
    normed1 = arena_layout.take<T>(normed);
    qkv = arena_layout.take<T>(rows * 3 * a);
    attended = arena_layout.take<T>(rows * a);
    lse = arena_layout.take<Real>(rows * s.heads);
    middle = arena_layout.take<Real>(own * d);
    mean2 = arena_layout.take<Real>(own);
    rstd2 = arena_layout.take<Real>(own);
    normed2 = arena_layout.take<T>(normed);
    gelu_slope = arena_layout.take<T>(rows * s.d_ff);
    activated = arena_layout.take<T>(activations * std::max(s.d_ff, 3 * a - s.d_ff));
  }
};

template <typename T>
class Gpt2Block final : public Block<RealOf<T>> {
  using Real = RealOf<T>;
  static constexpr bool kBf16 = kStoresBf16<T>;

 public:
  Gpt2Block(const ModelShape& shape, LayerKeeps keeps) : s_(shape), keeps_(keeps) {}

  [[nodiscard]] std::int64_t memory_bytes(std::int64_t rows, std::int64_t own) const override {
    ArenaLayout arena_layout;
    static_cast<void>(Gpt2Memory<T>(arena_layout, s_, rows, own, keeps_));
    return arena_layout.bytes();
  }

  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t rows, BackwardPart part) const override {
    if (part == BackwardPart::kAll && !makes_gelu_again<T>(keeps_)) return 0;
    ArenaLayout arena_layout;
    arena_layout.take<T>(rows * std::max(s_.d_ff, 3 * s_.query_width()));
    return arena_layout.bytes();
  }

  void forward(const Pass& pass, const Real* weights, const Real* x, void* memory, void* scratch,
               Real* y) const override {
    const Gpt2Tensors<const Real> w(weights, s_);
    const Gpt2Memory<T> keep = memory_of(pass, memory, scratch, y);  // y is written last
    kernels::ThreadTeam& team = pass.team;
    const std::int64_t d = s_.d_model;
    const std::int64_t a = s_.query_width();
    norm1(pass, w, keep, x);
    const T* const normed1 = pass.tensor.all_rows(keep.normed1, pass.rows(), d);
    kernels::gemm(
        team, conv1d({pass.rows(), d, 3 * a, kBf16}, normed1, w.qkv_weight, w.qkv_bias, keep.qkv));
    attend<T>(pass, attention_shape(pass), heads<const T>(pass, keep.qkv, 3 * a),
              heads<const T>(pass, keep.qkv + a, 3 * a),
              heads<const T>(pass, keep.qkv + 2 * a, 3 * a), heads<T>(pass, keep.attended, a),
              keep.lse);
    close_pair<Real>(
        pass, conv1d({pass.rows(), a, d, kBf16}, keep.attended, w.out_weight, w.out_bias, {}), x,
        keep.middle);

    norm2(pass, w, keep);
    const T* const normed2 = pass.tensor.all_rows(keep.normed2, pass.rows(), d);
    auto up =
        conv1d({pass.rows(), d, s_.d_ff, kBf16}, normed2, w.up_weight, w.up_bias, keep.gelu_slope);
    if (!makes_gelu_again<T>(keeps_)) up.gelu_out = keep.activated;
    kernels::gemm(team, up);
    if constexpr (!kBf16) {
      if (makes_gelu_again<T>(keeps_)) {
        kernels::gelu_values<T>(team, pass.rows() * s_.d_ff, keep.gelu_slope, keep.activated,
                                nullptr);
      }
    }
    close_pair<Real>(
        pass,
        conv1d({pass.rows(), s_.d_ff, d, kBf16}, keep.activated, w.down_weight, w.down_bias, {}),
        keep.middle, y);
  }

  void backward(const Pass& pass, BackwardPart part, const Real* weights, const Real* x,
                void* memory, void* scratch, void* other, Real* d_stream, Real* gradients,
                const UpperHalfReady& upper_ready) const override {
    const Gpt2Tensors<const Real> w(weights, s_);
    const Gpt2Tensors<Real> g(gradients, s_);
    const Gpt2Memory<T> keep = memory_of(pass, memory, scratch, other);
    kernels::ThreadTeam& team = pass.team;
    const std::int64_t rows = pass.rows();
    const std::int64_t d = s_.d_model;
    const std::int64_t a = s_.query_width();

    const bool all = part == BackwardPart::kAll;  // otherwise values that are read later are stored
    const bool again = keeps_ == LayerKeeps::kProducts;
    ISTHMUS_CHECK(all || !again, rows);

    const LinearShape down{rows, s_.d_ff, d, kBf16};
    T* d_up = all ? keep.activated : static_cast<T*>(scratch);
    // Of narrow values, one after another: the rank's rows of d_model columns, or all rows of the
    // columns of its heads, which are as many values if the ranks hold equally many rows.
    T* d_narrow = static_cast<T*>(other);
    if constexpr (!kBf16) {
      if (again) {
        kernels::gelu_values<T>(team, rows * s_.d_ff, keep.gelu_slope, keep.activated,
                                keep.gelu_slope);
      }
    }
    const Real* const d_down = pass.tensor.all_rows(d_stream, rows, d);
    if (all) down_gradient(pass, keep, d_down, g);
    auto through_gelu = conv1d_input_gradient(down, d_down, w.down_weight, d_up);
    through_gelu.factor = keep.gelu_slope;
    kernels::gemm(team, through_gelu);
    const LinearShape up{rows, d, s_.d_ff, kBf16};
    if (again) norm2(pass, w, keep);
    if (all) up_gradient(pass, keep, d_up, g);
    kernels::gemm(team,
                  conv1d_input_gradient(up, d_up, w.up_weight, pass.tensor.summand(d_narrow)));
    if (!all) copy_values(team, rows * s_.d_ff, d_up, keep.gelu_slope);
    pass.tensor.sum(d_narrow, rows, d);
    norm_backward(pass, d_narrow, keep.middle, w.ln2_weight, keep.mean2, keep.rstd2, d_stream,
                  g.ln2_weight, g.ln2_bias);
    if (all && upper_ready) upper_ready();

    const LinearShape out{rows, a, d, kBf16};
    T* d_qkv = all && !makes_gelu_again<T>(keeps_) ? keep.gelu_slope : static_cast<T*>(scratch);
    if (!all) copy_values(team, pass.own_rows() * d, d_stream, keep.middle);
    const Real* const d_out = pass.tensor.all_rows(d_stream, rows, d);
    if (all) out_gradient(pass, keep, d_out, g);
    kernels::gemm(team, conv1d_input_gradient(out, d_out, w.out_weight, d_narrow));
    attention_backward(pass, keep, d_narrow, d_qkv);
    const LinearShape qkv{rows, d, 3 * a, kBf16};
    if (again) norm1(pass, w, keep, x);
    if (all) qkv_gradient(pass, keep, d_qkv, g);
    kernels::gemm(team,
                  conv1d_input_gradient(qkv, d_qkv, w.qkv_weight, pass.tensor.summand(d_narrow)));
    if (!all) copy_values(team, rows * 3 * a, d_qkv, keep.qkv);
    pass.tensor.sum(d_narrow, rows, d);
    norm_backward(pass, d_narrow, x, w.ln1_weight, keep.mean1, keep.rstd1, d_stream, g.ln1_weight,
                  g.ln1_bias);
  }

  void backward_weight(const Pass& pass, void* memory, const Real* d_output,
                       Real* gradients) const override {
    const Gpt2Tensors<Real> g(gradients, s_);
    const Gpt2Memory<T> keep = memory_of(pass, memory, nullptr, nullptr);
    const std::int64_t d = s_.d_model;
    down_gradient(pass, keep, pass.tensor.all_rows(d_output, pass.rows(), d), g);
    up_gradient(pass, keep, keep.gelu_slope, g);
    out_gradient(pass, keep, pass.tensor.all_rows<Real>(keep.middle, pass.rows(), d), g);
    qkv_gradient(pass, keep, keep.qkv, g);
  }

 private:
  /// Recomputed values lie in `scratch` and `narrow`, (own rows, d_model) Reals.
  [[nodiscard]] Gpt2Memory<T> memory_of(const Pass& pass, void* memory, void* scratch,
                                        void* narrow) const {
    ArenaLayout arena_layout(memory);
    Gpt2Memory<T> keep(arena_layout, s_, pass.rows(), pass.own_rows(), keeps_);
    if (keeps_ == LayerKeeps::kProducts) keep.normed1 = keep.normed2 = static_cast<T*>(narrow);
    if (makes_gelu_again<T>(keeps_)) keep.activated = static_cast<T*>(scratch);
    return keep;
  }

  // Weights and biases of the four products, from the gradients of their outputs on all rows.
  void down_gradient(const Pass& pass, const Gpt2Memory<T>& keep, const Real* dy,
                     const Gpt2Tensors<Real>& g) const {
    conv1d_weight_gradient(pass.team, {pass.rows(), s_.d_ff, s_.d_model, kBf16}, keep.activated, dy,
                           g.down_weight, g.down_bias);
  }
  void up_gradient(const Pass& pass, const Gpt2Memory<T>& keep, const T* dy,
                   const Gpt2Tensors<Real>& g) const {
    const T* const normed2 = pass.tensor.all_rows(keep.normed2, pass.rows(), s_.d_model);
    conv1d_weight_gradient(pass.team, {pass.rows(), s_.d_model, s_.d_ff, kBf16}, normed2, dy,
                           g.up_weight, g.up_bias);
  }
  void out_gradient(const Pass& pass, const Gpt2Memory<T>& keep, const Real* dy,
                    const Gpt2Tensors<Real>& g) const {
    conv1d_weight_gradient(pass.team, {pass.rows(), s_.query_width(), s_.d_model, kBf16},
                           keep.attended, dy, g.out_weight, g.out_bias);
  }
  void qkv_gradient(const Pass& pass, const Gpt2Memory<T>& keep, const T* dy,
                    const Gpt2Tensors<Real>& g) const {
    const T* const normed1 = pass.tensor.all_rows(keep.normed1, pass.rows(), s_.d_model);
    conv1d_weight_gradient(pass.team, {pass.rows(), s_.d_model, 3 * s_.query_width(), kBf16},
                           normed1, dy, g.qkv_weight, g.qkv_bias);
  }

  [[nodiscard]] kernels::AttentionShape attention_shape(const Pass& pass) const {
    return {.batch = pass.sequences,
            .seq = pass.length,
            .q_heads = s_.heads,
            .kv_heads = s_.heads,
            .head_dim = s_.head_dim,
            .scale = 1 / std::sqrt(static_cast<double>(s_.head_dim)),
            .document_starts = pass.document_starts};
  }

  template <typename Value>
  [[nodiscard]] kernels::HeadsView<Value> heads(const Pass& pass, Value* data,
                                                std::int64_t row) const {
    return kernels::heads_in_rows<Value>(data, pass.length, row, s_.head_dim);
  }

  void norm1(const Pass& pass, const Gpt2Tensors<const Real>& w, const Gpt2Memory<T>& keep,
             const Real* x) const {
    norm(pass, x, w.ln1_weight, w.ln1_bias, keep.normed1, keep.mean1, keep.rstd1);
  }
  void norm2(const Pass& pass, const Gpt2Tensors<const Real>& w, const Gpt2Memory<T>& keep) const {
    norm(pass, keep.middle, w.ln2_weight, w.ln2_bias, keep.normed2, keep.mean2, keep.rstd2);
  }
  void norm(const Pass& pass, const Real* x, const Real* weight, const Real* bias, T* y, Real* mean,
            Real* rstd) const {
    kernels::layer_norm_forward<T>(pass.team, {.rows = pass.own_rows(),
                                               .channels = s_.d_model,
                                               .eps = s_.norm_eps,
                                               .x = x,
                                               .weight = weight,
                                               .bias = bias,
                                               .y = y,
                                               .mean = mean,
                                               .rstd = rstd});
  }

  /// d_stream += gradient of `dy` through the norm of s.
  void norm_backward(const Pass& pass, const T* dy, const Real* s, const Real* weight,
                     const Real* mean, const Real* rstd, Real* d_stream, Real* d_weight,
                     Real* d_bias) const {
    kernels::layer_norm_backward<T>(pass.team, {.rows = pass.own_rows(),
                                                .channels = s_.d_model,
                                                .dy = dy,
                                                .s = s,
                                                .weight = weight,
                                                .mean = mean,
                                                .rstd = rstd,
                                                .d_sum = d_stream,
                                                .ds = d_stream,
                                                .d_weight = d_weight,
                                                .d_bias = d_bias});
  }

  void attention_backward(const Pass& pass, const Gpt2Memory<T>& keep, const T* d_out,
                          T* d_qkv) const {
    const std::int64_t a = s_.query_width();
    kernels::attention_backward<T>(pass.team, attention_shape(pass),
                                   {.q = heads<const T>(pass, keep.qkv, 3 * a),
                                    .k = heads<const T>(pass, keep.qkv + a, 3 * a),
                                    .v = heads<const T>(pass, keep.qkv + 2 * a, 3 * a),
                                    .out = heads<const T>(pass, keep.attended, a),
                                    .d_out = heads<const T>(pass, d_out, a),
                                    .lse = keep.lse,
                                    .d_q = heads<T>(pass, d_qkv, 3 * a),
                                    .d_k = heads<T>(pass, d_qkv + a, 3 * a),
                                    .d_v = heads<T>(pass, d_qkv + 2 * a, 3 * a)});
  }

  ModelShape s_;
  LayerKeeps keeps_;
};

}  // namespace

template <typename T>
std::unique_ptr<Block<kernels::RealOf<T>>> make_gpt2_block(const ModelShape& shape,
                                                           LayerKeeps keeps) {
  return std::make_unique<Gpt2Block<T>>(shape, keeps);
}

template std::unique_ptr<Block<float>> make_gpt2_block<kernels::Bf16>(const ModelShape&,
                                                                      LayerKeeps);
template std::unique_ptr<Block<float>> make_gpt2_block<float>(const ModelShape&, LayerKeeps);
template std::unique_ptr<Block<double>> make_gpt2_block<double>(const ModelShape&, LayerKeeps);

}  // namespace isthmus
