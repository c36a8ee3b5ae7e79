// SPDX-License-Identifier: Apache-2.0
// Broken schedules: whatever is deleted, doubled or swapped, the checker says so exactly when a
// naive graph of who needs whom does.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "inner/mesh/pipeline_schedule_check.h"

namespace isthmus::this_file {
namespace {
using Op = PipelineOpKind;
using Fault = PipelineFault::Kind;

std::vector<PipelineSchedule> subjects() {
  return {make_pipeline_schedule(PipelineKind::kGpipe, 3, 3),
          make_pipeline_schedule(PipelineKind::k1F1B, 3, 4),
          make_pipeline_schedule(PipelineKind::kInterleaved, 2, 4, 2),
          make_pipeline_schedule(PipelineKind::kInterleaved, 1, 2, 2),
          make_pipeline_schedule(PipelineKind::kZbH1, 3, 4)};
}

std::vector<PipelineOp>& list_of(PipelineSchedule& schedule, std::size_t rank) {
  return schedule.operations[rank];
}

TEST(PipelineCheck, FindsEveryDeletedOperation) {
  for (const PipelineSchedule& whole : subjects()) {
    for (std::size_t rank = 0; rank < whole.operations.size(); ++rank) {
      for (std::size_t i = 0; i < whole.operations[rank].size(); ++i) {
        PipelineSchedule broken = whole;
        const PipelineOp gone = list_of(broken, rank)[i];
        list_of(broken, rank).erase(list_of(broken, rank).begin() + static_cast<std::ptrdiff_t>(i));
        const auto report = check_pipeline(broken);
        ASSERT_FALSE(report.has_value()) << describe(whole, gone);
        EXPECT_EQ(report.error().kind, is_compute(gone.kind) ? Fault::kMissing : Fault::kMessage)
            << report.error().text;
        EXPECT_EQ(report.error().rank, static_cast<int>(rank));
      }
    }
  }
}

TEST(PipelineCheck, FindsEveryDoubledOperation) {
  for (const PipelineSchedule& whole : subjects()) {
    for (std::size_t rank = 0; rank < whole.operations.size(); ++rank) {
      const std::size_t count = whole.operations[rank].size();
      for (std::size_t i = 0; i < count; ++i) {
        for (const std::size_t at : {i, count}) {
          PipelineSchedule broken = whole;
          const PipelineOp op = list_of(broken, rank)[i];
          list_of(broken, rank)
              .insert(list_of(broken, rank).begin() + static_cast<std::ptrdiff_t>(at), op);
          const auto report = check_pipeline(broken);
          ASSERT_FALSE(report.has_value()) << describe(whole, op);
          EXPECT_EQ(report.error().kind, Fault::kRepeated) << report.error().text;
        }
      }
    }
  }
}

/// Is a complete schedule right? Operations are nodes, what each must come after are edges; a
/// cycle, in lists or through messages, makes it wrong, as do messages that overtake one another,
/// descending weight gradients and too many activations.
class NaiveOracle {
 public:
  explicit NaiveOracle(const PipelineSchedule& s) : s_(s) {}

  [[nodiscard]] bool right() {
    for (int r = 0; r < s_.ranks; ++r) {
      for (const PipelineOp& op : list(r)) place_.emplace(key(op.kind, r, op), place_.size());
    }
    after_.resize(place_.size());
    for (int r = 0; r < s_.ranks; ++r) add_edges(r);
    return acyclic() && messages_in_order() && gradients_ascend() && few_activations();
  }

