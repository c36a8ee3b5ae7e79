// SPDX-License-Identifier: Apache-2.0
// Attention on a device with seeded values, forward and backward, what it should give, and how
// near.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda/device_test.h"
#include "kernels/bf16.h"
#include "kernels/cuda/attention.h"
#include "kernels/thread_team.h"

namespace isthmus::cuda {

struct AttentionCase {
  std::int64_t batch, seq, q_heads, kv_heads, head_dim;
  bool fused = false;       // q, k and v (and their gradients) in one (B, T, ...) buffer
  double spread = 1;        // of q: large values make one key win
  double scale = 0;         // 0: 1 / sqrt(head_dim)
  std::int64_t offset = 0;  // values before the first one of q: 1 gives rows that no vector fits

  [[nodiscard]] AttentionShape shape() const {
    return {batch,    seq,      q_heads,
            kv_heads, head_dim, scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(head_dim))};
  }
  [[nodiscard]] std::string name() const {
    return "B " + std::to_string(batch) + " T " + std::to_string(seq) + " heads " +
           std::to_string(q_heads) + "/" + std::to_string(kv_heads) + " dim " +
           std::to_string(head_dim) + (fused ? " fused" : "");
  }
};

/// Where q, k and v lie in a buffer for all three, which ends with 64 rows that belong to nobody.
class QkvLayout {
 public:
  explicit QkvLayout(const AttentionCase& c) : c_(c) {}
  [[nodiscard]] std::size_t used() const {
    return static_cast<std::size_t>(c_.offset + c_.batch * c_.seq * width());
  }
  [[nodiscard]] std::size_t size() const { return used() + static_cast<std::size_t>(64 * width()); }
  template <typename T>
  [[nodiscard]] HeadsView<T> q(T* data) const {
    return view(data, 0, c_.q_heads);
  }
  template <typename T>
  [[nodiscard]] HeadsView<T> k(T* data) const {
    return view(data, c_.q_heads, c_.kv_heads);
  }
  template <typename T>
  [[nodiscard]] HeadsView<T> v(T* data) const {
    return view(data, c_.q_heads + c_.kv_heads, c_.kv_heads);
  }
  template <typename T>
  [[nodiscard]] HeadsView<T> out(T* data) const {
    return kernels::heads_in_rows(data, c_.seq, c_.q_heads * c_.head_dim, c_.head_dim);
  }

 private:
  [[nodiscard]] std::int64_t width() const { return (c_.q_heads + 2 * c_.kv_heads) * c_.head_dim; }
  template <typename T>
  [[nodiscard]] HeadsView<T> view(T* data, std::int64_t heads_before, std::int64_t heads) const {
    if (c_.fused) {
      return kernels::heads_in_rows(data + c_.offset + heads_before * c_.head_dim, c_.seq, width(),
                                    c_.head_dim);
    }
    return kernels::heads_in_rows(data + c_.offset + heads_before * c_.batch * c_.seq * c_.head_dim,
                                  c_.seq, heads * c_.head_dim, c_.head_dim);
  }
  AttentionCase c_;
};

/// What both passes write; `gradients` laid out as QkvLayout says. The backward pass is given the
/// device's own out and lse.
template <typename T>
struct AttentionResult {
  std::vector<T> out, gradients;
  std::vector<float> lse;
  [[nodiscard]] bool same_bits_as(const AttentionResult& other) const {
    return same_bits(out, other.out) && same_bits(gradients, other.gradients) &&
           same_bits(lse, other.lse);
  }
};

template <typename T>
struct AttentionInputs {
  std::vector<T> qkv, d_out;

  explicit AttentionInputs(const AttentionCase& c) {
    const QkvLayout layout(c);
    qkv = values(layout.used(), 1);
    const HeadsView<T> q = layout.q(qkv.data());
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t t = 0; t < c.seq; ++t) {
        for (std::int64_t i = 0; i < c.q_heads * c.head_dim; ++i) {
          T& x = q.at(b, t, 0)[i];
          x = T(static_cast<float>(x) * static_cast<float>(c.spread));
        }
      }
    }
    // What lies behind the buffer's end is never part of a sum.
    qkv.resize(layout.size(), T(std::numeric_limits<float>::quiet_NaN()));
    d_out = values(static_cast<std::size_t>(c.batch * c.seq * c.q_heads * c.head_dim), 2);
  }

 private:
  static std::vector<T> values(std::size_t n, std::uint32_t sub) {
    std::vector<T> x(n);
    const std::vector<float> wide = normal_floats(n, sub);
    for (std::size_t i = 0; i < n; ++i) x[i] = T(wide[i]);
    return x;
  }
};

