// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "inner/cuda/cuda_attention.h"
#include "inner/cuda/cuda_block.h"
#include "inner/cuda/cuda_products.h"
#include "inner/model/arena.h"
#include "inner/model/llama_memory.h"
#include "inner/model/rope.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/rotary.h"

namespace isthmus {
namespace {

/// Pointers to the heads' gradients, or to their norms' results.
template <typename T>
struct HeadScratch {
  T *d_query, *d_key;  // with qk_norm
  HeadScratch(ArenaLayout& arena_layout, const ModelShape& s, std::int64_t rows) {
    const std::int64_t normed = s.qk_norm ? rows : 0;
    d_query = arena_layout.take<T>(normed * s.query_width());
    d_key = arena_layout.take<T>(normed * s.key_width());
  }
};

/// The parts of the family that no kernel computes here; empty: nothing is missing.
std::string missing_on_devices(const ModelShape& s) {
  const ModelFamily& family = s.family;
  const bool rotates = std::ranges::all_of(family.layers, &LayerRule::rotates);
  const bool windows =
      std::ranges::any_of(family.layers, &LayerRule::local) && family.window < s.longest;
  const std::array<std::pair<bool, const char*>, 11> parts = {{
      {family.qkv_bias || family.out_bias || family.mlp_bias, "biases"},
      {!rotates, "layers without positions"},
      {windows, "sliding windows shorter than train.context"},
      {family.rotary_dim > 0, "heads that are rotated in part"},
      {family.local_rope_theta > 0, "two rotary bases"},
      {family.norms != LayerNorms::kBefore || family.wide_qk_norm, "norms after attention"},
      {family.layer_norm || family.parallel_residual || family.interleaved_heads,
       "layers of GPT-NeoX"},
      {family.norm_weight_offset != 0, "norms whose weights begin at 0"},
      {family.feed_forward != FeedForward::kSwiGlu, "feed-forward layers without SwiGLU"},
      {family.attention_cap > 0 || family.logit_cap > 0, "soft caps"},
      {family.embedding_scale != 1, "scaled embeddings"},
  }};
  for (const auto& [needed, name] : parts) {
    if (needed) return name;
  }
  return {};
}

/// THROWS: ConfigError naming the family and the parts of it that CUDA devices do not compute.
void check_cuda_family(const ModelShape& shape) {
  const std::string missing = missing_on_devices(shape);
  if (missing.empty()) return;
  throw ConfigError(fmt::format(
      "model.init: {} has {}, for which there is no CUDA kernel; train with --device cpu",
      shape.family.name, missing));
}

/// Keeps LlamaMemory and puts gradients where it says. Tables: cosine and sine, (longest,
/// head_dim / 2) each.
template <typename T>
class CudaLlamaBlock final : public CudaBlock<T> {
  using typename CudaBlock<T>::Forward;
  using typename CudaBlock<T>::Backward;

 public:
  explicit CudaLlamaBlock(const ModelShape& shape) : s_(shape) {
    check_cuda_family(shape);
    check_cuda_attention<T>(shape);
  }

  [[nodiscard]] std::int64_t table_floats() const override { return rope_table_values(s_); }
  void make_tables(float* tables) const override { fill_rope_tables<float>(s_, tables); }

  [[nodiscard]] std::int64_t memory_bytes(std::int64_t rows) const override {
    ArenaLayout arena_layout;
    static_cast<void>(LlamaMemory<T>(arena_layout, s_, rows, rows, LayerKeeps::kAll));
    return arena_layout.bytes();
  }
  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t rows) const override {
    ArenaLayout arena_layout;
    static_cast<void>(HeadScratch<T>(arena_layout, s_, rows));
    return arena_layout.bytes();
  }
  [[nodiscard]] std::size_t kernel_scratch(std::int64_t sequences,
                                           std::int64_t length) const override {
    return std::max(
        {cuda::norm_backward_scratch(s_.d_model), cuda::head_norm_scratch(s_.head_dim),
         cuda::attention_backward_scratch(cuda_attention_shape(s_, sequences, length))});
  }