 private:
  using Key = std::tuple<Op, int, int>;  // stage, micro-batch
  [[nodiscard]] const std::vector<PipelineOp>& list(int rank) const {
    return s_.operations[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Key key(Op kind, int rank, const PipelineOp& op) const {
    return {kind, s_.stage(rank, op.chunk), op.micro_batch};
  }
  void add_edges(int rank) {
    const PipelineOp* before = nullptr;
    for (const PipelineOp& op : list(rank)) {
      const auto [kind, stage, i] = key(op.kind, rank, op);
      const std::size_t self = place_.at({kind, stage, i});
      if (before != nullptr) edge(key(before->kind, rank, *before), self);
      before = &op;
      switch (kind) {
        case Op::kForward:
          edge({Op::kReceiveForward, stage, i}, self);
          if (s_.ranks == 1) edge({Op::kForward, stage - 1, i}, self);
          break;
        case Op::kBackward:
        case Op::kBackwardInput:
          edge({Op::kForward, stage, i}, self);
          edge({Op::kReceiveBackward, stage, i}, self);
          if (s_.ranks == 1) edge({kind, stage + 1, i}, self);
          break;
        case Op::kBackwardWeight:
          edge({Op::kBackwardInput, stage, i}, self);
          break;
        case Op::kSendForward:
          edge({Op::kForward, stage, i}, self);
          break;
        case Op::kReceiveForward:
          edge({Op::kSendForward, stage - 1, i}, self);
          break;
        case Op::kSendBackward:
          edge({Op::kBackward, stage, i}, self);
          edge({Op::kBackwardInput, stage, i}, self);
          break;
        case Op::kReceiveBackward:
          edge({Op::kSendBackward, stage + 1, i}, self);
          break;
      }
    }
  }
  void edge(const Key& from, std::size_t to) {
    const auto found = place_.find(from);
    if (found != place_.end()) after_[found->second].insert(to);
  }
  [[nodiscard]] bool acyclic() const {
    std::vector<int> waits(after_.size(), 0);
    for (const auto& targets : after_) {
      for (const std::size_t to : targets) ++waits[to];
    }
    std::vector<std::size_t> free;
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i] == 0) free.push_back(i);
    }
    std::size_t done = 0;
    while (!free.empty()) {
      const std::size_t at = free.back();
      free.pop_back();
      ++done;
      for (const std::size_t to : after_[at]) {
        if (--waits[to] == 0) free.push_back(to);
      }
    }
    return done == after_.size();
  }
  [[nodiscard]] bool messages_in_order() const {
    std::map<std::tuple<bool, int, int>, std::pair<std::vector<int>, std::vector<int>>> ways;
    for (int r = 0; r < s_.ranks; ++r) {
      for (const PipelineOp& op : list(r)) {
        const int stage = s_.stage(r, op.chunk);
        if (op.kind == Op::kSendForward) {
          ways[{true, r, op.peer}].first.push_back(stage * 100 + op.micro_batch);
        } else if (op.kind == Op::kReceiveForward) {
          ways[{true, op.peer, r}].second.push_back((stage - 1) * 100 + op.micro_batch);
        } else if (op.kind == Op::kSendBackward) {
          ways[{false, r, op.peer}].first.push_back(stage * 100 + op.micro_batch);
        } else if (op.kind == Op::kReceiveBackward) {
          ways[{false, op.peer, r}].second.push_back((stage + 1) * 100 + op.micro_batch);
        }
      }
    }
    return std::all_of(ways.begin(), ways.end(),
                       [](const auto& way) { return way.second.first == way.second.second; });
  }
  [[nodiscard]] bool gradients_ascend() const {
    for (int r = 0; r < s_.ranks; ++r) {
      std::map<int, int> last;
      for (const PipelineOp& op : list(r)) {
        if (op.kind != Op::kBackward && op.kind != Op::kBackwardWeight) continue;
        const auto found = last.find(op.chunk);
        if (found != last.end() && found->second > op.micro_batch) return false;
        last[op.chunk] = op.micro_batch;
      }
    }
    return true;
  }
  [[nodiscard]] bool few_activations() const {
    for (int r = 0; r < s_.ranks; ++r) {
      int held = 0;
      for (const PipelineOp& op : list(r)) {
        held += op.kind == Op::kForward ? 1 : 0;
        if (held > pipeline_in_flight(s_, r)) return false;
        held -= op.kind == Op::kBackward || op.kind == Op::kBackwardWeight ? 1 : 0;
      }
    }
    return true;
  }

