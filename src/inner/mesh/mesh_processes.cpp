// SPDX-License-Identifier: Apache-2.0
// The mesh whose ranks are processes. The first process has the canonical weights and gradients. A
// pass is: an order with the tokens to all ranks; the weights of each share to its first
// data-parallel rank, which passes them on to the others; the pass; the sums of the gradients over
// the data-parallel ranks, each slice back to the first process. So the first process sends and
// receives 2 N values a step, as in an all-reduce, however many ranks there are. After some passes
// of training each rank tells the first process how long it has computed
// (inner/mesh/rank_readings.h).
//
// With ZeRO the ranks keep the sums and update their slices, which they gather among themselves.
// The canonical weights at the first process are then those of an earlier step: it collects the
// tensors that a caller reads, and sends out the tensors that a caller has written
// (inner/mesh/weight_coherence.h). So in an ordinary step only tokens and losses travel between the
// first process and the others.
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "inner/mesh/canonical_exchange.h"
#include "inner/mesh/mesh_model.h"
#include "inner/mesh/mesh_order.h"
#include "inner/mesh/mesh_update.h"
#include "inner/mesh/rank_readings.h"
#include "inner/mesh/weight_coherence.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr int kFirst = CanonicalExchange::kFirst;
constexpr int kLosses = 0;  // their tag
static_assert(kLosses != RankReadings::kTag && CanonicalExchange::kFirstTag > RankReadings::kTag);

/// One rank's part of every pass, on the first rank as on the others.
class MeshProcess {
 public:
  /// service: this rank's part of a caller's operation on the mesh; may be empty on the first.
  MeshProcess(const ModelLayout& canonical, const MeshOptions& options, RankProcesses& processes,
              RankService service)
      : options_(options),
        service_(std::move(service)),
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
        exchange_.collect(static_cast<RankValues>(order.what), order.tensors, first.collected);
        return {};
      case Ask::kHandOut:
        exchange_.hand_out(static_cast<RankValues>(order.what), order.tensors, first.handed_out);
        return {};
      case Ask::kSpread:
        update_->spread_owned();
        return {};
      case Ask::kUpdate:
        update_->update(order.lr, order.gradient_scale, nullptr);
        update_->gather_weights();
        return {};
      case Ask::kReset:
        for (std::size_t k = 0; k < rank_.chunks(); ++k) rank_.state(k).reset_optimizer(order.what);
        return {};
      case Ask::kServe:
        serve(first.service != nullptr ? *first.service : service_);
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

  void serve(const RankService& service) {
    ISTHMUS_CHECK(service != nullptr);  // serve_mesh was given one
    service(ranks_);
  }

  LossSum read_pass(const Order& order, const Canonical& first) {
    const TimePoint begin = processes_.clock.now();
    const LossSum sum = pass(order, first);
    readings_.add_pass(in_seconds(processes_.clock.now() - begin));
    if (order.readings) readings_.exchange();
    return sum;
  }