  const float* forward(const CudaPass& pass, const CudaValues& layer,
                       const Forward& f) const override {
    const LlamaTensors<const float> w(layer.masters, s_);
    const LlamaTensors<const T> m(layer.working.template as<T>(), s_);
    ArenaLayout arena_layout(f.memory);
    const LlamaMemory<T> keep(arena_layout, s_, pass.rows(), pass.rows(), LayerKeeps::kAll);
    const std::int64_t rows = pass.rows();
    const std::int64_t d = s_.d_model;
    const std::int64_t a = s_.query_width();
    cuda::norm_forward<T>(pass.stream, {.rows = rows,
                                        .channels = d,
                                        .eps = s_.norm_eps,
                                        .x = f.x,
                                        .branch = f.sum == nullptr ? nullptr : f.branch,
                                        .s = f.sum,
                                        .weight = w.norm1_weight,
                                        .y = keep.normed1,
                                        .rstd = keep.rstd1});
    const float* const stream = f.sum == nullptr ? f.x : f.sum;
    pass.blas.matmul(pass.stream,
                     cuda_linear({rows, d, s_.qkv_width()}, keep.normed1, m.qkv_weight, keep.qkv));
    if (s_.qk_norm) {
      cuda::head_norm_forward<T>(pass.stream, query_norm(rows, w), keep.qkv, keep.query,
                                 keep.q_rstd);
      cuda::head_norm_forward<T>(pass.stream, key_norm(rows, w), keep.qkv + a, keep.key,
                                 keep.k_rstd);
    }
    rotate(pass, false, keep.qkv, keep.query, keep.key);
    const Heads in = attention_inputs(pass, keep);
    queue_attention<T>(pass, s_, read(in.q), read(in.k), read(in.v),
                       in_rows(pass, keep.attended, a), keep.lse);
    pass.blas.matmul(pass.stream, cuda_linear({rows, a, d}, keep.attended, m.out_weight, f.branch));
    pass.sum_over_ranks(f.branch, d);
    cuda::norm_forward<T>(pass.stream, {.rows = rows,
                                        .channels = d,
                                        .eps = s_.norm_eps,
                                        .x = stream,
                                        .branch = f.branch,
                                        .s = keep.middle,
                                        .weight = w.norm2_weight,
                                        .y = keep.normed2,
                                        .rstd = keep.rstd2});
    pass.blas.matmul(pass.stream, cuda_linear({rows, d, 2 * s_.d_ff}, keep.normed2,
                                              m.gate_up_weight, keep.gate_up));
    cuda::swiglu_forward<T>(pass.stream, rows, s_.d_ff, keep.gate_up, keep.activated);
    if (!f.for_backward) {
      pass.blas.matmul(pass.stream,
                       cuda_linear({rows, s_.d_ff, d}, keep.activated, m.down_weight, f.branch));
      pass.sum_over_ranks(f.branch, d);
    }
    return keep.middle;
  }

  void backward(const CudaPass& pass, const CudaValues& layer, const Backward& b) const override {
    const LlamaTensors<const float> w(layer.masters, s_);
    const LlamaTensors<const T> m(layer.working.template as<T>(), s_);
    const LlamaTensors<float> g(b.gradients, s_);
    ArenaLayout arena_layout(b.memory);
    const LlamaMemory<T> keep(arena_layout, s_, pass.rows(), pass.rows(), LayerKeeps::kAll);
    const std::int64_t rows = pass.rows();
    const std::int64_t d = s_.d_model;
    const T* const d_branch = stream_gradient<T>(b.d_stream, b.d_branch);

    const CudaLinear down{rows, s_.d_ff, d};
    weight_gradient(pass, b, down, keep.activated, d_branch, g.down_weight);
    T* const d_wide = keep.activated;
    pass.blas.matmul(pass.stream,
                     cuda_linear_input_gradient(down, d_branch, m.down_weight, d_wide));
    cuda::swiglu_backward<T>(pass.stream, rows, s_.d_ff, d_wide, keep.gate_up);
    const CudaLinear gate_up{rows, d, 2 * s_.d_ff};
    weight_gradient(pass, b, gate_up, keep.normed2, keep.gate_up, g.gate_up_weight);
    pass.blas.matmul(pass.stream,
                     cuda_linear_input_gradient(gate_up, keep.gate_up, m.gate_up_weight, b.other));
    pass.sum_over_ranks(b.other, d);
    norm_backward(pass, b, keep.middle, w.norm2_weight, keep.rstd2, b.d_branch, g.norm2_weight);

    const CudaLinear out{rows, s_.query_width(), d};
    weight_gradient(pass, b, out, keep.attended, d_branch, g.out_weight);
    pass.blas.matmul(pass.stream, cuda_linear_input_gradient(out, d_branch, m.out_weight, d_wide));
    T* const d_qkv = keep.gate_up;
    attention_backward(pass, w, keep, b, d_wide, d_qkv, g);
    const CudaLinear qkv{rows, d, s_.qkv_width()};
    weight_gradient(pass, b, qkv, keep.normed1, d_qkv, g.qkv_weight);
    pass.blas.matmul(pass.stream, cuda_linear_input_gradient(qkv, d_qkv, m.qkv_weight, b.other));
    pass.sum_over_ranks(b.other, d);
    norm_backward(pass, b, b.sum, w.norm1_weight, keep.rstd1, b.lowest ? nullptr : b.d_branch,
                  g.norm1_weight);
  }

 private:
  void weight_gradient(const CudaPass& pass, const Backward& b, const CudaLinear& s, const T* x,
                       const T* dy, float* d_weight) const {
    auto product = cuda_linear_weight_gradient(s, x, dy, d_weight);
    product.accumulate = !b.first;
    pass.blas.matmul(pass.stream, product);
  }