  const PipelineSchedule& s_;
  std::map<Key, std::size_t> place_;
  std::vector<std::set<std::size_t>> after_;
};

TEST(PipelineCheck, AcceptsSwappedOperationsExactlyWhenTheGraphDoes) {
  int accepted = 0;
  std::map<Fault, int> refused;
  for (const PipelineSchedule& whole : subjects()) {
    for (std::size_t rank = 0; rank < whole.operations.size(); ++rank) {
      for (std::size_t i = 0; i < whole.operations[rank].size(); ++i) {
        for (std::size_t j = i + 1; j < whole.operations[rank].size(); ++j) {
          PipelineSchedule swapped = whole;
          std::swap(list_of(swapped, rank)[i], list_of(swapped, rank)[j]);
          const auto report = check_pipeline(swapped);
          EXPECT_EQ(report.has_value(), NaiveOracle(swapped).right())
              << pipeline_name(whole.kind) << " rank " << rank << ": operations " << i << " and "
              << j << (report.has_value() ? "" : ", " + report.error().text);
          ++(report.has_value() ? accepted : refused[report.error().kind]);
        }
      }
    }
  }
  EXPECT_GT(accepted, 0);  // a send may stand behind what follows it
  EXPECT_GT(refused[Fault::kOrder], 0);
  EXPECT_GT(refused[Fault::kMessage], 0);
}

TEST(PipelineCheck, FindsRanksThatWaitForOneAnother) {
  // Rank 1 wants both micro-batches before it gives a gradient, rank 0 a gradient before it gives
  // the second one.
  PipelineSchedule s = make_pipeline_schedule(PipelineKind::kGpipe, 2, 2);
  const PipelineSchedule one = make_pipeline_schedule(PipelineKind::kGpipe, 2, 1);
  std::vector<PipelineOp> first = one.operations[0];
  for (PipelineOp op : one.operations[0]) {
    op.micro_batch = 1;
    first.push_back(op);
  }
  s.operations[0] = first;
  const auto report = check_pipeline(s);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().kind, Fault::kDeadlock);
  EXPECT_EQ(report.error().text,
            "deadlock: rank 0 stands at 'receive backward of micro-batch 0' with rank 1; rank 1 "
            "stands at 'receive forward of micro-batch 1' with rank 0");
  EXPECT_FALSE(NaiveOracle(s).right());
}

TEST(PipelineCheck, FindsTooManyActivations) {
  PipelineSchedule s = make_pipeline_schedule(PipelineKind::kGpipe, 4, 8);
  s.kind = PipelineKind::k1F1B;
  const auto report = check_pipeline(s);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().kind, Fault::kMemory);
  EXPECT_EQ(report.error().text, "rank 0: 8 activations in flight, at most 4 under 1f1b");
}

TEST(PipelineCheck, FindsOperationsWithoutAPlace) {
  const PipelineSchedule whole = make_pipeline_schedule(PipelineKind::k1F1B, 3, 4);
  const PipelineOp kWrong[] = {
      {Op::kForward, 1, 0},           // no such chunk
      {Op::kForward, 0, 4},           // nor micro-batch
      {Op::kForward, 0, 0, 1},        // a pass with a peer
      {Op::kSendForward, 0, 0, 2},    // not its neighbour
      {Op::kReceiveForward, 0, 0, 2}  // rank 0 reads the data
  };
  for (const PipelineOp& op : kWrong) {
    PipelineSchedule broken = whole;
    broken.operations[0].push_back(op);
    const auto report = check_pipeline(broken);
    ASSERT_FALSE(report.has_value());
    EXPECT_EQ(report.error().kind, Fault::kShape) << report.error().text;
  }
  // A whole backward pass beside one of its halves counts the weights' gradient twice.
  PipelineSchedule both = make_pipeline_schedule(PipelineKind::kZbH1, 3, 4);
  both.operations[2].push_back({Op::kBackward, 0, 3});
  EXPECT_EQ(check_pipeline(both).error().kind, Fault::kRepeated);
}

}  // namespace
}  // namespace isthmus::this_file
