// SPDX-License-Identifier: Apache-2.0
// The mesh whose ranks are processes. The first has the canonical weights and gradients. A pass:
// an order with the tokens to all; to the first data-parallel rank of each share its weights, which
// hands them on to the others; the pass; the sums of the gradients over the data-parallel ranks,
// each slice back to the first. So the first sends and receives 2 N values a step, as in an
// all-reduce, however many ranks there are. After some passes of training each rank tells the first
// how long it has computed (inner/rank_readings.h).
//
// With ZeRO the ranks keep the sums and update their slices, which they gather among themselves and
// give to the first: N values a step, and N more when others than the ranks have changed the
// weights.
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <vector>

#include "core/check.h"
#include "core/hash.h"
#include "inner/canonical_exchange.h"
#include "inner/mesh_model.h"
#include "inner/mesh_order.h"
#include "inner/mesh_update.h"
#include "inner/rank_readings.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kFirst = CanonicalExchange::kFirst;
constexpr int kLosses = 0;  // their tag
static_assert(kLosses != RankReadings::kTag && CanonicalExchange::kFirstTag > RankReadings::kTag);

/// One rank's part of every pass, on the first rank as on the others.
class MeshProcess {
 public:
  MeshProcess(const ModelLayout& canonical, const MeshOptions& options, RankProcesses& processes)
      : options_(options),
        tensors_(canonical.tensors().size()),
        processes_(processes),
        readings_(options.mesh, come_together(processes)),
        ranks_(readings_.ranks()),
        rank_(canonical, options, ranks_, true),
        exchange_(canonical, options, ranks_, rank_) {
    if (options.zero >= 1) update_.emplace(canonical, options, rank_);
  }

  /// Tells the order. RETURNS: it, with readings where they are due. REQUIRES: the first rank.
  Order announce(Order order) {
    order.readings = (order.ask == Ask::kTrain || order.ask == Ask::kSlices) && readings_.due();
    Words words = words_of(order);
    processes_.orders.broadcast({words.data(), kWords, Dtype::kI64}, kFirst);
    return order;
  }
  [[nodiscard]] Order await_order() {
    Words words{};
    processes_.orders.broadcast({words.data(), kWords, Dtype::kI64}, kFirst);
    return order_of(words);
  }

  /// RETURNS: the whole batch's losses on the first rank, after a pass.
  LossSum run(const Order& order, const Canonical& first) {
    switch (order.ask) {
      case Ask::kEnd:
        return {};
      case Ask::kLoss:
        return pass(order, first);
      case Ask::kTrain:
      case Ask::kSlices:
        return read_pass(order, first);
      case Ask::kCollect:
        exchange_.collect(static_cast<RankValues>(order.what), first.collected);
        return {};
      case Ask::kHandOut:
        exchange_.hand_out(static_cast<RankValues>(order.what), first.handed_out);
        if (static_cast<RankValues>(order.what) == RankValues::kWeights) {
          update_->gather_handed_out();
        }
        return {};
      case Ask::kUpdate:
        update_->update(order.lr, order.gradient_scale, nullptr);
        update_->gather_weights();
        exchange_.collect(RankValues::kWeights, first.collected);
        return {};
      case Ask::kReset:
        for (std::size_t k = 0; k < rank_.chunks(); ++k) rank_.state(k).reset_optimizer(order.what);
        return {};
    }
    ISTHMUS_CHECK(false, static_cast<std::int64_t>(order.ask));
    return {};
  }

  [[nodiscard]] std::size_t held_bytes() const {
    return rank_.held_bytes() + exchange_.held_bytes();
  }
  [[nodiscard]] RankProcesses& processes() { return processes_; }

 private:
  /// The first rank may have been busy elsewhere before; from here on ranks wait with patience.
  static RankProcesses& come_together(RankProcesses& processes) {
    processes.orders.barrier();
    return processes;
  }

  LossSum read_pass(const Order& order, const Canonical& first) {
    const TimePoint begin = processes_.clock.now();
    const LossSum sum = pass(order, first);
    readings_.add_pass(std::chrono::duration<double>(processes_.clock.now() - begin).count());
    if (order.readings) readings_.exchange();
    return sum;
  }

  LossSum pass(const Order& order, const Canonical& first) {
    share_tokens(order, first.batch);
    if (order.new_weights && options_.zero == 3) {
      exchange_.hand_out(RankValues::kWeights, first.weights);
      update_->gather_handed_out();
      for (std::size_t k = 0; k < rank_.chunks(); ++k) rank_.state(k).forget_gathered();
    } else if (order.new_weights) {
      exchange_.share_weights(first.weights);
    }
    const TokenBatch all{inputs_, targets_, order.sequences, order.length};
    if (order.ask == Ask::kLoss) return collect_losses(rank_.loss(all));
    LossSum own;
    readings_.count([&] {
      own = rank_.train(all, order.gradient_scale);
      rank_.sum_gradients();
    });
    if (order.ask == Ask::kTrain) {
      exchange_.collect_gradients(first.collected);
    } else {
      update_->share_tied_gradients();
      std::vector<double> squares(tensors_);
      update_->sum_squares(squares);
      std::ranges::copy_n(squares.begin(), static_cast<std::ptrdiff_t>(first.squares.size()),
                          first.squares.begin());
    }
    return collect_losses(own);
  }

