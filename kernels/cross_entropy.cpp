// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/check.h"
#include "kernels/gemm.h"

namespace isthmus::kernels {
namespace {
constexpr std::int64_t kChunk = 256;  // tokens whose logits exist at a time

struct TokenLoss {
  double loss = 0;
  double z_loss = 0;
};

// Loss of one row of logits, which become the gradient of gradient_scale * (loss + z_loss).
template <typename Real>
TokenLoss softmax_row(const CrossEntropy<Real>& ce, std::int32_t target, Real* logits) {
  if (target < 0) {
    std::fill(logits, logits + ce.vocab, Real{0});
    return {};
  }
  ISTHMUS_CHECK(target < ce.vocab, target, ce.vocab);
  const Real top = *std::max_element(logits, logits + ce.vocab);
  double total = 0;
  for (std::int64_t j = 0; j < ce.vocab; ++j)
    total += static_cast<double>(std::exp(logits[j] - top));
  const double log_z = static_cast<double>(top) + std::log(total);
  const TokenLoss loss{log_z - static_cast<double>(logits[target]), ce.z_loss * log_z * log_z};
  // d(log_z)/d(logit) is the softmax, so the z-loss only widens its factor.
  const Real factor = static_cast<Real>(ce.gradient_scale * (1 + 2 * ce.z_loss * log_z) / total);
  for (std::int64_t j = 0; j < ce.vocab; ++j) logits[j] = factor * std::exp(logits[j] - top);
  logits[target] -= static_cast<Real>(ce.gradient_scale);
  return loss;
}
}  // namespace

template <typename Real>
CrossEntropySum cross_entropy_reference(ThreadTeam& team, const CrossEntropy<Real>& ce) {
  ISTHMUS_CHECK(ce.vocab >= 1 && ce.channels >= 1, ce.vocab, ce.channels);
  CrossEntropySum sum;
  std::vector<TokenLoss> losses(kChunk);
  for (std::int64_t begin = 0; begin < ce.tokens; begin += kChunk) {
    const std::int64_t rows = std::min(kChunk, ce.tokens - begin);
    const Real* hidden = ce.hidden + begin * ce.channels;
    Real* logits = team.scratch<Real>(Scratch::kLogits, rows * ce.vocab);
    gemm<Real>(team, {.m = rows,
                      .n = ce.vocab,
                      .k = ce.channels,
                      .a = hidden,
                      .lda = ce.channels,
                      .b = ce.weight,
                      .ldb = ce.channels,
                      .b_transposed = true,
                      .c = logits,
                      .ldc = ce.vocab});
    team.for_each(rows, [&](std::int64_t r, int) {
      losses[static_cast<std::size_t>(r)] =
          softmax_row(ce, ce.targets[begin + r], logits + r * ce.vocab);
    });
    for (std::int64_t r = 0; r < rows; ++r) {
      const TokenLoss& token = losses[static_cast<std::size_t>(r)];
      sum.loss += token.loss;
      sum.z_loss += token.z_loss;
      sum.counted += ce.targets[begin + r] >= 0 ? 1 : 0;
      if (ce.token_loss != nullptr) ce.token_loss[begin + r] = static_cast<Real>(token.loss);
    }
    if (ce.d_hidden != nullptr) {
      gemm<Real>(team, {.m = rows,
                        .n = ce.channels,
                        .k = ce.vocab,
                        .a = logits,
                        .lda = ce.vocab,
                        .b = ce.weight,
                        .ldb = ce.channels,
                        .c = ce.d_hidden + begin * ce.channels,
                        .ldc = ce.channels});
    }
    if (ce.d_weight != nullptr) {
      gemm<Real>(team, {.m = ce.vocab,
                        .n = ce.channels,
                        .k = rows,
                        .a = logits,
                        .lda = ce.vocab,
                        .a_transposed = true,
                        .b = hidden,
                        .ldb = ce.channels,
                        .c = ce.d_weight,
                        .ldc = ce.channels,
                        .accumulate = true});
    }
  }
  return sum;
}

template <typename Real>
CrossEntropySum cross_entropy(ThreadTeam& team, const CrossEntropy<Real>& ce) {
  return cross_entropy_reference(team, ce);
}

template CrossEntropySum cross_entropy_reference(ThreadTeam&, const CrossEntropy<float>&);
template CrossEntropySum cross_entropy_reference(ThreadTeam&, const CrossEntropy<double>&);
template CrossEntropySum cross_entropy(ThreadTeam&, const CrossEntropy<float>&);
template CrossEntropySum cross_entropy(ThreadTeam&, const CrossEntropy<double>&);

}  // namespace isthmus::kernels
