// SPDX-License-Identifier: Apache-2.0
#include "inner/model/llama.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "inner/model/arena.h"
#include "inner/model/closing_product.h"
#include "inner/model/copy_values.h"
#include "inner/model/llama_memory.h"
#include "inner/model/model_linear.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"

namespace isthmus {

std::vector<LayerTensor> llama_layer_tensors(const ModelShape& s) {
  const std::int64_t d = s.d_model;
  const auto normal = TensorInit::kNormal;
  std::vector<LayerTensor> tensors = {
      {"input_layernorm.weight", {d}, TensorInit::kOne},
      {"self_attn.q_proj.weight", {s.query_width(), d}, normal},
      {"self_attn.k_proj.weight", {s.key_width(), d}, normal},
      {"self_attn.v_proj.weight", {s.key_width(), d}, normal},
      {"self_attn.o_proj.weight", {d, s.query_width()}, normal},
  };
  if (s.qk_norm) {
    tensors.push_back({"self_attn.q_norm.weight", {s.head_dim}, TensorInit::kOne});
    tensors.push_back({"self_attn.k_norm.weight", {s.head_dim}, TensorInit::kOne});
  }
  tensors.push_back({"post_attention_layernorm.weight", {d}, TensorInit::kOne});
  tensors.push_back({"mlp.gate_proj.weight", {s.d_ff, d}, normal});
  tensors.push_back({"mlp.up_proj.weight", {s.d_ff, d}, normal});
  tensors.push_back({"mlp.down_proj.weight", {d, s.d_ff}, normal});
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

template <typename T>
class LlamaBlock final : public Block<RealOf<T>> {
  using Real = RealOf<T>;
  static constexpr bool kBf16 = std::is_same_v<T, kernels::Bf16>;

 public:
  LlamaBlock(const ModelShape& shape, LayerKeeps keeps) : s_(shape), keeps_(keeps) {}

  [[nodiscard]] std::int64_t table_values() const override { return s_.longest * s_.head_dim; }
  void use_tables(Real* tables) override {
    cosine_ = tables;
    sine_ = tables + table_values() / 2;
    kernels::rotary_table<Real>(s_.longest, s_.head_dim, s_.rope_theta, tables,
                                tables + table_values() / 2);
  }

  [[nodiscard]] std::int64_t memory_bytes(std::int64_t rows, std::int64_t own) const override {
    Carver carver;
    static_cast<void>(LlamaMemory<T>(carver, s_, rows, own, keeps_));
    return carver.bytes();
  }

  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t rows, BackwardPart part) const override {
    Carver carver;
    static_cast<void>(LlamaScratch<T>(carver, s_, rows, part, keeps_));
    return carver.bytes();
  }

  void forward(const Pass& pass, const Real* weights, const Real* x, void* memory, void* scratch,
               Real* y) const override {
    const LlamaTensors<const Real> w(weights, s_);
    const LlamaMemory<T> keep = memory_of(pass, memory, scratch, y);  // y is written last
    kernels::ThreadTeam& team = pass.team;
    const std::int64_t rows = pass.rows();
    const std::int64_t d = s_.d_model;
    norm1(pass, w, keep, x);
    kernels::gemm(team,
                  linear({rows, d, s_.qkv_width(), kBf16},
                         pass.tensor.all_rows<T>(keep.normed1, rows, d), w.qkv_weight, keep.qkv));
    const Heads h = attention_inputs(pass, keep);
    if (s_.qk_norm) norm_heads(pass, w, keep);
    rotate(pass, s_.heads, h.q);
    rotate(pass, s_.kv_heads, h.k);
    kernels::attention_forward<T>(team, attention_shape(pass), read(h.q), read(h.k), read(h.v),
                                  in_rows(pass, keep.attended, s_.query_width()), keep.lse);
    close_pair<Real>(pass,
                     linear({rows, s_.query_width(), d, kBf16}, keep.attended, w.out_weight, {}), x,
                     keep.middle);

    norm2(pass, w, keep);
    kernels::gemm(
        team, linear({rows, d, 2 * s_.d_ff, kBf16}, pass.tensor.all_rows<T>(keep.normed2, rows, d),
                     w.gate_up_weight, keep.gate_up));
    kernels::swiglu_forward<T>(team, swiglu(rows, keep), keep.activated);
    close_pair<Real>(pass, linear({rows, s_.d_ff, d, kBf16}, keep.activated, w.down_weight, {}),
                     keep.middle, y);
  }

  void backward(const Pass& pass, BackwardPart part, const Real* weights, const Real* x,
                void* memory, void* scratch, void* other, Real* d_stream, Real* gradients,
                const UpperHalfReady& upper_ready) const override {
    const LlamaTensors<const Real> w(weights, s_);
    const LlamaTensors<Real> g(gradients, s_);
    Carver carver(scratch);
    const LlamaScratch<T> spare(carver, s_, pass.rows(), part, keeps_);
    const LlamaMemory<T> keep = memory_of(pass, memory, scratch, other);
    T* d_normed = static_cast<T*>(other);
    kernels::ThreadTeam& team = pass.team;
    const std::int64_t rows = pass.rows();
    const std::int64_t d = s_.d_model;

    const bool all = part == BackwardPart::kAll;  // else what is read later is put away
    const bool again = keeps_ == LayerKeeps::kProducts;
    ISTHMUS_CHECK(all || !again, rows);
    T* d_wide = all ? keep.activated : spare.d_wide;
    T* d_qkv = all ? keep.gate_up : spare.d_qkv;

    const LinearShape down{rows, s_.d_ff, d, kBf16};
    if (again) kernels::swiglu_forward<T>(team, swiglu(rows, keep), keep.activated);
    const Real* const d_down = pass.tensor.all_rows(d_stream, rows, d);
    if (all) down_gradient(pass, keep, d_down, g);
    kernels::gemm(team, linear_input_gradient(down, d_down, w.down_weight, d_wide));
    // The gradient of gate and up takes their place.
    kernels::swiglu_backward<T>(team, swiglu(rows, keep), d_wide, keep.gate_up,
                                keep.gate_up + s_.d_ff);
    const LinearShape gate_up{rows, d, 2 * s_.d_ff, kBf16};
    if (again) norm2(pass, w, keep);
    if (all) gate_up_gradient(pass, keep, g);
    kernels::gemm(team, linear_input_gradient(gate_up, keep.gate_up, w.gate_up_weight,
                                              pass.tensor.summand(d_normed)));
    pass.tensor.sum(d_normed, rows, d);
    norm_backward(pass, d_normed, keep.middle, w.norm2_weight, keep.rstd2, d_stream,
                  g.norm2_weight);
    if (all && upper_ready) upper_ready();

    const LinearShape out{rows, s_.query_width(), d, kBf16};
    if (!all) copy_values(team, pass.own_rows() * d, d_stream, keep.middle);
    const Real* const d_out = pass.tensor.all_rows(d_stream, rows, d);
    if (all) out_gradient(pass, keep, d_out, g);
    kernels::gemm(team, linear_input_gradient(out, d_out, w.out_weight, d_wide));
    attention_backward(pass, w, keep, spare, d_wide, d_qkv, g);
    const LinearShape qkv{rows, d, s_.qkv_width(), kBf16};
    if (again) norm1(pass, w, keep, x);
    if (all) qkv_gradient(pass, keep, d_qkv, g);
    kernels::gemm(team,
                  linear_input_gradient(qkv, d_qkv, w.qkv_weight, pass.tensor.summand(d_normed)));
    if (!all) copy_values(team, rows * s_.qkv_width(), d_qkv, keep.qkv);
    pass.tensor.sum(d_normed, rows, d);
    norm_backward(pass, d_normed, x, w.norm1_weight, keep.rstd1, d_stream, g.norm1_weight);
  }

  void backward_weight(const Pass& pass, void* memory, const Real* d_output,
                       Real* gradients) const override {
    const LlamaTensors<Real> g(gradients, s_);
    const LlamaMemory<T> keep = memory_of(pass, memory, nullptr, nullptr);
    const std::int64_t d = s_.d_model;
    down_gradient(pass, keep, pass.tensor.all_rows(d_output, pass.rows(), d), g);
    gate_up_gradient(pass, keep, g);
    out_gradient(pass, keep, pass.tensor.all_rows<Real>(keep.middle, pass.rows(), d), g);
    qkv_gradient(pass, keep, keep.qkv, g);
  }

 private:
  /// What is made again lies in `scratch` and `narrow`, (own rows, d_model) Reals.
  [[nodiscard]] LlamaMemory<T> memory_of(const Pass& pass, void* memory, void* scratch,
                                         void* narrow) const {
    Carver carver(memory);
    LlamaMemory<T> keep(carver, s_, pass.rows(), pass.own_rows(), keeps_);
    if (keeps_ == LayerKeeps::kAll) return keep;
    keep.normed1 = keep.normed2 = static_cast<T*>(narrow);
    keep.activated = static_cast<T*>(scratch);
    return keep;
  }

  // Weights of the four products, from the gradients of their outputs on all rows.
  void down_gradient(const Pass& pass, const LlamaMemory<T>& keep, const Real* dy,
                     const LlamaTensors<Real>& g) const {
    linear_weight_gradient(pass.team, {pass.rows(), s_.d_ff, s_.d_model, kBf16}, keep.activated, dy,
                           g.down_weight);
  }
  void gate_up_gradient(const Pass& pass, const LlamaMemory<T>& keep,
                        const LlamaTensors<Real>& g) const {
    const T* const normed2 = pass.tensor.all_rows<T>(keep.normed2, pass.rows(), s_.d_model);
    linear_weight_gradient(pass.team, {pass.rows(), s_.d_model, 2 * s_.d_ff, kBf16}, normed2,
                           keep.gate_up, g.gate_up_weight);
  }
  void out_gradient(const Pass& pass, const LlamaMemory<T>& keep, const Real* dy,
                    const LlamaTensors<Real>& g) const {
    linear_weight_gradient(pass.team, {pass.rows(), s_.query_width(), s_.d_model, kBf16},
                           keep.attended, dy, g.out_weight);
  }
  void qkv_gradient(const Pass& pass, const LlamaMemory<T>& keep, const T* dy,
                    const LlamaTensors<Real>& g) const {
    const T* const normed1 = pass.tensor.all_rows<T>(keep.normed1, pass.rows(), s_.d_model);
    linear_weight_gradient(pass.team, {pass.rows(), s_.d_model, s_.qkv_width(), kBf16}, normed1, dy,
                           g.qkv_weight);
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
            .scale = 1 / std::sqrt(static_cast<double>(s_.head_dim)),
            .document_starts = pass.document_starts};
  }

