// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.h"

#include <algorithm>

#include "core/base/check.h"

namespace isthmus::kernels {
namespace {
constexpr std::int64_t kBlockRows = 32;
// Channels a member owns in the backward pass: one owner per channel lets rows add in order.
constexpr std::int64_t kBlockChannels = 64;

template <typename Real>
void check(const Embedding<Real>& e) {
  ISTHMUS_CHECK(e.seq >= 1 && e.rows % e.seq == 0, e.rows, e.seq);
  for (std::int64_t r = 0; r < e.rows; ++r) {
    ISTHMUS_CHECK(e.ids[r] >= 0 && e.ids[r] < e.vocab, r, e.ids[r], e.vocab);
    ISTHMUS_CHECK(e.position(r) >= 0 && e.position(r) < e.seq, r, e.position(r), e.seq);
  }
}
}  // namespace

template <typename Real>
void embedding_forward(ThreadTeam& team, const Embedding<Real>& e, const Real* table,
                       const Real* positions, Real* y) {
  check(e);
  const std::int64_t c = e.channels;
  team.for_blocks(e.rows, kBlockRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const Real* token = table + e.ids[r] * c;
      std::copy(token, token + c, y + r * c);
      if (positions == nullptr) continue;
      const Real* position = positions + e.position(r) * c;
      for (std::int64_t i = 0; i < c; ++i) y[r * c + i] += position[i];
    }
  });
}

template <typename Real>
void embedding_backward(ThreadTeam& team, const Embedding<Real>& e, const Real* dy, Real* d_table,
                        Real* d_positions) {
  check(e);
  const std::int64_t c = e.channels;
  team.for_blocks(c, kBlockChannels, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = 0; r < e.rows; ++r) {
      const Real* row = dy + r * c;
      if (d_table != nullptr) {
        Real* token = d_table + e.ids[r] * c;
        for (std::int64_t i = begin; i < end; ++i) token[i] += row[i];
      }
      if (d_positions != nullptr) {
        Real* position = d_positions + e.position(r) * c;
        for (std::int64_t i = begin; i < end; ++i) position[i] += row[i];
      }
    }
  });
}

#define ISTHMUS_INSTANTIATE(Real)                                                                \
  template void embedding_forward(ThreadTeam&, const Embedding<Real>&, const Real*, const Real*, \
                                  Real*);                                                        \
  template void embedding_backward(ThreadTeam&, const Embedding<Real>&, const Real*, Real*, Real*);
ISTHMUS_INSTANTIATE(float)
ISTHMUS_INSTANTIATE(double)
#undef ISTHMUS_INSTANTIATE

}  // namespace isthmus::kernels
