// SPDX-License-Identifier: Apache-2.0
#include "inner/model/llama.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "inner/model/arena.h"
#include "inner/model/closing_product.h"
#include "inner/model/copy_values.h"
#include "inner/model/key_value_cache.h"
#include "inner/model/llama_memory.h"
#include "inner/model/lora.h"
#include "inner/model/model_linear.h"
#include "inner/model/rope.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"

namespace isthmus {

namespace {

/// GPT-NeoX's names: one tensor for query, key and value of each head, biases throughout.
std::vector<LayerTensor> neox_layer_tensors(const ModelShape& s) {
  const std::int64_t d = s.d_model;
  const auto one = TensorInit::kOne;
  const auto zero = TensorInit::kZero;
  const auto normal = TensorInit::kNormal;
  std::vector<LayerTensor> tensors = {
      {"input_layernorm.weight", {d}, one},
      {"input_layernorm.bias", {d}, zero},
      {"attention.query_key_value.weight", {s.qkv_width(), d}, normal},
      {"attention.dense.weight", {d, s.query_width()}, normal}};
  if (s.family.qkv_bias) {
    tensors.push_back({"attention.query_key_value.bias", {s.qkv_width()}, zero});
  }
  if (s.family.out_bias) tensors.push_back({"attention.dense.bias", {d}, zero});
  tensors.push_back({"post_attention_layernorm.weight", {d}, one});
  tensors.push_back({"post_attention_layernorm.bias", {d}, zero});
  tensors.push_back({"mlp.dense_h_to_4h.weight", {s.d_ff, d}, normal});
  tensors.push_back({"mlp.dense_4h_to_h.weight", {d, s.d_ff}, normal});
  tensors.push_back({"mlp.dense_h_to_4h.bias", {s.d_ff}, zero});
  tensors.push_back({"mlp.dense_4h_to_h.bias", {d}, zero});
  return tensors;
}

void add_attention_tensors(const ModelShape& s, std::vector<LayerTensor>& tensors) {
  const std::int64_t d = s.d_model;
  const auto normal = TensorInit::kNormal;
  const auto zero = TensorInit::kZero;
  if (s.family.fused_products) {
    tensors.push_back({"self_attn.qkv_proj.weight", {s.qkv_width(), d}, normal});
  } else {
    tensors.push_back({"self_attn.q_proj.weight", {s.query_width(), d}, normal});
    tensors.push_back({"self_attn.k_proj.weight", {s.key_width(), d}, normal});
    tensors.push_back({"self_attn.v_proj.weight", {s.key_width(), d}, normal});
  }
  tensors.push_back({"self_attn.o_proj.weight", {d, s.query_width()}, normal});
  if (s.family.qkv_bias) {
    tensors.push_back({"self_attn.q_proj.bias", {s.query_width()}, zero});
    tensors.push_back({"self_attn.k_proj.bias", {s.key_width()}, zero});
    tensors.push_back({"self_attn.v_proj.bias", {s.key_width()}, zero});
  }
  if (s.family.out_bias) tensors.push_back({"self_attn.o_proj.bias", {d}, zero});
  if (s.qk_norm) {
    const auto init = norm_init(s);
    tensors.push_back({"self_attn.q_norm.weight", {s.query_width() / s.query_norms()}, init});
    tensors.push_back({"self_attn.k_norm.weight", {s.key_width() / s.key_norms()}, init});
  }
}

void add_feed_forward_tensors(const ModelShape& s, std::vector<LayerTensor>& tensors) {
  const std::int64_t d = s.d_model;
  const auto normal = TensorInit::kNormal;
  const auto zero = TensorInit::kZero;
  if (s.family.fused_products) {
    tensors.push_back({"mlp.gate_up_proj.weight", {2 * s.d_ff, d}, normal});
  } else {
    tensors.push_back({"mlp.gate_proj.weight", {s.d_ff, d}, normal});
    tensors.push_back({"mlp.up_proj.weight", {s.d_ff, d}, normal});
  }
  tensors.push_back({"mlp.down_proj.weight", {d, s.d_ff}, normal});
  if (s.family.mlp_bias) {
    tensors.push_back({"mlp.gate_proj.bias", {s.d_ff}, zero});
    tensors.push_back({"mlp.up_proj.bias", {s.d_ff}, zero});
    tensors.push_back({"mlp.down_proj.bias", {d}, zero});
  }
}

}  // namespace

std::vector<LayerTensor> llama_layer_tensors(const ModelShape& s) {
  if (s.family.interleaved_heads) return neox_layer_tensors(s);
  const auto norm = [&](const char* name) { return LayerTensor{name, {s.d_model}, norm_init(s)}; };
  std::vector<LayerTensor> tensors;
  if (s.norms_before()) tensors.push_back(norm("input_layernorm.weight"));
  add_attention_tensors(s, tensors);
  if (s.norms_after()) tensors.push_back(norm("post_attention_layernorm.weight"));
  if (s.norms_before()) {
    tensors.push_back(norm(s.norms_after() ? "pre_feedforward_layernorm.weight"
                                           : "post_attention_layernorm.weight"));
  }
  add_feed_forward_tensors(s, tensors);
  if (s.norms_after()) tensors.push_back(norm("post_feedforward_layernorm.weight"));
  return tensors;
}

namespace {
using kernels::RealOf;

/// Copies `columns` columns between matrices whose rows are `from_row` and `to_row` apart.
template <typename T>
void copy_columns(const Pass& pass, std::int64_t columns, const T* from, std::int64_t from_row,
                  T* to, std::int64_t to_row) {
  constexpr std::int64_t kRowsAtOnce = 64;
  pass.team.for_blocks(pass.rows(), kRowsAtOnce, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::copy_n(from + row * from_row, columns, to + row * to_row);
    }
  });
}

