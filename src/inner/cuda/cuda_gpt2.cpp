// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "inner/cuda/cuda_attention.h"
#include "inner/cuda/cuda_block.h"
#include "inner/cuda/cuda_products.h"
#include "inner/model/arena.h"
#include "inner/model/gpt2_tensors.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/norm.h"

namespace isthmus {
namespace {

/// The activations that the forward pass keeps. The backward pass writes its wide gradients over
/// kept activations that it has read: the gradient of the up projection over `activated`, those of
/// queries, keys and values from `gelu_input` on.
template <typename T>
struct Memory {
  float *mean1, *rstd1, *lse, *middle, *mean2, *rstd2;
  T *normed1, *qkv, *attended, *normed2, *gelu_input, *activated;

  Memory(ArenaLayout& arena_layout, const ModelShape& s, std::int64_t rows) {
    const std::int64_t d = s.d_model;
    const std::int64_t a = s.query_width();
    mean1 = arena_layout.take<float>(rows);
    rstd1 = arena_layout.take<float>(rows);
    normed1 = arena_layout.take<T>(rows * d);
    qkv = arena_layout.take<T>(rows * 3 * a);
    attended = arena_layout.take<T>(rows * a);
    lse = arena_layout.take<float>(rows * s.heads);
    middle = arena_layout.take<float>(rows * d);
    mean2 = arena_layout.take<float>(rows);
    rstd2 = arena_layout.take<float>(rows);
    normed2 = arena_layout.take<T>(rows * d);
    gelu_input = arena_layout.take<T>(rows * s.d_ff);
    activated = arena_layout.take<T>(rows * std::max(s.d_ff, 3 * a - s.d_ff));
  }
};

template <typename T>
class CudaGpt2Block final : public CudaBlock<T> {
  using typename CudaBlock<T>::Forward;
  using typename CudaBlock<T>::Backward;

 public:
  explicit CudaGpt2Block(const ModelShape& shape) : s_(shape) { check_cuda_attention<T>(shape); }

  [[nodiscard]] std::int64_t memory_bytes(std::int64_t rows) const override {
    ArenaLayout arena_layout;
    static_cast<void>(Memory<T>(arena_layout, s_, rows));
    return arena_layout.bytes();
  }
  [[nodiscard]] std::int64_t scratch_bytes(std::int64_t) const override { return 0; }
  [[nodiscard]] std::size_t kernel_scratch(std::int64_t sequences,
                                           std::int64_t length) const override {
    return std::max(
        {cuda::norm_backward_scratch(s_.d_model),
         cuda::column_sum_scratch(std::max({s_.d_model, 3 * s_.query_width(), s_.d_ff})),
         cuda::attention_backward_scratch(cuda_attention_shape(s_, sequences, length))});
  }

  const float* forward(const CudaPass& pass, const CudaValues& layer,
                       const Forward& f) const override {
    const Gpt2Tensors<const float> w(layer.masters, s_);
    const Gpt2Tensors<const T> m(layer.working.template as<T>(), s_);
    ArenaLayout arena_layout(f.memory);
    const Memory<T> keep(arena_layout, s_, pass.rows());
    const std::int64_t rows = pass.rows();
    const std::int64_t d = s_.d_model;
    const std::int64_t a = s_.query_width();
    cuda::norm_forward<T>(pass.stream, {.rows = rows,
                                        .channels = d,
                                        .eps = s_.norm_eps,
                                        .centred = true,
                                        .x = f.x,
                                        .branch = f.sum == nullptr ? nullptr : f.branch,
                                        .s = f.sum,
                                        .weight = w.ln1_weight,
                                        .bias = w.ln1_bias,
                                        .y = keep.normed1,
                                        .mean = keep.mean1,
                                        .rstd = keep.rstd1});
    const float* const stream = f.sum == nullptr ? f.x : f.sum;
    pass.blas.matmul(pass.stream, cuda_conv1d({rows, d, 3 * a}, keep.normed1, m.qkv_weight,
                                              m.qkv_bias, keep.qkv));
    queue_attention<T>(
        pass, s_, heads<const T>(pass, keep.qkv, 3 * a), heads<const T>(pass, keep.qkv + a, 3 * a),
        heads<const T>(pass, keep.qkv + 2 * a, 3 * a), heads<T>(pass, keep.attended, a), keep.lse);
    pass.blas.matmul(pass.stream, cuda_conv1d({rows, a, d}, keep.attended, m.out_weight,
                                              closing_bias(pass, m.out_bias), f.branch));
    pass.sum_over_ranks(f.branch, d);
    cuda::norm_forward<T>(pass.stream, {.rows = rows,
                                        .channels = d,
                                        .eps = s_.norm_eps,
                                        .centred = true,
                                        .x = stream,
                                        .branch = f.branch,
                                        .s = keep.middle,
                                        .weight = w.ln2_weight,
                                        .bias = w.ln2_bias,
                                        .y = keep.normed2,
                                        .mean = keep.mean2,
                                        .rstd = keep.rstd2});
    auto up = cuda_conv1d({rows, d, s_.d_ff}, keep.normed2, m.up_weight, m.up_bias, keep.activated);
    up.epilogue = cuda::Epilogue::kGeluBias;
    up.aux = keep.gelu_input;
    pass.blas.matmul(pass.stream, up);
    if (!f.for_backward) {
      pass.blas.matmul(pass.stream, cuda_conv1d({rows, s_.d_ff, d}, keep.activated, m.down_weight,
                                                closing_bias(pass, m.down_bias), f.branch));
      pass.sum_over_ranks(f.branch, d);
    }
    return keep.middle;
  }

