// SPDX-License-Identifier: Apache-2.0
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/base/check.h"
#include "kernels/fast_kernels.h"
#include "kernels/gemm.h"

namespace isthmus::kernels {
namespace {
constexpr std::int64_t kChunk = 256;  // tokens whose logits exist at a time, at least

struct TokenLoss {
  double loss = 0;
  double z_loss = 0;
};

template <typename Real>
std::int64_t rows_of_all(const CrossEntropy<Real>& ce) {
  return ce.all_rows > 0 ? ce.all_rows : ce.vocab;
}

/// Where the target lies among the own rows; -1: nowhere.
template <typename Real>
std::int64_t own_target(const CrossEntropy<Real>& ce, std::int32_t target) {
  const std::int64_t row = target - ce.first_row;
  return target >= 0 && row >= 0 && row < ce.vocab ? row : -1;
}

template <typename Real>
void check_target(const CrossEntropy<Real>& ce, std::int32_t target) {
  ISTHMUS_CHECK(target < rows_of_all(ce), target, rows_of_all(ce));
}

template <typename Real>
TokenLoss loss_of(const CrossEntropy<Real>& ce, const TokenSoftmax& token) {
  const double log_z = token.top + std::log(token.total);
  return {log_z - token.target_logit, ce.z_loss * log_z * log_z};
}

/// The factor of exp(logit - top) in the gradient.
template <typename Real>
Real gradient_factor(const CrossEntropy<Real>& ce, const TokenSoftmax& token) {
  const double log_z = token.top + std::log(token.total);
  // d(log_z)/d(logit) is the softmax, so the z-loss only widens its factor.
  return static_cast<Real>(ce.gradient_scale * (1 + 2 * ce.z_loss * log_z) / token.total);
}

/// body(first, count, weight) for consecutive rows of the weight: all at once, or as they are
/// given.
template <typename Real, typename Body>
void for_weight_rows(const CrossEntropy<Real>& ce, const Body& body) {
  if (!ce.weight_rows) {
    body(0, ce.vocab, ce.weight);
    return;
  }
  ISTHMUS_CHECK(ce.d_hidden == nullptr && ce.d_weight == nullptr);
  constexpr std::int64_t kFewest = 32;
  const std::int64_t step = std::max(kFewest, kWeightRowsValues / ce.channels / kFewest * kFewest);
  for (std::int64_t first = 0; first < ce.vocab; first += step) {
    const std::int64_t count = std::min(step, ce.vocab - first);
    body(first, count, ce.weight_rows(first, count));
  }
}

template <typename Real>
TokenSoftmax softmax_of_row(const CrossEntropy<Real>& ce, std::int32_t target, const Real* logits) {
  check_target(ce, target);
  const Real top = *std::max_element(logits, logits + ce.vocab);
  double total = 0;
  for (std::int64_t j = 0; j < ce.vocab; ++j)
    total += static_cast<double>(std::exp(logits[j] - top));
  const std::int64_t own = own_target(ce, target);
  return {static_cast<double>(top), total, own < 0 ? 0 : static_cast<double>(logits[own])};
}

// Logits become the gradient of gradient_scale * (loss + z_loss).
template <typename Real>
void gradient_row(const CrossEntropy<Real>& ce, std::int32_t target, const TokenSoftmax& token,
                  Real* logits) {
  if (target < 0) {
    std::fill(logits, logits + ce.vocab, Real{0});
    return;
  }
  const Real top = static_cast<Real>(token.top);
  const Real factor = gradient_factor(ce, token);
  for (std::int64_t j = 0; j < ce.vocab; ++j) logits[j] = factor * std::exp(logits[j] - top);
  const std::int64_t own = own_target(ce, target);
  if (own >= 0) logits[own] -= static_cast<Real>(ce.gradient_scale);
}

/// Caps `count` logits in place.
template <typename Real>
void cap_logits(double cap, std::int64_t count, Real* logits) {
  const Real bound = static_cast<Real>(cap);
  for (std::int64_t j = 0; j < count; ++j) logits[j] = bound * std::tanh(logits[j] / bound);
}

/// Gradients of capped logits become those of the logits before the cap.
template <typename Real>
void cap_gradient(double cap, std::int64_t count, const Real* capped, Real* gradient) {
  const Real inverse = static_cast<Real>(1 / cap);
  for (std::int64_t j = 0; j < count; ++j) {
    const Real share = capped[j] * inverse;
    gradient[j] *= Real{1} - share * share;
  }
}

template <typename Real>
void add_losses(const CrossEntropy<Real>& ce, std::int64_t begin,
                std::span<const TokenSoftmax> tokens, CrossEntropySum& sum) {
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    if (ce.targets[begin + static_cast<std::int64_t>(r)] < 0) continue;
    const TokenLoss token = loss_of(ce, tokens[r]);
    sum.loss += token.loss;
    sum.z_loss += token.z_loss;
    ++sum.counted;
  }
}
}  // namespace

