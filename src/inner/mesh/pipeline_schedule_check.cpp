// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/pipeline_schedule_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "core/base/check.h"

namespace isthmus {
namespace {
using Op = PipelineOpKind;
using Kind = PipelineFault::Kind;

[[nodiscard]] std::uint8_t bit(Op kind) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(kind));
}

/// The operations on each (chunk, micro-batch) that a rank has done.
class Done {
 public:
  explicit Done(const PipelineSchedule& s)
      : micro_batches_(s.micro_batches),
        bits_(static_cast<std::size_t>(s.chunks) * static_cast<std::size_t>(s.micro_batches)) {}
  [[nodiscard]] bool has(Op kind, int chunk, int micro_batch) const {
    return (bits_[at(chunk, micro_batch)] & bit(kind)) != 0;
  }
  [[nodiscard]] bool input_gradient(int chunk, int micro_batch) const {
    return has(Op::kBackward, chunk, micro_batch) || has(Op::kBackwardInput, chunk, micro_batch);
  }
  void set(const PipelineOp& op) { bits_[at(op.chunk, op.micro_batch)] |= bit(op.kind); }

 private:
  [[nodiscard]] std::size_t at(int chunk, int micro_batch) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(micro_batches_) +
           static_cast<std::size_t>(micro_batch);
  }
  int micro_batches_;
  std::vector<std::uint8_t> bits_;
};

/// The lists without time.
class ListCheck {
 public:
  explicit ListCheck(const PipelineSchedule& schedule) : s_(schedule) {}

  [[nodiscard]] std::optional<PipelineFault> complete() {
    for (rank_ = 0; rank_ < s_.ranks; ++rank_) {
      Done done(s_);
      for (const PipelineOp& op : list()) {
        if (!belongs(op)) {
          return fault(Kind::kShape, "{} with peer {} has no place here", describe(s_, op),
                       op.peer);
        }
        const bool again = done.has(op.kind, op.chunk, op.micro_batch) ||
                           (is_backward(op.kind) && overlaps(done, op));
        if (again) return fault(Kind::kRepeated, "{} is there twice", describe(s_, op));
        done.set(op);
      }
      for (int chunk = 0; chunk < s_.chunks; ++chunk) {
        for (int i = 0; i < s_.micro_batches; ++i) {
          if (auto found = missing(done, chunk, i)) return found;
        }
      }
    }
    return std::nullopt;
  }

  /// REQUIRES: complete. in_flight: most activations, by rank.
  [[nodiscard]] std::optional<PipelineFault> ordered(std::vector<int>& in_flight) {
    for (rank_ = 0; rank_ < s_.ranks; ++rank_) {
      Done done(s_);
      std::vector<int> last(static_cast<std::size_t>(s_.chunks), -1);
      int held = 0, most = 0;
      for (const PipelineOp& op : list()) {
        if (auto found = early(done, op)) return found;
        done.set(op);
        if (op.kind == Op::kForward) most = std::max(most, ++held);
        if (op.kind != Op::kBackward && op.kind != Op::kBackwardWeight) continue;
        --held;
        int& before = last[static_cast<std::size_t>(op.chunk)];
        if (op.micro_batch < before) {
          return fault(Kind::kOrder, "{} adds weight gradients after micro-batch {}",
                       describe(s_, op), before);
        }
        before = op.micro_batch;
      }
      in_flight.push_back(most);
    }
    return std::nullopt;
  }

