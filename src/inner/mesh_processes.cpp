// SPDX-License-Identifier: Apache-2.0
// The mesh whose ranks are processes. The first has the canonical weights and gradients. A pass:
// an order with the tokens to all; to the first data-parallel rank of each share its weights, which
// hands them on to the others; the pass; the sums of the gradients over the data-parallel ranks,
// each slice back to the first. So the first sends and receives 2 N values a step, as in an
// all-reduce, however many ranks there are.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "core/check.h"
#include "inner/mesh_model.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kFirst = 0;
// Tags: weights and gradients of chunk k, and losses.
constexpr int kLosses = 0;
constexpr int weights_tag(std::size_t chunk) { return 1 + 2 * static_cast<int>(chunk); }
constexpr int gradients_tag(std::size_t chunk) { return 2 + 2 * static_cast<int>(chunk); }

enum class Ask : std::int64_t { kEnd, kLoss, kTrain };

/// What the first rank asks all for.
struct Order {
  Ask ask = Ask::kEnd;
  std::int64_t sequences = 0, length = 0;
  double gradient_scale = 0;
};

using Words = std::array<std::int64_t, 4>;

Words words_of(const Order& order) {
  return {static_cast<std::int64_t>(order.ask), order.sequences, order.length,
          std::bit_cast<std::int64_t>(order.gradient_scale)};
}

Order order_of(const Words& words) {
  return {static_cast<Ask>(words[0]), words[1], words[2], std::bit_cast<double>(words[3])};
}

/// One rank's part of every pass, on the first rank as on the others.
class MeshProcess {
 public:
  MeshProcess(const ModelLayout& canonical, const MeshOptions& options, Communicator& ranks)
      : options_(options), ranks_(ranks), rank_(canonical, options, ranks, true) {
    if (ranks.rank() != kFirst) return;
    for (int r = 0; r < ranks.size(); ++r) {
      layouts_.push_back(MeshRank::layouts(canonical, options, r));
      for (const RankLayout& layout : layouts_.back()) {
        largest_ = std::max(largest_, layout.local().elements());
      }
    }
    scratch_ = kernels::AlignedBuffer(static_cast<std::size_t>(largest_) * sizeof(float));
  }

  /// Tells the order; REQUIRES: the first rank.
  void announce(const Order& order) {
    Words words = words_of(order);
    ranks_.broadcast({words.data(), 4, Dtype::kI64}, kFirst);
  }
  [[nodiscard]] Order await_order() {
    Words words{};
    ranks_.broadcast({words.data(), 4, Dtype::kI64}, kFirst);
    return order_of(words);
  }

  /// weights, gradients: canonical on the first rank, null on the others; batch: the first's.
  /// RETURNS: the whole batch's losses on the first rank.
  LossSum run(const Order& order, const float* weights, const TokenBatch& batch, float* gradients) {
    share_tokens(order, batch);
    share_weights(weights);
    const TokenBatch all{inputs_, targets_, order.sequences, order.length};
    if (order.ask == Ask::kLoss) return collect_losses(rank_.loss(all));
    const LossSum own = rank_.train(all, order.gradient_scale);
    rank_.sum_gradients();
    collect_gradients(gradients);
    return collect_losses(own);
  }

  [[nodiscard]] std::size_t held_bytes() const { return rank_.held_bytes() + scratch_.bytes(); }
  [[nodiscard]] Communicator& ranks() { return ranks_; }

 private:
  [[nodiscard]] float* scratch() const { return static_cast<float*>(scratch_.data()); }
  [[nodiscard]] MeshPosition position(int rank) const { return mesh_position(options_.mesh, rank); }
  [[nodiscard]] const std::vector<RankLayout>& layouts(int rank) const {
    return layouts_[static_cast<std::size_t>(rank)];
  }

  void share_tokens(const Order& order, const TokenBatch& batch) {
    const auto tokens = static_cast<std::size_t>(order.sequences * order.length);
    if (ranks_.rank() == kFirst) {
      inputs_.assign(batch.inputs.begin(), batch.inputs.end());
      targets_.assign(batch.targets.begin(), batch.targets.end());
    }
    inputs_.resize(tokens);
    targets_.resize(tokens);
    for (std::vector<std::int32_t>* part : {&inputs_, &targets_}) {
      ranks_.broadcast({part->data(), static_cast<std::int64_t>(tokens), Dtype::kI32}, kFirst);
    }
  }

  void share_weights(const float* weights) {
    if (ranks_.rank() == kFirst) {
      for (int r = 1; r < ranks_.size(); ++r) {
        if (position(r).dp != 0) continue;
        for (std::size_t k = 0; k < layouts(r).size(); ++k) {
          const RankLayout& layout = layouts(r)[k];
          layout.take(weights, scratch());
          ranks_.send({scratch(), layout.local().elements(), Dtype::kF32}, r, weights_tag(k));
        }
      }
      rank_.use_weights(weights);
    }
    for (std::size_t k = 0; k < rank_.chunks(); ++k) {
      const Values own{rank_.weights(k), rank_.layout(k).local().elements(), Dtype::kF32};
      if (ranks_.rank() != kFirst && rank_.position().dp == 0) {
        ranks_.receive(own, kFirst, weights_tag(k));
      }
      rank_.groups().data->broadcast(own, 0);
    }
  }