  void norm_backward(const CudaPass& pass, const Backward& b, const float* s, const float* weight,
                     const float* rstd, T* d_branch, float* d_weight) const {
    cuda::norm_backward<T>(pass.stream, {.rows = pass.rows(),
                                         .channels = s_.d_model,
                                         .dy = b.other,
                                         .s = s,
                                         .weight = weight,
                                         .rstd = rstd,
                                         .d_stream = b.d_stream,
                                         .d_branch = d_branch,
                                         .d_weight = d_weight,
                                         .scratch = pass.scratch});
  }

  /// Where attention finds queries, keys and values (or puts their gradients).
  struct Heads {
    kernels::HeadsView<T> q, k, v;
  };
  [[nodiscard]] kernels::HeadsView<T> in_rows(const CudaPass& pass, T* data,
                                              std::int64_t row) const {
    return kernels::heads_in_rows<T>(data, pass.length, row, s_.head_dim);
  }
  [[nodiscard]] static kernels::HeadsView<const T> read(const kernels::HeadsView<T>& view) {
    return {view.data, view.batch_stride, view.token_stride, view.head_stride};
  }
  /// query, key: the normed ones' places, with qk_norm.
  [[nodiscard]] Heads heads_of(const CudaPass& pass, T* qkv, T* query, T* key) const {
    const std::int64_t row = s_.qkv_width();
    const std::int64_t a = s_.query_width();
    return {s_.qk_norm ? in_rows(pass, query, a) : in_rows(pass, qkv, row),
            s_.qk_norm ? in_rows(pass, key, s_.key_width()) : in_rows(pass, qkv + a, row),
            in_rows(pass, qkv + a + s_.key_width(), row)};
  }
  [[nodiscard]] Heads attention_inputs(const CudaPass& pass, const LlamaMemory<T>& keep) const {
    return heads_of(pass, keep.qkv, keep.query, keep.key);
  }

  [[nodiscard]] cuda::HeadNorm<T> query_norm(std::int64_t rows,
                                             const LlamaTensors<const float>& w) const {
    return {rows, s_.heads, s_.head_dim, s_.qkv_width(), s_.norm_eps, w.q_norm_weight};
  }
  [[nodiscard]] cuda::HeadNorm<T> key_norm(std::int64_t rows,
                                           const LlamaTensors<const float>& w) const {
    return {rows, s_.kv_heads, s_.head_dim, s_.qkv_width(), s_.norm_eps, w.k_norm_weight};
  }

  /// Queries and keys, side by side in `qkv` or each in its place, by their positions.
  void rotate(const CudaPass& pass, bool backward, T* qkv, T* query, T* key) const {
    const float* const cosine = pass.tables;
    const float* const sine = pass.tables + table_floats() / 2;
    const auto some = [&](std::int64_t heads, std::int64_t row, T* x) {
      cuda::rotate<T>(pass.stream, backward, pass.rows(), pass.length, heads, s_.head_dim, row, x,
                      cosine, sine);
    };
    if (s_.qk_norm) {
      some(s_.heads, s_.query_width(), query);
      some(s_.kv_heads, s_.key_width(), key);
    } else {
      some(s_.heads + s_.kv_heads, s_.qkv_width(), qkv);
    }
  }

  /// d_qkv := gradient of `qkv`, from that of the attended values.
  void attention_backward(const CudaPass& pass, const LlamaTensors<const float>& w,
                          const LlamaMemory<T>& keep, const Backward& b, T* d_attended, T* d_qkv,
                          const LlamaTensors<float>& g) const {
    ArenaLayout arena_layout(b.scratch);
    const HeadScratch<T> spare(arena_layout, s_, pass.rows());
    const Heads in = attention_inputs(pass, keep);
    const Heads d = heads_of(pass, d_qkv, spare.d_query, spare.d_key);
    const std::int64_t a = s_.query_width();
    queue_attention_backward<T>(pass, s_,
                                {.q = read(in.q),
                                 .k = read(in.k),
                                 .v = read(in.v),
                                 .out = read(in_rows(pass, keep.attended, a)),
                                 .d_out = read(in_rows(pass, d_attended, a)),
                                 .lse = keep.lse,
                                 .d_q = d.q,
                                 .d_k = d.k,
                                 .d_v = d.v});
    rotate(pass, true, d_qkv, spare.d_query, spare.d_key);
    if (!s_.qk_norm) return;
    cuda::head_norm_backward<T>(pass.stream, query_norm(pass.rows(), w), spare.d_query, keep.qkv,
                                keep.q_rstd, d_qkv, g.q_norm_weight, pass.scratch);
    cuda::head_norm_backward<T>(pass.stream, key_norm(pass.rows(), w), spare.d_key, keep.qkv + a,
                                keep.k_rstd, d_qkv + a, g.k_norm_weight, pass.scratch);
  }

  ModelShape s_;
};

}  // namespace

template <typename T>
std::unique_ptr<const CudaBlock<T>> make_cuda_llama_block(const ModelShape& shape) {
  return std::make_unique<const CudaLlamaBlock<T>>(shape);
}

template std::unique_ptr<const CudaBlock<kernels::Bf16>> make_cuda_llama_block(const ModelShape&);
template std::unique_ptr<const CudaBlock<float>> make_cuda_llama_block(const ModelShape&);

}  // namespace isthmus