  /// REQUIRES: complete.
  [[nodiscard]] std::optional<PipelineFault> same_message_order() {
    for (rank_ = 0; rank_ < s_.ranks; ++rank_) {
      for (const auto& [send, receive, step] :
           {std::tuple{Op::kSendForward, Op::kReceiveForward, 1},
            std::tuple{Op::kSendBackward, Op::kReceiveBackward, s_.ranks - 1}}) {
        const int peer = (rank_ + step) % s_.ranks;
        const std::vector<int> sent = messages(rank_, send);
        const std::vector<int> received = messages(peer, receive);
        const auto [a, b] =
            std::mismatch(sent.begin(), sent.end(), received.begin(), received.end());
        if (a != sent.end() || b != received.end()) {
          return fault(Kind::kMessage,
                       "message {} to rank {} is of micro-batch {}, which expects micro-batch {}",
                       a - sent.begin(), peer, *a % s_.micro_batches, *b % s_.micro_batches);
        }
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<PipelineFault> within_memory(const std::vector<int>& in_flight) {
    for (rank_ = 0; rank_ < s_.ranks; ++rank_) {
      const int held = in_flight[static_cast<std::size_t>(rank_)];
      const int most = pipeline_in_flight(s_, rank_);
      if (held > most) {
        return fault(Kind::kMemory, "{} activations in flight, at most {} under {}", held, most,
                     pipeline_name(s_.kind));
      }
    }
    return std::nullopt;
  }

 private:
  template <typename... Values>
  [[nodiscard]] PipelineFault fault(Kind kind, fmt::format_string<Values...> text,
                                    Values&&... values) const {
    return {kind, rank_,
            fmt::format("rank {}: {}", rank_, fmt::format(text, std::forward<Values>(values)...))};
  }
  [[nodiscard]] const std::vector<PipelineOp>& list() const {
    return s_.operations[static_cast<std::size_t>(rank_)];
  }
  /// The rank that an operation's message goes to or comes from; -1 for none, as of passes.
  [[nodiscard]] int peer_of(Op kind, int chunk) const {
    if (is_compute(kind)) return -1;
    const bool next = kind == Op::kSendForward || kind == Op::kReceiveBackward;
    const int other = s_.stage(rank_, chunk) + (next ? 1 : -1);
    if (other < 0 || other >= s_.stages()) return -1;
    return s_.rank_of(other) == rank_ ? -1 : s_.rank_of(other);
  }
  [[nodiscard]] bool belongs(const PipelineOp& op) const {
    return op.chunk >= 0 && op.chunk < s_.chunks && op.micro_batch >= 0 &&
           op.micro_batch < s_.micro_batches && op.peer == peer_of(op.kind, op.chunk) &&
           (is_compute(op.kind) || op.peer >= 0);
  }
  [[nodiscard]] static bool is_backward(Op kind) {
    return kind == Op::kBackward || kind == Op::kBackwardInput || kind == Op::kBackwardWeight;
  }
  /// A whole backward pass beside one of its halves.
  [[nodiscard]] static bool overlaps(const Done& done, const PipelineOp& op) {
    if (op.kind != Op::kBackward) return done.has(Op::kBackward, op.chunk, op.micro_batch);
    return done.has(Op::kBackwardInput, op.chunk, op.micro_batch) ||
           done.has(Op::kBackwardWeight, op.chunk, op.micro_batch);
  }
  [[nodiscard]] std::optional<PipelineFault> missing(const Done& done, int chunk,
                                                     int micro_batch) const {
    const auto lacks = [&](Op kind) { return !done.has(kind, chunk, micro_batch); };
    const auto says = [&](Kind kind, Op op) {
      return fault(kind, "{} is missing", describe(s_, {op, chunk, micro_batch}));
    };
    if (lacks(Op::kForward)) return says(Kind::kMissing, Op::kForward);
    if (!done.input_gradient(chunk, micro_batch)) return says(Kind::kMissing, Op::kBackward);
    if (lacks(Op::kBackward) && lacks(Op::kBackwardWeight)) {
      return says(Kind::kMissing, Op::kBackwardWeight);
    }
    for (const Op op :
         {Op::kSendForward, Op::kReceiveForward, Op::kSendBackward, Op::kReceiveBackward}) {
      if (peer_of(op, chunk) >= 0 && lacks(op)) return says(Kind::kMessage, op);
    }
    return std::nullopt;
  }
  /// `op` before something that it reads.
  [[nodiscard]] std::optional<PipelineFault> early(const Done& done, const PipelineOp& op) const {
    const auto has = [&](Op kind) { return done.has(kind, op.chunk, op.micro_batch); };
    const auto before = [&](std::string_view what) {
      return fault(Kind::kOrder, "{} comes before {}", describe(s_, op), what);
    };
    const int stage = s_.stage(rank_, op.chunk);
    switch (op.kind) {
      case Op::kForward: {
        const bool received = peer_of(Op::kReceiveForward, op.chunk) >= 0;
        if (received && !has(Op::kReceiveForward)) return before("its input is received");
        const bool own = !received && stage > 0;
        if (own && !done.has(Op::kForward, s_.chunk_of(stage - 1), op.micro_batch)) {
          return before("that of the chunk before it");
        }
        return std::nullopt;
      }
      case Op::kBackward:
      case Op::kBackwardInput: {
        if (!has(Op::kForward)) return before("its forward");
        const bool received = peer_of(Op::kReceiveBackward, op.chunk) >= 0;
        if (received && !has(Op::kReceiveBackward)) return before("its gradient is received");
        const bool own = !received && stage + 1 < s_.stages();
        if (own && !done.input_gradient(s_.chunk_of(stage + 1), op.micro_batch)) {
          return before("that of the chunk after it");
        }
        return std::nullopt;
      }
      case Op::kBackwardWeight:
        if (!has(Op::kBackwardInput)) return before("the gradient of its input");
        return std::nullopt;
      case Op::kSendForward:
        if (!has(Op::kForward)) return before("its forward");
        return std::nullopt;
      case Op::kSendBackward:
        if (!done.input_gradient(op.chunk, op.micro_batch)) return before("its backward");
        return std::nullopt;
      case Op::kReceiveForward:
      case Op::kReceiveBackward:
        return std::nullopt;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::vector<int> messages(int rank, Op kind) const {
    std::vector<int> ids;
    for (const PipelineOp& op : s_.operations[static_cast<std::size_t>(rank)]) {
      if (op.kind == kind) ids.push_back(pipeline_message(s_, rank, op));
    }
    return ids;
  }

  const PipelineSchedule& s_;
  int rank_ = 0;
};

}  // namespace

Expected<PipelineReport, PipelineFault> check_pipeline(const PipelineSchedule& schedule,
                                                       const PipelineTiming& timing) {
  ISTHMUS_CHECK(static_cast<int>(schedule.operations.size()) == schedule.ranks, schedule.ranks);
  ListCheck lists(schedule);
  std::vector<int> in_flight;
  std::optional<PipelineFault> fault = lists.complete();
  if (!fault) fault = lists.same_message_order();
  if (!fault) fault = lists.ordered(in_flight);
  if (!fault) fault = lists.within_memory(in_flight);
  if (fault) return Unexpected<PipelineFault>(*std::move(fault));
  auto report = play_pipeline(schedule, timing);
  if (!report) return report;
  for (std::size_t rank = 0; rank < in_flight.size(); ++rank) {
    report->ranks[rank].in_flight = in_flight[rank];
  }
  return report;
}

}  // namespace isthmus