  [[nodiscard]] kernels::SwiGlu<T> swiglu(std::int64_t rows, const LlamaMemory<T>& keep) const {
    return {.rows = rows,
            .columns = s_.d_ff,
            .gate = keep.gate_up,
            .up = keep.gate_up + s_.d_ff,
            .ld_in = 2 * s_.d_ff,
            .ld_out = s_.d_ff};
  }

  void rotate(const Pass& pass, std::int64_t heads, const kernels::HeadsView<T>& x) const {
    kernels::rotary_forward<T>(pass.team, pass.sequences, pass.length, heads, s_.head_dim, x,
                               cosine_, sine_, pass.document_starts);
  }
  void rotate_back(const Pass& pass, std::int64_t heads, const kernels::HeadsView<T>& dx) const {
    kernels::rotary_backward<T>(pass.team, pass.sequences, pass.length, heads, s_.head_dim, dx,
                                cosine_, sine_, pass.document_starts);
  }

  void norm1(const Pass& pass, const LlamaTensors<const Real>& w, const LlamaMemory<T>& keep,
             const Real* x) const {
    norm(pass, pass.own_rows(), s_.d_model, x, w.norm1_weight, keep.normed1, keep.rstd1);
  }
  void norm2(const Pass& pass, const LlamaTensors<const Real>& w,
             const LlamaMemory<T>& keep) const {
    norm(pass, pass.own_rows(), s_.d_model, keep.middle, w.norm2_weight, keep.normed2, keep.rstd2);
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
    norm(pass, pass.rows() * s_.heads, s_.head_dim, keep.query, w.q_norm_weight, keep.query,
         keep.q_rstd);
    norm(pass, pass.rows() * s_.kv_heads, s_.head_dim, keep.key, w.k_norm_weight, keep.key,
         keep.k_rstd);
  }