/// y := x, stored as Y.
template <typename X, typename Y>
void convert_values(kernels::ThreadTeam& team, std::int64_t n, const X* x, Y* y) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 14;
  team.for_blocks(n, kAtOnce, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = Y(RealOf<Y>(x[i]));
  });
}

/// y += x.
template <typename X, typename Real>
void add_values(kernels::ThreadTeam& team, std::int64_t n, const X* x, Real* y) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 14;
  team.for_blocks(n, kAtOnce, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] += Real(x[i]);
  });
}

kernels::Activation activation_of(FeedForward kind) {
  switch (kind) {
    case FeedForward::kSwiGlu:
      return kernels::Activation::kSilu;
    case FeedForward::kGelu:
      return kernels::Activation::kGelu;
    case FeedForward::kGeGluTanh:
    case FeedForward::kGeluTanh:
      break;
  }
  return kernels::Activation::kGeluTanh;
}

template <typename T>
class LlamaBlock final : public Block<RealOf<T>> {
  using Real = RealOf<T>;
  static constexpr bool kBf16 = std::is_same_v<T, kernels::Bf16>;

 public:
  LlamaBlock(const ModelShape& shape, LayerKeeps keeps) : s_(shape), keeps_(keeps) {}

  [[nodiscard]] std::int64_t table_values() const override { return rope_table_values(s_); }
  void use_tables(Real* tables) override {
    tables_ = tables;
    fill_rope_tables<Real>(s_, tables);
  }

  void use_adapters(const LayerAdapters<Real>* adapters) override { adapters_ = adapters; }
  [[nodiscard]] bool has_adapters() const override { return true; }

