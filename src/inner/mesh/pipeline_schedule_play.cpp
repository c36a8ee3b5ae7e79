// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "core/base/check.h"
#include "inner/mesh/pipeline_schedule_check.h"

namespace isthmus {
namespace {
using Op = PipelineOpKind;
constexpr int kDirections = 2;  // forward, backward

[[nodiscard]] bool is_send(Op kind) {
  return kind == Op::kSendForward || kind == Op::kSendBackward;
}
[[nodiscard]] int direction(Op kind) {
  return kind == Op::kSendForward || kind == Op::kReceiveForward ? 0 : 1;
}

/// All ranks in time.
class Play {
 public:
  Play(const PipelineSchedule& schedule, const PipelineTiming& timing)
      : s_(schedule), timing_(timing), ranks_(static_cast<std::size_t>(schedule.ranks)) {
    report_.ranks.resize(ranks_.size());
  }

  [[nodiscard]] Expected<PipelineReport, PipelineFault> run() {
    std::deque<int> runnable;
    for (int rank = 0; rank < s_.ranks; ++rank) runnable.push_back(rank);
    // A stuck rank is looked at again when a message comes for it or one of its own is taken; each
    // message does so at most twice.
    while (!runnable.empty()) {
      const int rank = runnable.front();
      runnable.pop_front();
      while (advance(rank, runnable)) continue;
    }
    for (int rank = 0; rank < s_.ranks; ++rank) {
      if (at(rank).next < list(rank).size()) return Unexpected<PipelineFault>(deadlock(rank));
    }
    std::size_t busiest = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      report_.makespan = std::max(report_.makespan, ranks_[i].now);
      if (report_.ranks[i].busy > report_.ranks[busiest].busy) busiest = i;
    }
    report_.bubble = report_.makespan - report_.ranks[busiest].busy;
    return std::move(report_);
  }

 private:
  /// Messages of one kind from one rank, which all go to one other.
  struct Channel {
    std::vector<double> ready;  // by message, when it arrives (kBuffered) or was offered
    std::vector<double> taken;  // kBlocking: when its transfer ended
    std::size_t sent = 0;       // that the sender is past
    double free = 0;            // when the link has carried the last one
  };
  struct RankState {
    std::size_t next = 0;  // operation
    double now = 0;
    std::array<Channel, kDirections> out;
    std::array<std::size_t, kDirections> received{};
  };

  [[nodiscard]] RankState& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const std::vector<PipelineOp>& list(int rank) const {
    return s_.operations[static_cast<std::size_t>(rank)];
  }

  /// One operation. RETURNS: false when the rank has to wait, or is done.
  bool advance(int rank, std::deque<int>& runnable) {
    RankState& state = at(rank);
    if (state.next == list(rank).size()) return false;
    const PipelineOp& op = list(rank)[state.next];
    bool passed = true;
    if (is_compute(op.kind)) {
      compute(rank, op);
    } else if (is_send(op.kind)) {
      passed = send(state, op, runnable);
    } else {
      passed = receive(state, op, runnable);
    }
    if (passed) ++state.next;
    return passed;
  }

  void compute(int rank, const PipelineOp& op) {
    const auto stage = static_cast<std::size_t>(s_.stage(rank, op.chunk));
    const StageTimes& t = timing_.stages.size() == 1 ? timing_.stages[0] : timing_.stages[stage];
    double time = t.forward;
    if (op.kind == Op::kBackward) time = t.backward_input + t.backward_weight;
    if (op.kind == Op::kBackwardInput) time = t.backward_input;
    if (op.kind == Op::kBackwardWeight) time = t.backward_weight;
    RankState& state = at(rank);
    PipelineRankReport& report = report_.ranks[static_cast<std::size_t>(rank)];
    report.passes.push_back({op, state.now, state.now + time});
    report.busy += time;
    state.now += time;
  }

  bool send(RankState& state, const PipelineOp& op, std::deque<int>& runnable) {
    Channel& channel = state.out[static_cast<std::size_t>(direction(op.kind))];
    if (channel.ready.size() == channel.sent) {
      double ready = state.now;
      if (timing_.sends == SendMode::kBuffered) {
        ready = channel.free = std::max(state.now, channel.free) + timing_.message;
      }
      channel.ready.push_back(ready);
      runnable.push_back(op.peer);
    }
    if (timing_.sends == SendMode::kBlocking) {
      if (channel.taken.size() == channel.sent) return false;
      state.now = std::max(state.now, channel.taken[channel.sent]);
    }
    ++channel.sent;
    return true;
  }

  bool receive(RankState& state, const PipelineOp& op, std::deque<int>& runnable) {
    const auto way = static_cast<std::size_t>(direction(op.kind));
    Channel& channel = at(op.peer).out[way];
    const std::size_t index = state.received[way];
    if (index >= channel.ready.size()) return false;
    state.now = std::max(state.now, channel.ready[index]);
    if (timing_.sends != SendMode::kBuffered) {
      state.now = channel.free = std::max(state.now, channel.free) + timing_.message;
    }
    if (timing_.sends == SendMode::kBlocking) {
      channel.taken.push_back(state.now);
      runnable.push_back(op.peer);
    }
    ++state.received[way];
    return true;
  }

  [[nodiscard]] PipelineFault deadlock(int first) {
    std::string text;
    constexpr int kShown = 4;
    int shown = 0;
    for (int rank = first; rank < s_.ranks && shown < kShown; ++rank) {
      if (at(rank).next == list(rank).size()) continue;
      const PipelineOp& op = list(rank)[at(rank).next];
      text += fmt::format("{}rank {} stands at '{}' with rank {}", shown++ == 0 ? "" : "; ", rank,
                          describe(s_, op), op.peer);
    }
    return {PipelineFault::Kind::kDeadlock, first, "deadlock: " + text};
  }

  const PipelineSchedule& s_;
  const PipelineTiming& timing_;
  std::vector<RankState> ranks_;
  PipelineReport report_;
};

}  // namespace

std::string describe(const PipelineSchedule& schedule, const PipelineOp& operation) {
  constexpr std::array<std::string_view, 8> kNames = {
      "forward",      "backward",        "input gradient", "weight gradient",
      "send forward", "receive forward", "send backward",  "receive backward"};
  std::string text =
      fmt::format("{} of micro-batch {}", kNames[static_cast<std::size_t>(operation.kind)],
                  operation.micro_batch);
  if (schedule.chunks > 1) text += fmt::format(", chunk {}", operation.chunk);
  return text;
}

Expected<PipelineReport, PipelineFault> play_pipeline(const PipelineSchedule& schedule,
                                                      const PipelineTiming& timing) {
  ISTHMUS_CHECK(static_cast<int>(schedule.operations.size()) == schedule.ranks, schedule.ranks);
  ISTHMUS_CHECK(
      timing.stages.size() == 1 || static_cast<int>(timing.stages.size()) == schedule.stages(),
      timing.stages.size(), schedule.stages());
  return Play(schedule, timing).run();
}

}  // namespace isthmus