  /// d_stream += gradient of `dy` through the norm of s.
  void norm_backward(const Pass& pass, const T* dy, const Real* s, const Real* weight,
                     const Real* rstd, Real* d_stream, Real* d_weight) const {
    kernels::rms_norm_backward<T>(pass.team, {.rows = pass.own_rows(),
                                              .channels = s_.d_model,
                                              .dy = dy,
                                              .s = s,
                                              .weight = weight,
                                              .rstd = rstd,
                                              .d_sum = d_stream,
                                              .ds = d_stream,
                                              .d_weight = d_weight});
  }

  /// Gradient of one group of heads through its norm: d (rows * heads, head_dim) on entry that of
  /// the normed heads, afterwards that of the columns of `qkv` at `from`, put into `d_qkv` there.
  void norm_heads_backward(const Pass& pass, std::int64_t heads, std::int64_t from,
                           const LlamaMemory<T>& keep, const LlamaScratch<T>& spare,
                           const Real* weight, const Real* rstd, T* d, T* d_qkv,
                           Real* d_weight) const {
    const std::int64_t width = heads * s_.head_dim;
    copy_columns<T>(pass, width, keep.qkv + from, s_.qkv_width(), spare.raw, width);
    kernels::rms_norm_backward<T, T>(pass.team, {.rows = pass.rows() * heads,
                                                 .channels = s_.head_dim,
                                                 .dy = d,
                                                 .s = spare.raw,
                                                 .weight = weight,
                                                 .rstd = rstd,
                                                 .ds = d,
                                                 .d_weight = d_weight});
    copy_columns<T>(pass, width, d, width, d_qkv + from, s_.qkv_width());
  }

  /// d_qkv := gradient of `qkv`, from that of the attended values.
  void attention_backward(const Pass& pass, const LlamaTensors<const Real>& w,
                          const LlamaMemory<T>& keep, const LlamaScratch<T>& spare, T* d_attended,
                          T* d_qkv, const LlamaTensors<Real>& g) const {
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
    norm_heads_backward(pass, s_.heads, 0, keep, spare, w.q_norm_weight, keep.q_rstd, spare.d_query,
                        d_qkv, g.q_norm_weight);
    norm_heads_backward(pass, s_.kv_heads, s_.query_width(), keep, spare, w.k_norm_weight,
                        keep.k_rstd, spare.d_key, d_qkv, g.k_norm_weight);
  }

  ModelShape s_;
  LayerKeeps keeps_;
  const Real* cosine_ = nullptr;  // (longest, head_dim / 2), and so is sine_
  const Real* sine_ = nullptr;
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