  [[nodiscard]] std::int64_t memory_bytes(std::int64_t rows, std::int64_t own) const override {
    ArenaLayout arena_layout;
    static_cast<void>(LlamaMemory<T>(arena_layout, s_, rows, own, keeps_));
    return arena_layout.bytes();
  }

  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t rows, BackwardPart part) const override {
    ArenaLayout arena_layout;
    static_cast<void>(LlamaScratch<T>(arena_layout, s_, rows, part, keeps_));
    return arena_layout.bytes();
  }

  void forward(const Pass& pass, const Real* weights, const Real* x, void* memory, void* scratch,
               Real* y) const override {
    const LlamaTensors<const Real> w(weights, s_);
    const LlamaMemory<T> keep = memory_of(pass, memory, scratch, y);  // y is written last
    kernels::ThreadTeam& team = pass.team;
    const std::int64_t rows = pass.rows();
    const std::int64_t d = s_.d_model;
    norm1(pass, w, keep, x);
    auto qkv = linear({rows, d, s_.qkv_width(), kBf16},
                      pass.tensor.all_rows<T>(keep.normed1, rows, d), w.qkv_weight, keep.qkv);
    if (s_.family.qkv_bias) qkv.bias = w.qkv_bias;
    kernels::gemm(team, qkv);
    add_qkv_adapters(pass, keep);
    const Heads h = attention_inputs(pass, keep);
    if (s_.qk_norm) norm_heads(pass, w, keep);
    rotate(pass, s_.heads, h.q);
    rotate(pass, s_.kv_heads, h.k);
    attend<T>(pass, attention_shape(pass), read(h.q), read(h.k), read(h.v),
              in_rows(pass, keep.attended, s_.query_width()), keep.lse);
    auto out = linear({rows, s_.query_width(), d, kBf16}, keep.attended, w.out_weight, {});
    if (s_.family.out_bias) out.bias = w.out_bias;
    close_branch(pass, out, LoraTarget::kOut, keep.attended, x, w.after1_weight, keep.branch1,
                 keep.after1_rstd, keep.middle);

    norm2(pass, w, keep, x);
    auto gate_up =
        linear({rows, d, s_.up_width(), kBf16}, pass.tensor.all_rows<T>(keep.normed2, rows, d),
               w.gate_up_weight, keep.gate_up);
    if (s_.family.mlp_bias) gate_up.bias = w.gate_up_bias;
    kernels::gemm(team, gate_up);
    add_gate_up_adapters(pass, keep);
    kernels::activation_forward<T>(team, act(), gates(rows, keep), keep.activated);
    auto down = linear({rows, s_.d_ff, d, kBf16}, keep.activated, w.down_weight, {});
    if (s_.family.mlp_bias) down.bias = w.down_bias;
    close_branch(pass, down, LoraTarget::kDown, keep.activated, keep.middle, w.after2_weight,
                 keep.branch2, keep.after2_rstd, y);
  }

  void backward(const Pass& pass, BackwardPart part, const Real* weights, const Real* x,
                void* memory, void* scratch, void* other, Real* d_stream, Real* gradients,
                const UpperHalfReady& upper_ready) const override {
    const LlamaTensors<const Real> w(weights, s_);
    const LlamaTensors<Real> g(gradients, s_);
    ArenaLayout arena_layout(scratch);
    const LlamaScratch<T> spare(arena_layout, s_, pass.rows(), part, keeps_);
    const LlamaMemory<T> keep = memory_of(pass, memory, scratch, other);
    T* d_normed = static_cast<T*>(other);
    kernels::ThreadTeam& team = pass.team;
    const std::int64_t rows = pass.rows();
    const std::int64_t d = s_.d_model;

    const bool all = part == BackwardPart::kAll;  // otherwise values that are read later are stored
    const bool trains = all && gradients != nullptr;
    const auto if_trained = [&](Real* gradient) { return gradients ? gradient : nullptr; };
    const bool again = keeps_ == LayerKeeps::kProducts;
    ISTHMUS_CHECK(all || !again, rows);
    T* d_wide = all ? keep.activated : spare.d_wide;
    T* d_qkv = all ? keep.gate_up : spare.d_qkv;

    const LinearShape down{rows, s_.d_ff, d, kBf16};
    if (again) kernels::activation_forward<T>(team, act(), gates(rows, keep), keep.activated);
    const Real* const d_branch2 = branch_gradient(pass, d_stream, w.after2_weight, keep.branch2,
                                                  keep.after2_rstd, if_trained(g.after2_weight));
    const Real* const d_down = pass.tensor.all_rows(d_branch2, rows, d);
    if (trains) down_gradient(pass, keep, d_down, g);
    add_adapter_gradients(pass, adapters_, LoraTarget::kDown, keep.activated, s_.d_ff, d_down, d);
    kernels::gemm(team, linear_input_gradient(down, d_down, w.down_weight, d_wide));
    add_adapter_input_gradient(pass, adapters_, LoraTarget::kDown, d_wide, s_.d_ff);
    // The gradient of gate and up takes their place.
    kernels::activation_backward<T>(team, act(), gates(rows, keep), d_wide, keep.gate_up,
                                    keep.gate_up + s_.d_ff);
    const LinearShape gate_up{rows, d, s_.up_width(), kBf16};
    if (again) norm2(pass, w, keep, x);
    if (trains) gate_up_gradient(pass, keep, g);
    gate_up_adapter_gradients(pass, keep);
    kernels::gemm(team, linear_input_gradient(gate_up, keep.gate_up, w.gate_up_weight,
                                              pass.tensor.summand(d_normed)));
    add_adapter_input_gradient(pass, adapters_, LoraTarget::kGate, d_normed, d);
    add_adapter_input_gradient(pass, adapters_, LoraTarget::kUp, d_normed, d);
    pass.tensor.sum(d_normed, rows, d);
    const bool parallel = s_.family.parallel_residual;
    if (parallel) copy_values(team, pass.own_rows() * d, d_stream, keep.middle);
    norm_backward(pass, d_normed, parallel ? x : keep.middle, w.norm2_weight, keep.mean2,
                  keep.rstd2, d_stream, if_trained(g.norm2_weight), if_trained(g.norm2_bias));
    if (all && upper_ready) upper_ready();

    const LinearShape out{rows, s_.query_width(), d, kBf16};
    const Real* d_branch1 =
        branch_gradient(pass, parallel ? keep.middle : d_stream, w.after1_weight, keep.branch1,
                        keep.after1_rstd, if_trained(g.after1_weight));
    if (!all && d_branch1 == d_stream) {
      copy_values(team, pass.own_rows() * d, d_stream, keep.middle);
    }
    const Real* const d_out = pass.tensor.all_rows(d_branch1, rows, d);
    if (trains) out_gradient(pass, keep, d_out, g);
    add_adapter_gradients(pass, adapters_, LoraTarget::kOut, keep.attended, s_.query_width(), d_out,
                          d);
    kernels::gemm(team, linear_input_gradient(out, d_out, w.out_weight, d_wide));
    add_adapter_input_gradient(pass, adapters_, LoraTarget::kOut, d_wide, s_.query_width());
    attention_backward(pass, w, keep, spare, d_wide, d_qkv, if_trained(g.q_norm_weight),
                       if_trained(g.k_norm_weight));
    const LinearShape qkv{rows, d, s_.qkv_width(), kBf16};
    if (again) norm1(pass, w, keep, x);
    if (trains) qkv_gradient(pass, keep, d_qkv, g);
    qkv_adapter_gradients(pass, keep, d_qkv);
    kernels::gemm(team,
                  linear_input_gradient(qkv, d_qkv, w.qkv_weight, pass.tensor.summand(d_normed)));
    for (const LoraTarget each : {LoraTarget::kQuery, LoraTarget::kKey, LoraTarget::kValue}) {
      add_adapter_input_gradient(pass, adapters_, each, d_normed, d);
    }
    if (!all) copy_values(team, rows * s_.qkv_width(), d_qkv, keep.qkv);
    pass.tensor.sum(d_normed, rows, d);
    norm_backward(pass, d_normed, x, w.norm1_weight, keep.mean1, keep.rstd1, d_stream,
                  if_trained(g.norm1_weight), if_trained(g.norm1_bias));
  }

  void backward_weight(const Pass& pass, void* memory, const Real* d_output,
                       Real* gradients) const override {
    const LlamaTensors<Real> g(gradients, s_);
    const LlamaMemory<T> keep = memory_of(pass, memory, nullptr, nullptr);
    const std::int64_t d = s_.d_model;
    const Real* const d_branch2 = s_.norms_after() ? keep.branch2 : d_output;
    const Real* const d_branch1 = s_.norms_after() ? keep.branch1 : keep.middle;
    down_gradient(pass, keep, pass.tensor.all_rows<Real>(d_branch2, pass.rows(), d), g);
    gate_up_gradient(pass, keep, g);
    out_gradient(pass, keep, pass.tensor.all_rows<Real>(d_branch1, pass.rows(), d), g);
    qkv_gradient(pass, keep, keep.qkv, g);
  }

 private:
  /// Recomputed values lie in `scratch` and `narrow`, (own rows, d_model) Reals.
  [[nodiscard]] LlamaMemory<T> memory_of(const Pass& pass, void* memory, void* scratch,
                                         void* narrow) const {
    ArenaLayout arena_layout(memory);
    LlamaMemory<T> keep(arena_layout, s_, pass.rows(), pass.own_rows(), keeps_);
    if (keeps_ == LayerKeeps::kAll) return keep;
    keep.normed1 = keep.normed2 = static_cast<T*>(narrow);
    keep.activated = static_cast<T*>(scratch);
    return keep;
  }

  /// y := x + the closing `product`, normed if the family has norms after it; `kept` then holds the
  /// values before the norm.
  void close_branch(const Pass& pass, kernels::Gemm<Real> product, LoraTarget target,
                    const T* input, const Real* x, const Real* after_weight, Real* kept, Real* rstd,
                    Real* y) const {
    const std::int64_t in = product.k;
    if (!s_.norms_after()) {
      close_pair<Real>(pass, product, x, y);
      add_adapter(pass, adapters_, target, input, in, y, s_.d_model);
      return;
    }
    product.c = pass.tensor.summand(kept);
    if (!pass.tensor.first()) product.bias = nullptr;
    kernels::gemm(pass.team, product);
    pass.tensor.sum(kept, pass.rows(), s_.d_model);
    add_adapter(pass, adapters_, target, input, in, kept, s_.d_model);
    kernels::rms_norm_forward<Real, Real>(pass.team, {.rows = pass.own_rows(),
                                                      .channels = s_.d_model,
                                                      .eps = s_.norm_eps,
                                                      .x = kept,
                                                      .weight = after_weight,
                                                      .weight_offset = s_.family.norm_weight_offset,
                                                      .y = y,
                                                      .rstd = rstd});
    add_values(pass.team, pass.own_rows() * s_.d_model, x, y);
  }

  /// The gradient of the closing product, from that of the stream it is added to: the same, or with
  /// a norm between in the place of `kept`. RETURNS: its place, (own rows, d).
  const Real* branch_gradient(const Pass& pass, const Real* d_stream, const Real* after_weight,
                              Real* kept, const Real* rstd, Real* d_weight) const {
    if (!s_.norms_after()) return d_stream;
    kernels::rms_norm_backward<Real, Real>(pass.team,
                                           {.rows = pass.own_rows(),
                                            .channels = s_.d_model,
                                            .dy = d_stream,
                                            .s = kept,
                                            .weight = after_weight,
                                            .weight_offset = s_.family.norm_weight_offset,
                                            .rstd = rstd,
                                            .ds = kept,
                                            .d_weight = d_weight});
    return kept;
  }

  // Weights and biases of the four products, from the gradients of their outputs on all rows.
  void down_gradient(const Pass& pass, const LlamaMemory<T>& keep, const Real* dy,
                     const LlamaTensors<Real>& g) const {
    linear_weight_gradient(pass.team, {pass.rows(), s_.d_ff, s_.d_model, kBf16}, keep.activated, dy,
                           g.down_weight);
    if (s_.family.mlp_bias) bias_gradient(pass, s_.d_model, dy, g.down_bias);
  }
  void gate_up_gradient(const Pass& pass, const LlamaMemory<T>& keep,
                        const LlamaTensors<Real>& g) const {
    const T* const normed2 = pass.tensor.all_rows<T>(keep.normed2, pass.rows(), s_.d_model);
    linear_weight_gradient(pass.team, {pass.rows(), s_.d_model, s_.up_width(), kBf16}, normed2,
                           keep.gate_up, g.gate_up_weight);
    if (s_.family.mlp_bias) bias_gradient(pass, s_.up_width(), keep.gate_up, g.gate_up_bias);
  }
  void out_gradient(const Pass& pass, const LlamaMemory<T>& keep, const Real* dy,
                    const LlamaTensors<Real>& g) const {
    linear_weight_gradient(pass.team, {pass.rows(), s_.query_width(), s_.d_model, kBf16},
                           keep.attended, dy, g.out_weight);
    if (s_.family.out_bias) bias_gradient(pass, s_.d_model, dy, g.out_bias);
  }
  void qkv_gradient(const Pass& pass, const LlamaMemory<T>& keep, const T* dy,
                    const LlamaTensors<Real>& g) const {
    const T* const normed1 = pass.tensor.all_rows<T>(keep.normed1, pass.rows(), s_.d_model);
    linear_weight_gradient(pass.team, {pass.rows(), s_.d_model, s_.qkv_width(), kBf16}, normed1, dy,
                           g.qkv_weight);
    if (s_.family.qkv_bias) bias_gradient(pass, s_.qkv_width(), dy, g.qkv_bias);
  }
  template <typename Y>
  void bias_gradient(const Pass& pass, std::int64_t columns, const Y* dy, Real* d_bias) const {
    kernels::add_column_sums<Y>(pass.team, pass.rows(), columns, dy, columns, d_bias);
  }

  // Adapters of the products whose outputs lie side by side.
  void add_qkv_adapters(const Pass& pass, const LlamaMemory<T>& keep) const {
    const std::int64_t row = s_.qkv_width();
    add_adapter(pass, adapters_, LoraTarget::kQuery, keep.normed1, s_.d_model, keep.qkv, row);
    add_adapter(pass, adapters_, LoraTarget::kKey, keep.normed1, s_.d_model,
                keep.qkv + s_.query_width(), row);
    add_adapter(pass, adapters_, LoraTarget::kValue, keep.normed1, s_.d_model,
                keep.qkv + s_.query_width() + s_.key_width(), row);
  }
  void qkv_adapter_gradients(const Pass& pass, const LlamaMemory<T>& keep, const T* d_qkv) const {
    const std::int64_t row = s_.qkv_width();
    add_adapter_gradients(pass, adapters_, LoraTarget::kQuery, keep.normed1, s_.d_model, d_qkv,
                          row);
    add_adapter_gradients(pass, adapters_, LoraTarget::kKey, keep.normed1, s_.d_model,
                          d_qkv + s_.query_width(), row);
    add_adapter_gradients(pass, adapters_, LoraTarget::kValue, keep.normed1, s_.d_model,
                          d_qkv + s_.query_width() + s_.key_width(), row);
  }
  void add_gate_up_adapters(const Pass& pass, const LlamaMemory<T>& keep) const {
    const std::int64_t row = s_.up_width();
    add_adapter(pass, adapters_, LoraTarget::kGate, keep.normed2, s_.d_model, keep.gate_up, row);
    add_adapter(pass, adapters_, LoraTarget::kUp, keep.normed2, s_.d_model, keep.gate_up + s_.d_ff,
                row);
  }
  void gate_up_adapter_gradients(const Pass& pass, const LlamaMemory<T>& keep) const {
    const T* const d_gate_up = keep.gate_up;
    add_adapter_gradients(pass, adapters_, LoraTarget::kGate, keep.normed2, s_.d_model, d_gate_up,
                          s_.up_width());
    add_adapter_gradients(pass, adapters_, LoraTarget::kUp, keep.normed2, s_.d_model,
                          d_gate_up + s_.d_ff, s_.up_width());
  }

  /// Where attention finds queries, keys and values (or puts their gradients).
  struct Heads {
    kernels::HeadsView<T> q, k, v;
  };

  [[nodiscard]] kernels::HeadsView<T> in_rows(const Pass& pass, T* data, std::int64_t row) const {
    return kernels::heads_in_rows<T>(data, pass.length, row, s_.head_dim);
  }
  [[nodiscard]] static kernels::HeadsView<const T> read(const kernels::HeadsView<T>& view) {
    return {view.data, view.batch_stride, view.token_stride, view.head_stride};
  }
  [[nodiscard]] Heads fused_heads(const Pass& pass, T* qkv) const {
    const std::int64_t row = s_.qkv_width();
    if (s_.family.interleaved_heads) {
      const auto part = [&](std::int64_t index) {
        kernels::HeadsView<T> view = in_rows(pass, qkv + index * s_.head_dim, row);
        view.head_stride = 3 * s_.head_dim;
        return view;
      };
      return {part(0), part(1), part(2)};
    }
    return {in_rows(pass, qkv, row), in_rows(pass, qkv + s_.query_width(), row),
            in_rows(pass, qkv + s_.query_width() + s_.key_width(), row)};
  }
  [[nodiscard]] Heads attention_inputs(const Pass& pass, const LlamaMemory<T>& keep) const {
    Heads heads = fused_heads(pass, keep.qkv);
    if (s_.qk_norm) {
      heads.q = in_rows(pass, keep.query, s_.query_width());
      heads.k = in_rows(pass, keep.key, s_.key_width());
    }
    return heads;
  }

  [[nodiscard]] kernels::AttentionShape attention_shape(const Pass& pass) const {
    return {.batch = pass.sequences,
            .seq = pass.length,
            .q_heads = s_.heads,
            .kv_heads = s_.kv_heads,
            .head_dim = s_.head_dim,
            .scale = s_.attention_scale(),
            .document_starts = pass.document_starts,
            .window = s_.window(pass.layer),
            .cap = s_.family.attention_cap};
  }

  [[nodiscard]] kernels::Activation act() const { return activation_of(s_.family.feed_forward); }
  [[nodiscard]] kernels::SwiGlu<T> gates(std::int64_t rows, const LlamaMemory<T>& keep) const {
    return {.rows = rows,
            .columns = s_.d_ff,
            .gate = keep.gate_up,
            .up = s_.gated() ? keep.gate_up + s_.d_ff : nullptr,
            .ld_in = s_.up_width(),
            .ld_out = s_.d_ff};
  }

  // The first rotary_dim values of each head, by the tables of the pass's layer, if it has any.
  void rotate(const Pass& pass, std::int64_t heads, const kernels::HeadsView<T>& x) const {
    if (!s_.rule(pass.layer).rotates) return;
    const Real* const cosine =
        tables_ + rope_cosine_offset(s_, pass.layer) + pass.before * (s_.rotary_dim() / 2);
    kernels::rotary_forward<T>(pass.team, pass.sequences, pass.length, heads, s_.rotary_dim(), x,
                               cosine, cosine + rope_sine_offset(s_), pass.document_starts);
  }
  void rotate_back(const Pass& pass, std::int64_t heads, const kernels::HeadsView<T>& dx) const {
    if (!s_.rule(pass.layer).rotates) return;
    const Real* const cosine = tables_ + rope_cosine_offset(s_, pass.layer);
    kernels::rotary_backward<T>(pass.team, pass.sequences, pass.length, heads, s_.rotary_dim(), dx,
                                cosine, cosine + rope_sine_offset(s_), pass.document_starts);
  }

  void norm1(const Pass& pass, const LlamaTensors<const Real>& w, const LlamaMemory<T>& keep,
             const Real* x) const {
    enter(pass, x, w.norm1_weight, w.norm1_bias, keep.normed1, keep.mean1, keep.rstd1);
  }
  /// x: the stream that the layer began with.
  void norm2(const Pass& pass, const LlamaTensors<const Real>& w, const LlamaMemory<T>& keep,
             const Real* x) const {
    enter(pass, s_.family.parallel_residual ? x : keep.middle, w.norm2_weight, w.norm2_bias,
          keep.normed2, keep.mean2, keep.rstd2);
  }
  /// y := the part of the stream that a half of the layer reads: its norm or, if it has none, the
  /// stream.
  void enter(const Pass& pass, const Real* x, const Real* weight, const Real* bias, T* y,
             Real* mean, Real* rstd) const {
    if (!s_.norms_before()) {
      convert_values(pass.team, pass.own_rows() * s_.d_model, x, y);
    } else if (s_.layer_norm()) {
      kernels::layer_norm_forward<T>(pass.team, {.rows = pass.own_rows(),
                                                 .channels = s_.d_model,
                                                 .eps = s_.norm_eps,
                                                 .x = x,
                                                 .weight = weight,
                                                 .bias = bias,
                                                 .y = y,
                                                 .mean = mean,
                                                 .rstd = rstd});
    } else {
      norm(pass, pass.own_rows(), s_.d_model, x, weight, y, rstd);
    }
  }
  /// Stream: Real for the residual stream, T for heads.
  template <typename Stream>
  void norm(const Pass& pass, std::int64_t rows, std::int64_t channels, const Stream* x,
            const Real* weight, T* y, Real* rstd) const {
    kernels::rms_norm_forward<T, Stream>(pass.team, {.rows = rows,
                                                     .channels = channels,
                                                     .eps = s_.norm_eps,
                                                     .x = x,
                                                     .weight = weight,
                                                     .weight_offset = s_.family.norm_weight_offset,
                                                     .y = y,
                                                     .rstd = rstd});
  }

  /// query, key := RMSNorm per head of the queries and keys in `qkv`.
  void norm_heads(const Pass& pass, const LlamaTensors<const Real>& w,
                  const LlamaMemory<T>& keep) const {
    const std::int64_t row = s_.qkv_width();
    copy_columns<T>(pass, s_.query_width(), keep.qkv, row, keep.query, s_.query_width());
    copy_columns<T>(pass, s_.key_width(), keep.qkv + s_.query_width(), row, keep.key,
                    s_.key_width());
    norm(pass, pass.rows() * s_.query_norms(), s_.query_width() / s_.query_norms(), keep.query,
         w.q_norm_weight, keep.query, keep.q_rstd);
    norm(pass, pass.rows() * s_.key_norms(), s_.key_width() / s_.key_norms(), keep.key,
         w.k_norm_weight, keep.key, keep.k_rstd);
  }

  /// d_stream += gradient of `dy` through the norm of s, or `dy` itself where there is none.
  void norm_backward(const Pass& pass, const T* dy, const Real* s, const Real* weight,
                     const Real* mean, const Real* rstd, Real* d_stream, Real* d_weight,
                     Real* d_bias) const {
    if (!s_.norms_before()) {
      add_values(pass.team, pass.own_rows() * s_.d_model, dy, d_stream);
      return;
    }
    kernels::NormBackward<T> norm{.rows = pass.own_rows(),
                                  .channels = s_.d_model,
                                  .dy = dy,
                                  .s = s,
                                  .weight = weight,
                                  .weight_offset = s_.family.norm_weight_offset,
                                  .rstd = rstd,
                                  .d_sum = d_stream,
                                  .ds = d_stream,
                                  .d_weight = d_weight};
    if (s_.layer_norm()) {
      norm.mean = mean;
      norm.d_bias = d_bias;
      kernels::layer_norm_backward<T>(pass.team, norm);
    } else {
      kernels::rms_norm_backward<T>(pass.team, norm);
    }
  }

  /// Gradient of one group of heads through its norms, `norms` a token: d (rows, width) on entry
  /// that of the normed heads, afterwards that of the columns of `qkv` at `from`, put into `d_qkv`
  /// there.
  void norm_heads_backward(const Pass& pass, std::int64_t norms, std::int64_t width,
                           std::int64_t from, const LlamaMemory<T>& keep,
                           const LlamaScratch<T>& spare, const Real* weight, const Real* rstd, T* d,
                           T* d_qkv, Real* d_weight) const {
    copy_columns<T>(pass, width, keep.qkv + from, s_.qkv_width(), spare.raw, width);
    kernels::rms_norm_backward<T, T>(pass.team, {.rows = pass.rows() * norms,
                                                 .channels = width / norms,
                                                 .dy = d,
                                                 .s = spare.raw,
                                                 .weight = weight,
                                                 .weight_offset = s_.family.norm_weight_offset,
                                                 .rstd = rstd,
                                                 .ds = d,
                                                 .d_weight = d_weight});
    copy_columns<T>(pass, width, d, width, d_qkv + from, s_.qkv_width());
  }

  /// d_qkv := gradient of `qkv`, from that of the attended values.
  void attention_backward(const Pass& pass, const LlamaTensors<const Real>& w,
                          const LlamaMemory<T>& keep, const LlamaScratch<T>& spare, T* d_attended,
                          T* d_qkv, Real* d_q_norm, Real* d_k_norm) const {
    const Heads in = attention_inputs(pass, keep);
    Heads d = fused_heads(pass, d_qkv);
    if (s_.qk_norm) {
      d.q = in_rows(pass, spare.d_query, s_.query_width());
      d.k = in_rows(pass, spare.d_key, s_.key_width());
    }
    kernels::attention_backward<T>(pass.team, attention_shape(pass),
                                   {.q = read(in.q),
                                    .k = read(in.k),
                                    .v = read(in.v),
                                    .out = read(in_rows(pass, keep.attended, s_.query_width())),
                                    .d_out = read(in_rows(pass, d_attended, s_.query_width())),
                                    .lse = keep.lse,
                                    .d_q = d.q,
                                    .d_k = d.k,
                                    .d_v = d.v});
    rotate_back(pass, s_.heads, d.q);
    rotate_back(pass, s_.kv_heads, d.k);
    if (!s_.qk_norm) return;
    norm_heads_backward(pass, s_.query_norms(), s_.query_width(), 0, keep, spare, w.q_norm_weight,
                        keep.q_rstd, spare.d_query, d_qkv, d_q_norm);
    norm_heads_backward(pass, s_.key_norms(), s_.key_width(), s_.query_width(), keep, spare,
                        w.k_norm_weight, keep.k_rstd, spare.d_key, d_qkv, d_k_norm);
  }

  ModelShape s_;
  LayerKeeps keeps_;
  const LayerAdapters<Real>* adapters_ = nullptr;
  const Real* tables_ = nullptr;  // fill_rope_tables
};

}  // namespace

template <typename T>
std::unique_ptr<Block<kernels::RealOf<T>>> make_llama_block(const ModelShape& shape,
                                                            LayerKeeps keeps) {
  return std::make_unique<LlamaBlock<T>>(shape, keeps);
}

template std::unique_ptr<Block<float>> make_llama_block<kernels::Bf16>(const ModelShape&,
                                                                       LayerKeeps);
template std::unique_ptr<Block<float>> make_llama_block<float>(const ModelShape&, LayerKeeps);
template std::unique_ptr<Block<double>> make_llama_block<double>(const ModelShape&, LayerKeeps);

}  // namespace isthmus