template <typename Real>
CrossEntropySum cross_entropy_reference(ThreadTeam& team, const CrossEntropy<Real>& ce) {
  ISTHMUS_CHECK(ce.vocab >= 1 && ce.channels >= 1, ce.vocab, ce.channels);
  CrossEntropySum sum;
  std::vector<TokenSoftmax> softmax;
  for (std::int64_t begin = 0; begin < ce.tokens; begin += kChunk) {
    const std::int64_t rows = std::min(kChunk, ce.tokens - begin);
    const Real* hidden = ce.hidden + begin * ce.channels;
    Real* logits = team.scratch<Real>(Scratch::kLogits, rows * ce.vocab);
    for_weight_rows(ce, [&](std::int64_t first, std::int64_t count, const Real* weight) {
      gemm<Real>(team, {.m = rows,
                        .n = count,
                        .k = ce.channels,
                        .a = hidden,
                        .lda = ce.channels,
                        .b = weight,
                        .ldb = ce.channels,
                        .b_transposed = true,
                        .c = logits + first,
                        .ldc = ce.vocab,
                        .bf16 = ce.bf16});
    });
    softmax.resize(static_cast<std::size_t>(rows));
    if (ce.cap > 0) {
      team.for_each(
          rows, [&](std::int64_t r, int) { cap_logits(ce.cap, ce.vocab, logits + r * ce.vocab); });
    }
    team.for_each(rows, [&](std::int64_t r, int) {
      softmax[static_cast<std::size_t>(r)] =
          softmax_of_row(ce, ce.targets[begin + r], logits + r * ce.vocab);
    });
    if (ce.join) ce.join(softmax);
    add_losses<Real>(ce, begin, softmax, sum);
    team.for_each(rows, [&](std::int64_t r, int) {
      Real* const row = logits + r * ce.vocab;
      const std::vector<Real> capped(row, row + (ce.cap > 0 ? ce.vocab : 0));
      gradient_row(ce, ce.targets[begin + r], softmax[static_cast<std::size_t>(r)], row);
      if (ce.cap > 0) cap_gradient(ce.cap, ce.vocab, capped.data(), row);
    });
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
                        .accumulate = true,
                        .bf16 = ce.bf16});
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
                        .ldc = ce.channels,
                        .bf16 = ce.bf16});
    }
  }
  return sum;
}

// As long as fits, since every chunk passes once over the weight and its gradient.
std::int64_t cross_entropy_chunk(std::int64_t tokens, std::int64_t vocab) {
  constexpr std::int64_t kValues = std::int64_t{1} << 22;
  const std::int64_t fit = kValues / vocab / kChunk * kChunk;
  return std::min(std::max(fit, kChunk), tokens);
}

