// SPDX-License-Identifier: Apache-2.0
// cudnn_attention.h on the CPU: the formulas as plain loops, over the sizes and strides that cuDNN
// would be given. As cuDNN may, a pass writes all of its workspace.
#include "kernels/cuda/cudnn/cudnn_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "cuda/emulated/faults.h"
#include "cuda/emulated/runtime.h"
#include "isthmus/errors.h"

namespace isthmus::cuda {
namespace {

using kernels::AttentionBackward;
using kernels::Bf16;

std::string missing = emulated::cudnn_fault_from_environment();  // as a test says
std::string without_plan;                                        // likewise

/// Values of a tensor by cuDNN's description.
template <typename T>
struct Place {
  CudnnTensor tensor;
  T* data;
  T& at(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i = 0) const {
    const auto& by = tensor.strides;
    return data[b * by[0] + h * by[1] + t * by[2] + i * by[3]];
  }
  [[nodiscard]] float get(std::int64_t b, std::int64_t h, std::int64_t t, std::int64_t i) const {
    return static_cast<float>(at(b, h, t, i));
  }
};

template <typename T>
Place<T> place(const AttentionShape& s, std::int64_t heads, const HeadsView<T>& view) {
  return {cudnn_heads(s, heads, view), view.data};
}

float dot(const AttentionShape& s, const Place<const Bf16>& x, std::int64_t b, std::int64_t hx,
          std::int64_t tx, const Place<const Bf16>& y, std::int64_t hy, std::int64_t ty) {
  float sum = 0;
  for (std::int64_t i = 0; i < s.head_dim; ++i) sum += x.get(b, hx, tx, i) * y.get(b, hy, ty, i);
  return sum;
}

/// Each query's row: batch, query head, key head, token.
template <typename Row>
void for_each_row(const AttentionShape& s, const Row& row) {
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.q_heads; ++h) {
      for (std::int64_t t = 0; t < s.seq; ++t) row(b, h, h / (s.q_heads / s.kv_heads), t);
    }
  }
}

struct Forward {
  AttentionShape shape;
  Place<const Bf16> q, k, v;
  Place<Bf16> out;
  Place<float> lse;

  void run() const {
    for_each_row(shape, [&](std::int64_t b, std::int64_t h, std::int64_t g, std::int64_t t) {
      std::vector<float> scores;
      for (std::int64_t s = 0; s <= t; ++s) {
        scores.push_back(static_cast<float>(shape.scale) * dot(shape, q, b, h, t, k, g, s));
      }
      const float most = *std::ranges::max_element(scores);
      float sum = 0;
      for (const float score : scores) sum += std::exp(score - most);
      lse.at(b, h, t) = most + std::log(sum);
      for (std::int64_t i = 0; i < shape.head_dim; ++i) {
        float mean = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          mean += std::exp(scores[static_cast<std::size_t>(s)] - most) / sum * v.get(b, g, s, i);
        }
        out.at(b, h, t, i) = Bf16(mean);
      }
    });
  }
};

struct Backward {
  AttentionShape shape;
  Place<const Bf16> q, k, v, out, d_out;
  Place<const float> lse;
  Place<Bf16> d_q, d_k, d_v;

  void run() const {
    const auto values =
        static_cast<std::size_t>(shape.batch * shape.kv_heads * shape.seq * shape.head_dim);
    std::vector<float> keys(values), sums(values), query(static_cast<std::size_t>(shape.head_dim));
    const auto index = [&](std::int64_t b, std::int64_t g, std::int64_t s, std::int64_t i) {
      return static_cast<std::size_t>(((b * shape.kv_heads + g) * shape.seq + s) * shape.head_dim +
                                      i);
    };
    const auto scale = static_cast<float>(shape.scale);
    for_each_row(shape, [&](std::int64_t b, std::int64_t h, std::int64_t g, std::int64_t t) {
      const float delta = dot(shape, out, b, h, t, d_out, h, t);
      std::ranges::fill(query, 0.f);
      for (std::int64_t s = 0; s <= t; ++s) {
        const float p = std::exp(scale * dot(shape, q, b, h, t, k, g, s) - lse.at(b, h, t));
        const float d_score = scale * p * (dot(shape, d_out, b, h, t, v, g, s) - delta);
        for (std::int64_t i = 0; i < shape.head_dim; ++i) {
          sums[index(b, g, s, i)] += p * d_out.get(b, h, t, i);
          keys[index(b, g, s, i)] += d_score * q.get(b, h, t, i);
          query[static_cast<std::size_t>(i)] += d_score * k.get(b, g, s, i);
        }
      }
      for (std::int64_t i = 0; i < shape.head_dim; ++i) {
        d_q.at(b, h, t, i) = Bf16(query[static_cast<std::size_t>(i)]);
      }
    });
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t g = 0; g < shape.kv_heads; ++g) {
        for (std::int64_t s = 0; s < shape.seq; ++s) {
          for (std::int64_t i = 0; i < shape.head_dim; ++i) {
            d_k.at(b, g, s, i) = Bf16(keys[index(b, g, s, i)]);
            d_v.at(b, g, s, i) = Bf16(sums[index(b, g, s, i)]);
          }
        }
      }
    }
  }
};

}  // namespace

