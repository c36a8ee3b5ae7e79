// SPDX-License-Identifier: Apache-2.0
#include "inner/gpt2.h"

#include <algorithm>
#include <cmath>

#include "inner/arena.h"
#include "inner/model_linear.h"
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

/// Pointers into a layer's weights, or gradients, in the order of gpt2_layer_tensors.
template <typename T>
struct Gpt2Tensors {
  T *ln1_weight, *ln1_bias, *qkv_weight, *qkv_bias, *out_weight, *out_bias;
  T *ln2_weight, *ln2_bias, *up_weight, *up_bias, *down_weight, *down_bias;

  Gpt2Tensors(T* at, const ModelShape& s) {
    const std::int64_t d = s.d_model;
    const std::int64_t a = s.query_width();
    const auto next = [&at](std::int64_t count) {
      T* tensor = at;
      at += count;
      return tensor;
    };
    ln1_weight = next(d);
    ln1_bias = next(d);
    qkv_weight = next(d * 3 * a);
    qkv_bias = next(3 * a);
    out_weight = next(a * d);
    out_bias = next(d);
    ln2_weight = next(d);
    ln2_bias = next(d);
    up_weight = next(d * s.d_ff);
    up_bias = next(s.d_ff);
    down_weight = next(s.d_ff * d);
    down_bias = next(d);
  }
};

/// What the forward pass keeps: 7 d + 2 d_ff values a row, less than half of what an autograd tape
/// of the same layer holds. Recomputing norms and GELU would save 2 d + d_ff of them at about 2 %
/// of the step. Operands of products are stored as T. The backward pass puts its wide gradients
/// where it has read what was kept: that of the up projection over `activated`, that of queries,
/// keys and values from `gelu_slope` on.
template <typename T>
struct Gpt2Memory {
  using Real = RealOf<T>;
  Real *mean1, *rstd1, *lse, *middle, *mean2, *rstd2;
  T *normed1, *qkv, *attended, *normed2, *gelu_slope, *activated;

  Gpt2Memory(Carver& carver, const ModelShape& s, std::int64_t rows) {
    const std::int64_t d = s.d_model;
    const std::int64_t a = s.query_width();
    mean1 = carver.take<Real>(rows);
    rstd1 = carver.take<Real>(rows);
    normed1 = carver.take<T>(rows * d);
    qkv = carver.take<T>(rows * 3 * a);
    attended = carver.take<T>(rows * a);
    lse = carver.take<Real>(rows * s.heads);
    middle = carver.take<Real>(rows * d);
    mean2 = carver.take<Real>(rows);
    rstd2 = carver.take<Real>(rows);
    normed2 = carver.take<T>(rows * d);
    gelu_slope = carver.take<T>(rows * s.d_ff);
    activated = carver.take<T>(rows * std::max(s.d_ff, 3 * a - s.d_ff));
  }
};

template <typename T>
class Gpt2Block final : public Block<RealOf<T>> {
  using Real = RealOf<T>;
  static constexpr bool kBf16 = std::is_same_v<T, kernels::Bf16>;

 public:
  explicit Gpt2Block(const ModelShape& shape) : s_(shape) {}