  void collect_gradients(float* gradients) {
    if (ranks_.rank() != kFirst) {
      for (std::size_t k = 0; k < rank_.chunks(); ++k) {
        const CanonicalRange slice = rank_.slice(k);
        ranks_.send({rank_.gradients(k) + slice.begin, slice.size(), Dtype::kF32}, kFirst,
                    gradients_tag(k));
      }
      return;
    }
    // A tied head is held by the last stage, whose ranks come last: its table is there by then.
    for (int r = 0; r < ranks_.size(); ++r) {
      for (std::size_t k = 0; k < layouts(r).size(); ++k) {
        const RankLayout& layout = layouts(r)[k];
        const CanonicalRange slice = slice_of(layout, options_.mesh.dp, position(r).dp);
        const float* local = rank_.gradients(r == kFirst ? k : 0);
        if (r != kFirst) {
          ranks_.receive({scratch() + slice.begin, slice.size(), Dtype::kF32}, r, gradients_tag(k));
          local = scratch();
        }
        give_slice(layout, local, slice, false, gradients);
        give_slice(layout, local, slice, true, gradients);
      }
    }
  }

  LossSum collect_losses(const LossSum& own) {
    std::array<double, 3> words = {own.loss, own.z_loss, static_cast<double>(own.targets)};
    LossSum sum;
    for (int r = 0; r < ranks_.size(); ++r) {
      if (position(r).tp != 0 || position(r).pp + 1 != options_.mesh.pp) continue;
      if (ranks_.rank() == r && r != kFirst)
        ranks_.send({words.data(), 3, Dtype::kF64}, 0, kLosses);
      if (ranks_.rank() != kFirst) continue;
      std::array<double, 3> part = words;
      if (r != kFirst) ranks_.receive({part.data(), 3, Dtype::kF64}, r, kLosses);
      sum += {part[0], part[1], static_cast<std::int64_t>(part[2])};
    }
    return sum;
  }

  MeshOptions options_;
  Communicator& ranks_;
  MeshRank rank_;
  std::vector<std::vector<RankLayout>> layouts_;  // of all ranks; the first rank's alone
  std::int64_t largest_ = 0;
  kernels::AlignedBuffer scratch_;
  std::vector<std::int32_t> inputs_, targets_;
};

class ProcessMesh final : public MeshModel {
 public:
  ProcessMesh(const ModelLayout& canonical, const MeshOptions& options, Communicator& ranks)
      : process_(canonical, options, ranks) {}
  // The others cannot be told of an end that comes by an error; they are not left waiting either.
  ~ProcessMesh() override {
    try {
      if (!failed_) process_.announce({});
    } catch (const std::exception&) {
      process_.ranks().abort("the first rank ended");
    }
  }

  [[nodiscard]] LossSum loss(const float* weights, const TokenBatch& batch) override {
    return run({Ask::kLoss, batch.sequences, batch.length, 0}, weights, batch, nullptr);
  }
  LossSum loss_and_gradients(const float* weights, const TokenBatch& batch, double gradient_scale,
                             float* gradients) override {
    return run({Ask::kTrain, batch.sequences, batch.length, gradient_scale}, weights, batch,
               gradients);
  }
  [[nodiscard]] std::size_t held_bytes() const override { return process_.held_bytes(); }

 private:
  LossSum run(const Order& order, const float* weights, const TokenBatch& batch, float* gradients) {
    try {
      process_.announce(order);
      return process_.run(order, weights, batch, gradients);
    } catch (const CommunicatorError& error) {
      failed_ = true;
      process_.ranks().abort(error.what());  // a group that has ended leaves the others alone
      throw PeerError(error.what());
    } catch (const std::exception& error) {
      failed_ = true;
      process_.ranks().abort(error.what());
      throw;
    }
  }

  MeshProcess process_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<MeshModel> make_process_mesh(const ModelLayout& canonical,
                                             const MeshOptions& options, Communicator& ranks) {
  ISTHMUS_CHECK(ranks.rank() == kFirst, ranks.rank());
  return std::make_unique<ProcessMesh>(canonical, options, ranks);
}

void serve_mesh(const ModelLayout& canonical, const MeshOptions& options, Communicator& ranks) {
  try {
    MeshProcess process(canonical, options, ranks);
    for (;;) {
      const Order order = process.await_order();
      if (order.ask == Ask::kEnd) return;
      process.run(order, nullptr, {}, nullptr);
    }
  } catch (const std::exception& error) {
    ranks.abort(error.what());
    throw;
  }
}

}  // namespace isthmus