void emulated::set_cudnn_missing(const std::string& why) { missing = why; }
void emulated::set_cudnn_without_plan(const std::string& why) { without_plan = why; }

std::string cudnn_missing() { return missing; }
std::string cudnn_version() { return missing.empty() ? "emulated" : ""; }

std::string cudnn_refusal_here(const AttentionShape& shape) {
  return cudnn_refusal(shape, devices().front().compute_major);
}

std::string cudnn_objection(const AttentionLayout& layout, int compute_capability) {
  return cudnn_refusal(layout.shape, compute_capability / 10);
}

struct CudnnAttention::Impl {
  AttentionLayout layout;
  Passes passes;

  void expect(std::int64_t heads, const HeadsView<const Bf16>& planned, const auto&... got) const {
    const CudnnTensor tensor = cudnn_heads(layout.shape, heads, planned);
    ISTHMUS_CHECK((... && (cudnn_heads(layout.shape, heads, got) == tensor)), heads);
  }
};

CudnnAttention::CudnnAttention(const AttentionLayout& layout, Passes passes)
    : impl_(new Impl{layout, passes}) {
  if (!without_plan.empty()) throw SystemError("cuDNN: attention: " + without_plan);
}
CudnnAttention::~CudnnAttention() = default;

// As much as cuDNN's deterministic algorithm has, and a little in a forward pass too.
std::size_t CudnnAttention::workspace_bytes() const {
  const AttentionShape& s = impl_->layout.shape;
  if (impl_->passes == Passes::kForward) return 256;
  return static_cast<std::size_t>(2 * s.batch * s.q_heads * s.seq * s.seq);
}

bool CudnnAttention::takes(const AttentionShape& shape) const {
  return impl_->layout.shape == shape;
}

void CudnnAttention::forward(Stream& stream, HeadsView<const Bf16> q, HeadsView<const Bf16> k,
                             HeadsView<const Bf16> v, HeadsView<Bf16> out, float* lse,
                             void* workspace) {
  const AttentionLayout& l = impl_->layout;
  const AttentionShape& s = l.shape;
  impl_->expect(s.q_heads, l.q, q);
  impl_->expect(s.kv_heads, l.k, k);
  impl_->expect(s.kv_heads, l.v, v);
  impl_->expect(s.q_heads, l.out, out);
  const Forward pass{s,
                     place(s, s.q_heads, q),
                     place(s, s.kv_heads, k),
                     place(s, s.kv_heads, v),
                     place(s, s.q_heads, out),
                     {cudnn_statistics(s), lse}};
  emulated::queue(stream.handle(), [pass, workspace, bytes = workspace_bytes()] {
    std::memset(workspace, 0xff, bytes);
    pass.run();
  });
}

void CudnnAttention::backward(Stream& stream, const AttentionBackward<Bf16>& a, void* workspace) {
  const AttentionLayout& l = impl_->layout;
  const AttentionShape& s = l.shape;
  ISTHMUS_CHECK(impl_->passes == Passes::kBoth);
  impl_->expect(s.q_heads, l.q, a.q, a.d_q);
  impl_->expect(s.kv_heads, l.k, a.k, a.d_k);
  impl_->expect(s.kv_heads, l.v, a.v, a.d_v);
  impl_->expect(s.q_heads, l.out, a.out, a.d_out);
  const Backward pass{s,
                      place(s, s.q_heads, a.q),
                      place(s, s.kv_heads, a.k),
                      place(s, s.kv_heads, a.v),
                      place(s, s.q_heads, a.out),
                      place(s, s.q_heads, a.d_out),
                      {cudnn_statistics(s), a.lse},
                      place(s, s.q_heads, a.d_q),
                      place(s, s.kv_heads, a.d_k),
                      place(s, s.kv_heads, a.d_v)};
  emulated::queue(stream.handle(), [pass, workspace, bytes = workspace_bytes()] {
    std::memset(workspace, 0xff, bytes);
    pass.run();
  });
}

}  // namespace isthmus::cuda