template <typename T>
[[nodiscard]] AttentionResult<T> attention_on_device(const AttentionCase& c,
                                                     const AttentionInputs<T>& inputs) {
  Stream stream;
  const QkvLayout layout(c);
  const AttentionShape shape = c.shape();
  const DeviceArray<T> qkv = on_device(stream, inputs.qkv);
  const DeviceArray<T> d_out = on_device(stream, inputs.d_out);
  const DeviceArray<T> d_qkv = on_device(stream, std::vector<T>(layout.size(), T(7.0f)));
  const DeviceArray<T> out(inputs.d_out.size());
  const DeviceArray<float> lse(static_cast<std::size_t>(c.batch * c.q_heads * c.seq));
  const DeviceArray<float> scratch(attention_backward_scratch(shape));
  const T* const in = qkv.data();
  EXPECT_EQ(attention_refusal<T>(shape, shared_bytes_of_block()), "");
  attention_forward<T>(stream, shape, layout.q(in), layout.k(in), layout.v(in),
                       layout.out(out.data()), lse.data());
  attention_backward<T>(stream, shape,
                        {.q = layout.q(in),
                         .k = layout.k(in),
                         .v = layout.v(in),
                         .out = layout.out<const T>(out.data()),
                         .d_out = layout.out<const T>(d_out.data()),
                         .lse = lse.data(),
                         .d_q = layout.q(d_qkv.data()),
                         .d_k = layout.k(d_qkv.data()),
                         .d_v = layout.v(d_qkv.data())},
                        scratch.data());
  return {on_host(stream, out), on_host(stream, d_qkv), on_host(stream, lse)};
}

/// The formulas in double of the same values; the backward pass takes the out that is given.
template <typename T>
[[nodiscard]] AttentionResult<double> attention_in_double(const AttentionCase& c,
                                                          const AttentionInputs<T>& inputs,
                                                          const std::vector<T>& out_given,
                                                          std::vector<double>& lse) {
  kernels::ThreadTeam team(1);
  const QkvLayout layout(c);
  const auto wide = [](const std::vector<T>& x) {
    std::vector<double> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = static_cast<double>(static_cast<float>(x[i]));
    return y;
  };
  const std::vector<double> qkv = wide(inputs.qkv), d_out = wide(inputs.d_out);
  const std::vector<double> out = wide(out_given);
  AttentionResult<double> r;
  r.out.resize(d_out.size());
  r.gradients.assign(layout.size(), 7.0);
  lse.resize(static_cast<std::size_t>(c.batch * c.q_heads * c.seq));
  kernels::attention_forward_reference<double>(team, c.shape(), layout.q(qkv.data()),
                                               layout.k(qkv.data()), layout.v(qkv.data()),
                                               layout.out(r.out.data()), lse.data());
  kernels::attention_backward_reference<double>(team, c.shape(),
                                                {.q = layout.q(qkv.data()),
                                                 .k = layout.k(qkv.data()),
                                                 .v = layout.v(qkv.data()),
                                                 .out = layout.out(out.data()),
                                                 .d_out = layout.out(d_out.data()),
                                                 .lse = lse.data(),
                                                 .d_q = layout.q(r.gradients.data()),
                                                 .d_k = layout.k(r.gradients.data()),
                                                 .d_v = layout.v(r.gradients.data())});
  return r;
}

// Of float: sums of some hundred products, and what an error of the logits, which grow with the
// spread, makes of the probabilities. Of Bf16: probabilities, their gradients and results are
// rounded to 8 bits, each by at most 2^-9 of itself; a row of results errs by some of those.
template <typename T>
[[nodiscard]] double budget_of(const AttentionCase& c) {
  return std::is_same_v<T, kernels::Bf16> ? 0x1p-7 : 2e-5 * c.spread;
}

/// Every head's part of a token's row is near the expected one, by the row's norm and the norm of a
/// usual row.
template <typename T>
void expect_rows_near(const char* what, const AttentionCase& c, HeadsView<const T> got,
                      HeadsView<const double> expected, std::int64_t heads) {
  const auto norm = [&](auto&& value) {
    double squares = 0;
    for (std::int64_t i = 0; i < c.head_dim; ++i) squares += value(i) * value(i);
    return std::sqrt(squares);
  };
  const double budget = budget_of<T>(c);
  double usual = 0;
  for (const bool compare : {false, true}) {
    for (std::int64_t b = 0; b < c.batch; ++b) {
      for (std::int64_t t = 0; t < c.seq; ++t) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const double* const y = expected.at(b, t, h);
          const T* const x = got.at(b, t, h);
          const double size = norm([&](std::int64_t i) { return y[i]; });
          if (!compare) {
            usual += size / static_cast<double>(c.batch * c.seq * heads);
            continue;
          }
          const double error = norm(
              [&](std::int64_t i) { return static_cast<double>(static_cast<float>(x[i])) - y[i]; });
          // Written so that NaN fails.
          ASSERT_TRUE(error <= budget * (size + usual) + 1e-5)
              << c.name() << ": " << what << " of sequence " << b << ", token " << t << ", head "
              << h << " errs by " << error << ", its norm is " << size << ", usual " << usual;
        }
      }
    }
  }
}

/// `out` and the gradients are near, and nothing is written behind the gradients' end.
template <typename T>
void expect_results_near(const AttentionCase& c, const AttentionResult<T>& got,
                         const AttentionResult<double>& expected) {
  const QkvLayout layout(c);
  expect_rows_near<T>("out", c, layout.out(got.out.data()), layout.out(expected.out.data()),
                      c.q_heads);
  const T* const x = got.gradients.data();
  const double* const y = expected.gradients.data();
  expect_rows_near<T>("d_q", c, layout.q(x), layout.q(y), c.q_heads);
  expect_rows_near<T>("d_k", c, layout.k(x), layout.k(y), c.kv_heads);
  expect_rows_near<T>("d_v", c, layout.v(x), layout.v(y), c.kv_heads);
  for (std::size_t i = layout.used(); i < layout.size(); ++i) {
    ASSERT_EQ(static_cast<float>(x[i]), 7) << c.name() << ": written behind the end";
  }
}

}  // namespace isthmus::cuda