namespace {
constexpr std::int64_t kBlockTokens = 64;
constexpr std::int64_t kBlockRows = 32;  // rows of the vocabulary in one partial softmax

// Rows of logits an odd number of cache lines apart, so that a column spreads over all sets.
std::int64_t padded(std::int64_t tokens) { return ((tokens + 15) / 16 | 1) * 16; }

/// One chunk of tokens with its logits transposed, (vocab, rows).
class LogitsChunk {
 public:
  LogitsChunk(ThreadTeam& team, const CrossEntropy<float>& ce, std::int64_t chunk)
      : team_(team), ce_(ce), blocks_((ce.vocab + kBlockRows - 1) / kBlockRows) {
    ld_ = padded(chunk);
    logits_ = team.scratch<float>(Scratch::kLogits, ld_ * (ce.vocab + 2 * blocks_ + 2));
    tops_ = logits_ + ld_ * ce.vocab;
    sums_ = tops_ + ld_ * blocks_;
    top_ = sums_ + ld_ * blocks_;
    factor_ = top_ + ld_;
  }

  void run(std::int64_t begin, std::int64_t rows, CrossEntropySum& sum) {
    begin_ = begin;
    rows_ = rows;
    softmax_.resize(static_cast<std::size_t>(rows));
    const float* hidden = ce_.hidden + begin * ce_.channels;
    for_weight_rows(ce_, [&](std::int64_t first, std::int64_t count, const float* weight) {
      gemm<float>(team_, {.m = count,
                          .n = rows,
                          .k = ce_.channels,
                          .a = weight,
                          .lda = ce_.channels,
                          .b = hidden,
                          .ldb = ce_.channels,
                          .b_transposed = true,
                          .c = logits_ + first * ld_,
                          .ldc = ld_,
                          .bf16 = ce_.bf16});
    });
    if (ce_.cap > 0) {
      team_.for_blocks(ce_.vocab, kBlockRows, [&](std::int64_t first, std::int64_t end) {
        for (std::int64_t j = first; j < end; ++j) cap_logits(ce_.cap, rows, logits_ + j * ld_);
      });
    }
    team_.for_each(blocks_, [&](std::int64_t block, int) {
      fast_kernels().column_softmax_sums(logits_ + block * kBlockRows * ld_, ld_, rows_of(block),
                                         rows_, tops_ + block * ld_, sums_ + block * ld_);
    });
    team_.for_blocks(rows, kBlockTokens, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t r = first; r < end; ++r) finish_token(r);
    });
    if (ce_.join) ce_.join(softmax_);
    add_losses<float>(ce_, begin, softmax_, sum);
    if (ce_.d_hidden == nullptr && ce_.d_weight == nullptr) return;
    for (std::int64_t r = 0; r < rows; ++r) {
      const TokenSoftmax& token = softmax_[static_cast<std::size_t>(r)];
      top_[r] = static_cast<float>(token.top);
      factor_[r] = ce_.targets[begin + r] < 0 ? 0 : gradient_factor(ce_, token);
    }
    if (ce_.cap > 0) {
      capped_gradient(begin);
    } else {
      team_.for_each(blocks_, [&](std::int64_t block, int) {
        fast_kernels().column_softmax_gradient(logits_ + block * kBlockRows * ld_, ld_,
                                               rows_of(block), rows_, top_, factor_);
      });
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t own = own_target(ce_, ce_.targets[begin + r]);
        if (own >= 0) logits_[own * ld_ + r] -= static_cast<float>(ce_.gradient_scale);
      }
    }
    if (ce_.d_weight != nullptr) {
      gemm<float>(team_, {.m = ce_.vocab,
                          .n = ce_.channels,
                          .k = rows,
                          .a = logits_,
                          .lda = ld_,
                          .b = hidden,
                          .ldb = ce_.channels,
                          .c = ce_.d_weight,
                          .ldc = ce_.channels,
                          .accumulate = true,
                          .bf16 = ce_.bf16});
    }
    if (ce_.d_hidden != nullptr) {
      gemm<float>(team_, {.m = rows,
                          .n = ce_.channels,
                          .k = ce_.vocab,
                          .a = logits_,
                          .lda = ld_,
                          .a_transposed = true,
                          .b = ce_.weight,
                          .ldb = ce_.channels,
                          .c = ce_.d_hidden + begin * ce_.channels,
                          .ldc = ce_.channels,
                          .bf16 = ce_.bf16});
    }
  }

 private:
  std::int64_t rows_of(std::int64_t block) const {
    return std::min(ce_.vocab - block * kBlockRows, kBlockRows);
  }

  /// The chunk's capped logits become the gradients of the logits before their cap, row by row of
  /// the vocabulary.
  void capped_gradient(std::int64_t begin) {
    team_.for_each(blocks_, [&](std::int64_t block, int) {
      std::vector<float> capped(static_cast<std::size_t>(rows_));
      for (std::int64_t row = block * kBlockRows; row < block * kBlockRows + rows_of(block);
           ++row) {
        float* const logits = logits_ + row * ld_;
        std::copy_n(logits, rows_, capped.begin());
        fast_kernels().column_softmax_gradient(logits, ld_, 1, rows_, top_, factor_);
        for (std::int64_t r = 0; r < rows_; ++r) {
          if (own_target(ce_, ce_.targets[begin + r]) != row) continue;
          logits[r] -= static_cast<float>(ce_.gradient_scale);
        }
        cap_gradient(ce_.cap, rows_, capped.data(), logits);
      }
    });
  }

  /// Joins the partial softmax sums of token r, in order of the vocabulary.
  void finish_token(std::int64_t r) {
    const std::int32_t target = ce_.targets[begin_ + r];
    check_target(ce_, target);
    float top = tops_[r];
    for (std::int64_t b = 1; b < blocks_; ++b) top = std::max(top, tops_[b * ld_ + r]);
    double total = 0;
    for (std::int64_t b = 0; b < blocks_; ++b) {
      total += static_cast<double>(sums_[b * ld_ + r]) *
               static_cast<double>(std::exp(tops_[b * ld_ + r] - top));
    }
    const std::int64_t own = own_target(ce_, target);
    softmax_[static_cast<std::size_t>(r)] = {
        static_cast<double>(top), total, own < 0 ? 0 : static_cast<double>(logits_[own * ld_ + r])};
  }

  ThreadTeam& team_;
  const CrossEntropy<float>& ce_;
  const std::int64_t blocks_;
  std::int64_t ld_ = 0;                       // between rows of all the arrays below
  float* logits_ = nullptr;                   // (vocab, rows), then their gradients
  float *tops_ = nullptr, *sums_ = nullptr;   // (blocks, rows): partial softmax
  float *top_ = nullptr, *factor_ = nullptr;  // (rows,)
  std::vector<TokenSoftmax> softmax_;         // of the chunk's tokens
  std::int64_t begin_ = 0;
  std::int64_t rows_ = 0;
};
}  // namespace

template <typename Real>
CrossEntropySum cross_entropy(ThreadTeam& team, const CrossEntropy<Real>& ce) {
  if constexpr (std::is_same_v<Real, float>) {
    ISTHMUS_CHECK(ce.vocab >= 1 && ce.channels >= 1, ce.vocab, ce.channels);
    const std::int64_t chunk = cross_entropy_chunk(ce.tokens, std::max(ce.vocab, ce.largest_share));
    LogitsChunk logits(team, ce, chunk);
    CrossEntropySum sum;
    for (std::int64_t begin = 0; begin < ce.tokens; begin += chunk) {
      logits.run(begin, std::min(chunk, ce.tokens - begin), sum);
    }
    return sum;
  } else {
    return cross_entropy_reference(team, ce);
  }
}

template CrossEntropySum cross_entropy_reference(ThreadTeam&, const CrossEntropy<float>&);
template CrossEntropySum cross_entropy_reference(ThreadTeam&, const CrossEntropy<double>&);
template CrossEntropySum cross_entropy(ThreadTeam&, const CrossEntropy<float>&);
template CrossEntropySum cross_entropy(ThreadTeam&, const CrossEntropy<double>&);

}  // namespace isthmus::kernels