  [[nodiscard]] MeshPosition position(int rank) const { return mesh_position(options_.mesh, rank); }

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
  std::size_t tensors_;
  RankProcesses& processes_;
  RankReadings readings_;
  Communicator& ranks_;  // of `readings_`
  MeshRank rank_;
  CanonicalExchange exchange_;
  std::optional<MeshUpdate> update_;  // with ZeRO
  std::vector<std::int32_t> inputs_, targets_;
};

class ProcessMesh final : public MeshModel {
 public:
  ProcessMesh(const ModelLayout& canonical, const MeshOptions& options, RankProcesses& ranks)
      : zero_(options.zero >= 1),
        alike_(options.mesh.tp == 1 ||
               (options.codecs.data == "fp32" && options.codecs.state == "fp32")),
        elements_(canonical.elements()),
        process_(canonical, options, ranks) {}
  // The others cannot be told of an end that comes by an error; they are not left waiting either.
  ~ProcessMesh() override {
    try {
      if (!failed_) process_.announce({});
    } catch (const std::exception&) {
      process_.processes().abort("the first rank ended");
    }
  }

  [[nodiscard]] LossSum loss(const float* weights, const TokenBatch& batch) override {
    return pass({.ask = Ask::kLoss}, weights, batch, {});
  }
  LossSum loss_and_gradients(const float* weights, const TokenBatch& batch, double gradient_scale,
                             float* gradients) override {
    return pass({.ask = Ask::kTrain, .gradient_scale = gradient_scale}, weights, batch,
                {.collected = gradients});
  }
  LossSum loss_and_slices(const float* weights, const TokenBatch& batch, double gradient_scale,
                          std::span<double> squares) override {
    return pass({.ask = Ask::kSlices, .gradient_scale = gradient_scale}, weights, batch,
                {.squares = squares});
  }
  void collect(RankValues what, float* canonical) override {
    run({.ask = Ask::kCollect, .what = static_cast<std::int64_t>(what)}, {.collected = canonical});
  }
  void hand_out(RankValues what, const float* canonical) override {
    fresh_ = false;  // the weights may have been changed since the pass, as gradients have
    run({.ask = Ask::kHandOut, .what = static_cast<std::int64_t>(what)}, {.handed_out = canonical});
  }
  void update(double lr, double gradient_scale, float* weights) override {
    // Without a pass before, as where a joiner replays results, the ranks may lack these weights.
    if (!fresh_ && held_ != digest_of(weights)) hand_out(RankValues::kWeights, weights);
    fresh_ = false;
    run({.ask = Ask::kUpdate, .gradient_scale = gradient_scale, .lr = lr}, {.collected = weights});
    held_.reset();
    if (alike_) held_ = digest_of(weights);
  }
  void reset_optimizer(std::int64_t updates) override {
    run({.ask = Ask::kReset, .what = updates}, {});
  }
  [[nodiscard]] std::size_t held_bytes() const override { return process_.held_bytes(); }

 private:
  LossSum pass(Order order, const float* weights, const TokenBatch& batch, Canonical first) {
    order.sequences = batch.sequences;
    order.length = batch.length;
    if (zero_) {  // without it training changes them in every step
      const Digest128 digest = digest_of(weights);
      order.new_weights = held_ != digest;
      held_ = digest;
      fresh_ = order.ask != Ask::kLoss;  // an evaluation's may be others
    }
    first.weights = weights;
    first.batch = batch;
    return run(order, first);
  }

  LossSum run(const Order& order, const Canonical& first) {
    try {
      return process_.run(process_.announce(order), first);
    } catch (const CommunicatorError& error) {
      failed_ = true;
      throw PeerError(error_after_roll_call(process_.processes(), error.what()));
    } catch (const std::exception& error) {
      failed_ = true;
      process_.processes().abort(error.what());
      throw;
    }
  }

  [[nodiscard]] Digest128 digest_of(const float* weights) const {
    return xxh3_128(std::as_bytes(std::span(weights, static_cast<std::size_t>(elements_))));
  }

  bool zero_;
  /// What several tensor-parallel ranks have they update to the same bits: a codec's blocks may
  /// hold shares beside it, which differ.
  bool alike_;
  std::int64_t elements_;
  std::optional<Digest128> held_;  // of the weights that the ranks have
  bool fresh_ = false;             // those are of a training pass that has just ended
  MeshProcess process_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<MeshModel> make_process_mesh(const ModelLayout& canonical,
                                             const MeshOptions& options, RankProcesses& ranks) {
  ISTHMUS_CHECK(ranks.orders.rank() == kFirst, ranks.orders.rank());
  return std::make_unique<ProcessMesh>(canonical, options, ranks);
}

void serve_mesh(const ModelLayout& canonical, const MeshOptions& options, RankProcesses& ranks) {
  std::optional<MeshProcess> process;  // outlives the abort: what is under way then ends
  try {
    process.emplace(canonical, options, ranks);
    for (;;) {
      const Order order = process->await_order();
      if (order.ask == Ask::kEnd) return;
      process->run(order, {});
    }
  } catch (const CommunicatorError& error) {
    throw CommunicatorError(error_after_roll_call(ranks, error.what()));
  } catch (const std::exception& error) {
    ranks.abort(error.what());
    throw;
  }
}

}  // namespace isthmus