  void backward(const CudaPass& pass, const CudaValues& layer, const Backward& b) const override {
    const Gpt2Tensors<const float> w(layer.masters, s_);
    const Gpt2Tensors<const T> m(layer.working.template as<T>(), s_);
    const Gpt2Tensors<float> g(b.gradients, s_);
    ArenaLayout arena_layout(b.memory);
    const Memory<T> keep(arena_layout, s_, pass.rows());
    const std::int64_t rows = pass.rows();
    const std::int64_t d = s_.d_model;
    const std::int64_t a = s_.query_width();
    const T* const d_branch = stream_gradient<T>(b.d_stream, b.d_branch);

    const CudaLinear down{rows, s_.d_ff, d};
    weight_gradient(pass, b, down, keep.activated, d_branch, g.down_weight, g.down_bias);
    T* const d_up = keep.activated;
    auto through_gelu = cuda_conv1d_input_gradient(down, d_branch, m.down_weight, d_up);
    through_gelu.epilogue = cuda::Epilogue::kGeluGradient;
    through_gelu.aux = keep.gelu_input;
    pass.blas.matmul(pass.stream, through_gelu);
    const CudaLinear up{rows, d, s_.d_ff};
    weight_gradient(pass, b, up, keep.normed2, d_up, g.up_weight, g.up_bias);
    pass.blas.matmul(pass.stream, cuda_conv1d_input_gradient(up, d_up, m.up_weight, b.other));
    pass.sum_over_ranks(b.other, d);
    cuda::norm_backward<T>(pass.stream, {.rows = rows,
                                         .channels = d,
                                         .centred = true,
                                         .dy = b.other,
                                         .s = keep.middle,
                                         .weight = w.ln2_weight,
                                         .mean = keep.mean2,
                                         .rstd = keep.rstd2,
                                         .d_stream = b.d_stream,
                                         .d_branch = b.d_branch,
                                         .d_weight = g.ln2_weight,
                                         .d_bias = g.ln2_bias,
                                         .scratch = pass.scratch});

    const CudaLinear out{rows, a, d};
    weight_gradient(pass, b, out, keep.attended, d_branch, g.out_weight, g.out_bias);
    pass.blas.matmul(pass.stream, cuda_conv1d_input_gradient(out, d_branch, m.out_weight, b.other));
    T* const d_qkv = keep.gelu_input;
    queue_attention_backward<T>(pass, s_,
                                {.q = heads<const T>(pass, keep.qkv, 3 * a),
                                 .k = heads<const T>(pass, keep.qkv + a, 3 * a),
                                 .v = heads<const T>(pass, keep.qkv + 2 * a, 3 * a),
                                 .out = heads<const T>(pass, keep.attended, a),
                                 .d_out = heads<const T>(pass, b.other, a),
                                 .lse = keep.lse,
                                 .d_q = heads<T>(pass, d_qkv, 3 * a),
                                 .d_k = heads<T>(pass, d_qkv + a, 3 * a),
                                 .d_v = heads<T>(pass, d_qkv + 2 * a, 3 * a)});
    const CudaLinear qkv{rows, d, 3 * a};
    weight_gradient(pass, b, qkv, keep.normed1, d_qkv, g.qkv_weight, g.qkv_bias);
    pass.blas.matmul(pass.stream, cuda_conv1d_input_gradient(qkv, d_qkv, m.qkv_weight, b.other));
    pass.sum_over_ranks(b.other, d);
    cuda::norm_backward<T>(pass.stream, {.rows = rows,
                                         .channels = d,
                                         .centred = true,
                                         .dy = b.other,
                                         .s = b.sum,
                                         .weight = w.ln1_weight,
                                         .mean = keep.mean1,
                                         .rstd = keep.rstd1,
                                         .d_stream = b.d_stream,
                                         .d_branch = b.lowest ? nullptr : b.d_branch,
                                         .d_weight = g.ln1_weight,
                                         .d_bias = g.ln1_bias,
                                         .scratch = pass.scratch});
  }

 private:
  [[nodiscard]] static const T* closing_bias(const CudaPass& pass, const T* bias) {
    return pass.adds_biases() ? bias : nullptr;
  }

  void weight_gradient(const CudaPass& pass, const Backward& b, const CudaLinear& s, const T* x,
                       const T* dy, float* d_weight, float* d_bias) const {
    auto product = cuda_conv1d_weight_gradient(s, x, dy, d_weight);
    product.accumulate = !b.first;
    pass.blas.matmul(pass.stream, product);
    cuda::add_column_sums<T>(pass.stream, s.rows, s.out, dy, d_bias, pass.scratch);
  }

  template <typename Value>
  [[nodiscard]] kernels::HeadsView<Value> heads(const CudaPass& pass, Value* data,
                                                std::int64_t row) const {
    return kernels::heads_in_rows<Value>(data, pass.length, row, s_.head_dim);
  }

  ModelShape s_;
};

}  // namespace

template <typename T>
std::unique_ptr<const CudaBlock<T>> make_cuda_gpt2_block(const ModelShape& shape) {
  return std::make_unique<const CudaGpt2Block<T>>(shape);
}

template std::unique_ptr<const CudaBlock<kernels::Bf16>> make_cuda_gpt2_block(const ModelShape&);
template std::unique_ptr<const CudaBlock<float>> make_cuda_gpt2_block(const ModelShape&);

}  // namespace isthmus