  LossSum pass(const Order& order, const Canonical& first) {
    share_tokens(order, first.batch);
    if (options_.zero == 0) exchange_.share_weights(first.weights);
    const TokenBatch all{inputs_, targets_, order.sequences, order.length, starts_};
    if (order.ask == Ask::kLoss) return collect_losses(rank_.loss(all));
    LossSum own;
    readings_.count([&] {
      own = rank_.train(all, order.gradient_scale);
      rank_.sum_gradients();
    });
    if (order.ask == Ask::kTrain) {
      exchange_.collect_gradients(first.collected);
    } else {
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
      starts_.assign(batch.document_starts.begin(), batch.document_starts.end());
    }
    inputs_.resize(tokens);
    targets_.resize(tokens);
    starts_.resize(order.documents ? tokens : 0);
    for (std::vector<std::int32_t>* part : {&inputs_, &targets_, &starts_}) {
      if (part->empty()) continue;
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
  RankService service_;
  std::size_t tensors_;
  RankProcesses& processes_;
  RankReadings readings_;
  Communicator& ranks_;  // of `readings_`
  MeshRank rank_;
  CanonicalExchange exchange_;
  std::optional<MeshUpdate> update_;  // with ZeRO
  std::vector<std::int32_t> inputs_, targets_, starts_;
};

class ProcessMesh final : public MeshModel {
 public:
  ProcessMesh(const ModelLayout& canonical, const MeshOptions& options, RankProcesses& ranks,
              float* weights)
      : zero_(options.zero >= 1),
        alike_(options.mesh.tp == 1 ||
               (options.codecs.data == "fp32" && options.codecs.state == "fp32")),
        own_(
            canonical, weights,
            [this](TensorRange tensors) {
              collect(RankValues::kWeights, tensors, own_.canonical());
            },
            [this](TensorRange tensors) {
              hand_out(RankValues::kWeights, tensors, own_.canonical());
            }),
        process_(canonical, options, ranks, {}) {}
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
    collect(what, own_.all_tensors(), canonical);
  }
  void hand_out(RankValues what, const float* canonical) override {
    hand_out(what, own_.all_tensors(), canonical);
  }
  void update(double lr, double gradient_scale, float* weights) override {
    ISTHMUS_CHECK(weights == own_.canonical());
    give_own();  // where there was no pass before, as where a joiner replays results
    run({.ask = Ask::kUpdate, .gradient_scale = gradient_scale, .lr = lr}, {});
    own_.ranks_updated();
    if (!alike_) {
      read_weights(own_.all());
      wrote_weights(own_.all());
    }
  }
  void read_weights(CanonicalRange elements) override {
    if (zero_) own_.read(elements);
  }
  void wrote_weights(CanonicalRange elements) override {
    if (zero_) own_.wrote(elements);
  }
  void reset_optimizer(std::int64_t updates) override {
    run({.ask = Ask::kReset, .what = updates}, {});
  }
  void call_ranks(const RankService& own_part) override {
    run({.ask = Ask::kServe}, {.service = &own_part});
  }
  [[nodiscard]] std::size_t held_bytes() const override { return process_.held_bytes(); }

 private:
  LossSum pass(Order order, const float* weights, const TokenBatch& batch, Canonical first) {
    order.sequences = batch.sequences;
    order.length = batch.length;
    order.documents = !batch.document_starts.empty();
    if (zero_ && weights == own_.canonical()) {
      give_own();
    } else if (zero_) {
      give_others(weights);
    }
    first.weights = weights;
    first.batch = batch;
    return run(order, first);
  }

  /// The ranks have the mesh's own weights.
  void give_own() {
    others_.reset();
    if (own_.give()) run({.ask = Ask::kSpread}, {});
  }

  /// The ranks have `weights`, of an evaluation: several batches come with the same ones.
  void give_others(const float* weights) {
    const Digest128 digest = digest_of(weights);
    if (others_ == digest) return;
    // As after an outer step that local values have become.
    if (!own_.ranks_have_newer() && digest_of(own_.canonical()) == digest) {
      give_own();
      return;
    }
    read_weights(own_.all());
    own_.ranks_lost();
    hand_out(RankValues::kWeights, own_.all_tensors(), weights);
    run({.ask = Ask::kSpread}, {});
    others_ = digest;
  }

  void collect(RankValues what, TensorRange tensors, float* canonical) {
    run({.ask = Ask::kCollect, .what = static_cast<std::int64_t>(what), .tensors = tensors},
        {.collected = canonical});
  }
  void hand_out(RankValues what, TensorRange tensors, const float* canonical) {
    run({.ask = Ask::kHandOut, .what = static_cast<std::int64_t>(what), .tensors = tensors},
        {.handed_out = canonical});
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
    return xxh3_128(std::as_bytes(std::span(weights, static_cast<std::size_t>(own_.all().size()))));
  }

  bool zero_;
  /// Whether tensor-parallel ranks update their common values to the same bits: the blocks of a
  /// codec may hold shares beside such values, which differ.
  bool alike_;
  WeightCoherence own_;
  std::optional<Digest128> others_;  // the ranks have these weights in the place of own_
  MeshProcess process_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<MeshModel> make_process_mesh(const ModelLayout& canonical,
                                             const MeshOptions& options, RankProcesses& ranks,
                                             float* weights) {
  ISTHMUS_CHECK(ranks.orders.rank() == kFirst, ranks.orders.rank());
  return std::make_unique<ProcessMesh>(canonical, options, ranks, weights);
}

void serve_mesh(const ModelLayout& canonical, const MeshOptions& options, RankProcesses& ranks,
                RankService service) {
  std::optional<MeshProcess> process;  // outlives the abort: operations under way then end
  try {
    process.emplace(canonical, options, ranks, std::move(service));
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
