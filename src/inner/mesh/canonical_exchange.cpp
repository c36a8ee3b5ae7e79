// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/canonical_exchange.h"

#include <algorithm>

#include "inner/mesh/gradient_shares.h"

namespace isthmus {
namespace {

constexpr std::int64_t kPiece = CanonicalExchange::kPiece;

/// body(piece) for consecutive pieces of `range`.
template <typename Body>
void for_pieces(CanonicalRange range, const Body& body) {
  for (std::int64_t begin = range.begin; begin < range.end; begin += kPiece) {
    body(CanonicalRange{begin, std::min(begin + kPiece, range.end)});
  }
}

constexpr int weights_tag(std::size_t chunk) {
  return CanonicalExchange::kFirstTag + 2 * static_cast<int>(chunk);
}
constexpr int gradients_tag(std::size_t chunk) { return weights_tag(chunk) + 1; }

}  // namespace

CanonicalExchange::CanonicalExchange(const ModelLayout& canonical, const MeshOptions& options,
                                     Communicator& ranks, MeshRank& rank)
    : options_(options), ranks_(ranks), rank_(rank) {
  if (!first()) return;
  for (int r = 0; r < ranks_.size(); ++r) {
    layouts_.push_back(MeshRank::layouts(canonical, options, r));
  }
  piece_.resize(static_cast<std::size_t>(bytes(canonical, options)) / sizeof(float));
}

std::int64_t CanonicalExchange::bytes(const ModelLayout& canonical, const MeshOptions& options) {
  std::int64_t largest = 0;
  for (int r = 0; r < options.mesh.ranks(); ++r) {
    for (const RankLayout& layout : MeshRank::layouts(canonical, options, r)) {
      largest = std::max(largest, layout.local().elements());
    }
  }
  return std::min(largest, kPiece) * static_cast<std::int64_t>(sizeof(float));
}

void CanonicalExchange::for_parts(
    TensorRange tensors,
    const std::function<void(int rank, std::size_t chunk, CanonicalRange)>& body) {
  for (int r = 0; r < ranks_.size(); ++r) {
    for (std::size_t k = 0; k < layouts(r).size(); ++k) {
      const StageStateOptions options{.ranks = options_.mesh.dp, .rank = position(r).dp};
      const CanonicalRange part = common(StageState::owned(layouts(r)[k], options),
                                         layouts(r)[k].places(tensors.begin, tensors.end));
      if (part.size() > 0) body(r, k, part);
    }
  }
}

LocalValues CanonicalExchange::own_part(RankValues what, TensorRange tensors, std::size_t chunk) {
  const LocalValues own = rank_.state(chunk).owned_values(what);
  const CanonicalRange part =
      common(own.range, rank_.layout(chunk).places(tensors.begin, tensors.end));
  if (part.size() == 0) return {};
  return {own.at(part.begin), part};
}

void CanonicalExchange::collect(RankValues what, TensorRange tensors, float* canonical) {
  if (!first()) {
    for (std::size_t k = 0; k < rank_.chunks(); ++k) {
      const LocalValues own = own_part(what, tensors, k);
      for_pieces(own.range, [&](CanonicalRange piece) {
        ranks_.send({own.at(piece.begin), piece.size(), Dtype::kF32}, kFirst, gradients_tag(k));
      });
    }
    return;
  }
  for_parts(tensors, [&](int r, std::size_t k, CanonicalRange part) {
    if (r == kFirst) {
      layouts(r)[k].give(own_part(what, tensors, k).values, part, canonical);
      return;
    }
    for_pieces(part, [&](CanonicalRange piece) {
      ranks_.receive({piece_.data(), piece.size(), Dtype::kF32}, r, gradients_tag(k));
      layouts(r)[k].give(piece_.data(), piece, canonical);
    });
  });
}

void CanonicalExchange::hand_out(RankValues what, TensorRange tensors, const float* canonical) {
  if (!first()) {
    for (std::size_t k = 0; k < rank_.chunks(); ++k) {
      receive_weights(own_part(what, tensors, k), k);
    }
    return;
  }
  for_parts(tensors, [&](int r, std::size_t k, CanonicalRange part) {
    if (r == kFirst) {
      layouts(r)[k].take(canonical, part, own_part(what, tensors, k).values);
    } else {
      send_weights(canonical, part, r, k);
    }
  });
}

void CanonicalExchange::send_weights(const float* canonical, CanonicalRange part, int to,
                                     std::size_t chunk) {
  for_pieces(part, [&](CanonicalRange piece) {
    layouts(to)[chunk].take(canonical, piece, piece_.data());
    ranks_.send({piece_.data(), piece.size(), Dtype::kF32}, to, weights_tag(chunk));
  });
}

void CanonicalExchange::receive_weights(const LocalValues& own, std::size_t chunk) {
  for_pieces(own.range, [&](CanonicalRange piece) {
    ranks_.receive({own.at(piece.begin), piece.size(), Dtype::kF32}, kFirst, weights_tag(chunk));
  });
}

void CanonicalExchange::share_weights(const float* weights) {
  if (first()) {
    for (int r = 1; r < ranks_.size(); ++r) {
      if (position(r).dp != 0) continue;
      for (std::size_t k = 0; k < layouts(r).size(); ++k) {
        send_weights(weights, {0, layouts(r)[k].local().elements()}, r, k);
      }
    }
    rank_.use_weights(weights);
  }
  for (std::size_t k = 0; k < rank_.chunks(); ++k) {
    const LocalValues own = rank_.state(k).own_weights();
    if (!first() && rank_.position().dp == 0) receive_weights(own, k);
    rank_.groups().data->broadcast({own.values, own.range.size(), Dtype::kF32}, 0);
    rank_.state(k).wrote_weights();
  }
}

void CanonicalExchange::collect_gradients(float* gradients) {
  if (!first()) {
    for (std::size_t k = 0; k < rank_.chunks(); ++k) {
      const LocalValues own = rank_.state(k).gradients();
      for (const CanonicalRange& share :
           gradient_shares(rank_.layout(k), options_, rank_.position().dp)) {
        for_pieces(share, [&](CanonicalRange piece) {
          ranks_.send({own.at(piece.begin), piece.size(), Dtype::kF32}, kFirst, gradients_tag(k));
        });
      }
    }
    return;
  }
  for (int r = 0; r < ranks_.size(); ++r) {
    for (std::size_t k = 0; k < layouts(r).size(); ++k) {
      const RankLayout& layout = layouts(r)[k];
      const auto give = [&](CanonicalRange piece) {
        LocalValues local{piece_.data(), piece};
        if (r == kFirst) {
          local = rank_.state(k).gradients();
        } else {
          ranks_.receive({piece_.data(), piece.size(), Dtype::kF32}, r, gradients_tag(k));
        }
        give_share(layout, local, piece, gradients);
      };
      for (const CanonicalRange& share : gradient_shares(layout, options_, position(r).dp)) {
        for_pieces(share, give);
      }
    }
  }
}

}  // namespace isthmus