  [[nodiscard]] std::int64_t memory_bytes(std::int64_t rows) const override {
    Carver carver;
    static_cast<void>(Gpt2Memory<T>(carver, s_, rows));
    return carver.bytes();
  }

  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t) const override { return 0; }

  void forward(const Pass& pass, const Real* weights, const Real* x, void* memory,
               Real* y) const override {
    const Gpt2Tensors<const Real> w(weights, s_);
    Carver carver(memory);
    const Gpt2Memory<T> keep(carver, s_, pass.rows());
    kernels::ThreadTeam& team = pass.team;
    const std::int64_t d = s_.d_model;
    const std::int64_t a = s_.query_width();
    norm(pass, x, w.ln1_weight, w.ln1_bias, keep.normed1, keep.mean1, keep.rstd1);
    kernels::gemm(team, conv1d({pass.rows(), d, 3 * a, kBf16}, keep.normed1, w.qkv_weight,
                               w.qkv_bias, keep.qkv));
    kernels::attention_forward<T>(
        team, attention_shape(pass), heads<const T>(pass, keep.qkv, 3 * a),
        heads<const T>(pass, keep.qkv + a, 3 * a), heads<const T>(pass, keep.qkv + 2 * a, 3 * a),
        heads<T>(pass, keep.attended, a), keep.lse);
    auto project = conv1d({pass.rows(), a, d, kBf16}, keep.attended, w.out_weight,
                          pass.tensor.first() ? w.out_bias : nullptr, keep.middle);
    if (pass.tensor.first()) project.residual = x;
    project.ldr = d;
    kernels::gemm(team, project);
    pass.tensor.sum(keep.middle, pass.rows() * d);

    norm(pass, keep.middle, w.ln2_weight, w.ln2_bias, keep.normed2, keep.mean2, keep.rstd2);
    auto up = conv1d({pass.rows(), d, s_.d_ff, kBf16}, keep.normed2, w.up_weight, w.up_bias,
                     keep.gelu_slope);
    up.gelu_out = keep.activated;
    kernels::gemm(team, up);
    auto down = conv1d({pass.rows(), s_.d_ff, d, kBf16}, keep.activated, w.down_weight,
                       pass.tensor.first() ? w.down_bias : nullptr, y);
    if (pass.tensor.first()) down.residual = keep.middle;
    down.ldr = d;
    kernels::gemm(team, down);
    pass.tensor.sum(y, pass.rows() * d);
  }

  void backward(const Pass& pass, const Real* weights, const Real* x, void* memory, void*,
                void* other, Real* d_stream, Real* gradients) const override {
    const Gpt2Tensors<const Real> w(weights, s_);
    const Gpt2Tensors<Real> g(gradients, s_);
    Carver carver(memory);
    const Gpt2Memory<T> keep(carver, s_, pass.rows());
    kernels::ThreadTeam& team = pass.team;
    const std::int64_t rows = pass.rows();
    const std::int64_t d = s_.d_model;
    const std::int64_t a = s_.query_width();

    const LinearShape down{rows, s_.d_ff, d, kBf16};
    T* d_up = keep.activated;
    T* d_narrow = static_cast<T*>(other);  // of what is d_model wide, one after another
    conv1d_weight_gradient(team, down, keep.activated, d_stream, g.down_weight, g.down_bias);
    auto through_gelu = conv1d_input_gradient(down, d_stream, w.down_weight, d_up);
    through_gelu.factor = keep.gelu_slope;
    kernels::gemm(team, through_gelu);
    const LinearShape up{rows, d, s_.d_ff, kBf16};
    conv1d_weight_gradient(team, up, keep.normed2, d_up, g.up_weight, g.up_bias);
    kernels::gemm(team, conv1d_input_gradient(up, d_up, w.up_weight, d_narrow));
    pass.tensor.sum(d_narrow, rows * d);
    norm_backward(pass, d_narrow, keep.middle, w.ln2_weight, keep.mean2, keep.rstd2, d_stream,
                  g.ln2_weight, g.ln2_bias);

    const LinearShape out{rows, a, d, kBf16};
    T* d_qkv = keep.gelu_slope;
    conv1d_weight_gradient(team, out, keep.attended, d_stream, g.out_weight, g.out_bias);
    kernels::gemm(team, conv1d_input_gradient(out, d_stream, w.out_weight, d_narrow));
    attention_backward(pass, keep, d_narrow, d_qkv);
    const LinearShape qkv{rows, d, 3 * a, kBf16};
    conv1d_weight_gradient(team, qkv, keep.normed1, d_qkv, g.qkv_weight, g.qkv_bias);
    kernels::gemm(team, conv1d_input_gradient(qkv, d_qkv, w.qkv_weight, d_narrow));
    pass.tensor.sum(d_narrow, rows * d);
    norm_backward(pass, d_narrow, x, w.ln1_weight, keep.mean1, keep.rstd1, d_stream, g.ln1_weight,
                  g.ln1_bias);
  }

 private:
  [[nodiscard]] kernels::AttentionShape attention_shape(const Pass& pass) const {
    return {.batch = pass.sequences,
            .seq = pass.length,
            .q_heads = s_.heads,
            .kv_heads = s_.heads,
            .head_dim = s_.head_dim,
            .scale = 1 / std::sqrt(static_cast<double>(s_.head_dim))};
  }

  template <typename Value>
  [[nodiscard]] kernels::HeadsView<Value> heads(const Pass& pass, Value* data,
                                                std::int64_t row) const {
    return kernels::heads_in_rows<Value>(data, pass.length, row, s_.head_dim);
  }

  void norm(const Pass& pass, const Real* x, const Real* weight, const Real* bias, T* y, Real* mean,
            Real* rstd) const {
    kernels::layer_norm_forward<T>(pass.team, {.rows = pass.rows(),
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
    kernels::layer_norm_backward<T>(pass.team, {.rows = pass.rows(),
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
};

}  // namespace

template <typename T>
std::unique_ptr<const Block<kernels::RealOf<T>>> make_gpt2_block(const ModelShape& shape) {
  return std::make_unique<const Gpt2Block<T>>(shape);
}

template std::unique_ptr<const Block<float>> make_gpt2_block<kernels::Bf16>(const ModelShape&);
template std::unique_ptr<const Block<float>> make_gpt2_block<float>(const ModelShape&);
template std::unique_ptr<const Block<double>> make_gpt2_block<double>(const ModelShape&);

}  // namespace isthmus
