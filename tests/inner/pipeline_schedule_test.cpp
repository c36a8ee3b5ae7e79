// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules against closed forms and counts made here.
#include "inner/mesh/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "inner/mesh/mesh_rules.h"
#include "inner/mesh/pipeline_schedule_check.h"
#include "inner/mesh/pipeline_schedule_text.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {
using Op = PipelineOpKind;

constexpr int kMostRanks = 8, kMostMicroBatches = 16, kMostChunks = 4;

/// All shapes of the documented range that a schedule accepts.
std::vector<PipelineSchedule> all_schedules() {
  std::vector<PipelineSchedule> all;
  for (const PipelineKind kind : pipeline_kinds()) {
    for (int p = 1; p <= kMostRanks; ++p) {
      for (int m = 1; m <= kMostMicroBatches; ++m) {
        for (int v = 1; v <= kMostChunks; ++v) {
          const bool interleaved = kind == PipelineKind::kInterleaved;
          if (interleaved != (v > 1) || (interleaved && m % p != 0)) continue;
          all.push_back(make_pipeline_schedule(kind, p, m, v));
        }
      }
    }
  }
  return all;
}

std::string name_of(const PipelineSchedule& s) {
  return std::string(pipeline_name(s.kind)) + " p=" + std::to_string(s.ranks) +
         " m=" + std::to_string(s.micro_batches) + " v=" + std::to_string(s.chunks);
}

/// Idle time by the table of the papers: F, B, W of a whole stage, so a chunk's are F / v, ….
double published_bubble(const PipelineSchedule& s, double F, double B, double W) {
  const double p = s.ranks, m = s.micro_batches, v = s.chunks;
  switch (s.kind) {
    case PipelineKind::kGpipe:
    case PipelineKind::k1F1B:
      return (p - 1) * (F + B + W);
    case PipelineKind::kInterleaved:
      return (p - 1) * (F + B + W) / v;
    case PipelineKind::kZbH1:
      if (m >= p && W <= F && W <= B) return (p - 1) * (F + B - W);
      return (p - 1) * (F + B) - (std::min(m, p) - 1) * std::min({F, B, W});
  }
  return -1;
}

TEST(PipelineSchedule, BubbleIsTheClosedForm) {
  const StageTimes kTimes[] = {{1, 1, 1},   {1, 1, 0.5}, {2, 1, 1},   {1, 2, 1}, {1, 1.25, 0.75},
                               {1, 0.5, 1}, {0.5, 1, 1}, {1, 1, 2.5}, {3, 2, 0}};
  for (const PipelineSchedule& s : all_schedules()) {
    for (const StageTimes& whole : kTimes) {
      const double v = s.chunks;
      PipelineTiming timing;
      timing.stages = {{whole.forward / v, whole.backward_input / v, whole.backward_weight / v}};
      const auto report = check_pipeline(s, timing);
      ASSERT_TRUE(report.has_value()) << name_of(s) << ": " << report.error().text;
      const double expected =
          published_bubble(s, whole.forward, whole.backward_input, whole.backward_weight);
      EXPECT_NEAR(report->bubble, expected, 1e-9) << name_of(s);
      const StageTimes& chunk = timing.stages.front();
      EXPECT_NEAR(pipeline_bubble(s, chunk.forward, chunk.backward_input, chunk.backward_weight),
                  expected, 1e-9)
          << name_of(s);
    }
  }
}

TEST(PipelineSchedule, PublishedSharesAtFourRanksAndEightMicroBatches) {
  const auto share = [](PipelineKind kind, int chunks) {
    return check_pipeline(make_pipeline_schedule(kind, 4, 8, chunks))->bubble_share();
  };
  EXPECT_NEAR(share(PipelineKind::kGpipe, 1), 3.0 / 11, 1e-12);
  EXPECT_NEAR(share(PipelineKind::k1F1B, 1), 3.0 / 11, 1e-12);
  EXPECT_NEAR(share(PipelineKind::kInterleaved, 2), 3.0 / 19, 1e-12);
  EXPECT_NEAR(share(PipelineKind::kZbH1, 1), 3.0 / 27, 1e-12);
}

TEST(PipelineSchedule, MessagesOfTwoPercentOfAForwardCostLessThanFivePercentOfTheBubble) {
  const PipelineSchedule s = make_pipeline_schedule(PipelineKind::kInterleaved, 4, 8, 2);
  PipelineTiming timing;
  timing.message = 0.02;
  const auto report = check_pipeline(s, timing);
  ASSERT_TRUE(report.has_value());
  EXPECT_GT(report->bubble, pipeline_bubble(s, 1, 1, 1));
  EXPECT_LE(report->bubble, 1.05 * pipeline_bubble(s, 1, 1, 1));
}

/// Most (chunk, micro-batch) at a time between the start of a forward and the end of the last
/// gradient, from the moments at which they are played.
int counted_in_flight(const PipelineRankReport& rank) {
  std::map<std::pair<int, int>, std::pair<double, double>> life;
  for (const PipelinePass& pass : rank.passes) {
    auto& [begin, end] = life[{pass.operation.chunk, pass.operation.micro_batch}];
    if (pass.operation.kind == Op::kForward) begin = pass.begin;
    end = std::max(end, pass.end);
  }
  int most = 0;
  for (const auto& [key, at] : life) {
    int held = 0;
    for (const auto& [other, span] : life) {
      held += span.first <= at.first && span.second > at.first ? 1 : 0;
    }
    most = std::max(most, held);
  }
  return most;
}

TEST(PipelineSchedule, HoldsNoMoreActivationsThanDocumented) {
  for (const PipelineSchedule& s : all_schedules()) {
    const auto report = check_pipeline(s);
    for (int r = 0; r < s.ranks; ++r) {
      const int p = s.ranks, m = s.micro_batches, v = s.chunks;
      int bound = m;
      if (s.kind == PipelineKind::k1F1B) bound = std::min(m, p - r);
      if (s.kind == PipelineKind::kZbH1) bound = std::min(m, p);
      if (s.kind == PipelineKind::kInterleaved) {
        bound = std::min(v * m, 2 * (p - r - 1) + (v - 1) * p + 1);
      }
      const PipelineRankReport& rank = report->ranks[static_cast<std::size_t>(r)];
      EXPECT_EQ(pipeline_in_flight(s, r), bound) << name_of(s) << " rank " << r;
      EXPECT_EQ(rank.in_flight, counted_in_flight(rank)) << name_of(s) << " rank " << r;
      EXPECT_EQ(rank.in_flight, bound) << name_of(s) << " rank " << r;
    }
  }
}

TEST(PipelineSchedule, EveryPassIsThereOnceAndGradientsAscend) {
  for (const PipelineSchedule& s : all_schedules()) {
    const bool split = s.kind == PipelineKind::kZbH1;
    for (const auto& list : s.operations) {
      std::multiset<std::tuple<Op, int, int>> passes;
      std::map<int, int> next;  // micro-batch, by chunk
      for (const PipelineOp& op : list) {
        if (is_compute(op.kind)) passes.insert({op.kind, op.chunk, op.micro_batch});
        if (op.kind == (split ? Op::kBackwardWeight : Op::kBackward)) {
          EXPECT_EQ(op.micro_batch, next[op.chunk]++) << name_of(s);
        }
      }
      for (int chunk = 0; chunk < s.chunks; ++chunk) {
        for (int i = 0; i < s.micro_batches; ++i) {
          EXPECT_EQ(passes.count({Op::kForward, chunk, i}), 1U) << name_of(s);
          EXPECT_EQ(passes.count({Op::kBackward, chunk, i}), split ? 0U : 1U) << name_of(s);
          EXPECT_EQ(passes.count({Op::kBackwardInput, chunk, i}), split ? 1U : 0U) << name_of(s);
          EXPECT_EQ(passes.count({Op::kBackwardWeight, chunk, i}), split ? 1U : 0U) << name_of(s);
        }
      }
    }
  }
}

// What ZeRO 2 and 3 count on (mesh_rules.h): the head takes no other micro-batch's gradients before
// the backward pass of this one's, and passes are whole.
TEST(PipelineSchedule, WhereOneGradientIsHeldAtATimeTheLastStageGoesBackAtOnce) {
  int shapes = 0;
  for (const PipelineKind kind : pipeline_kinds()) {
    if (!one_gradient_at_a_time(kind)) continue;
    const bool interleaved = kind == PipelineKind::kInterleaved;
    for (int p = 1; p <= 8; ++p) {
      for (int m = interleaved ? p : 1; m <= 24; m += interleaved ? p : 1) {
        for (int v = interleaved ? 2 : 1; v <= (interleaved ? 4 : 1); ++v) {
          const PipelineSchedule schedule = make_pipeline_schedule(kind, p, m, v);
          int forward = -1;  // a micro-batch that waits for its backward pass
          for (const PipelineOp& op : schedule.operations.back()) {
            if (op.chunk + 1 != v || !is_compute(op.kind)) continue;
            ASSERT_TRUE(op.kind == PipelineOpKind::kForward ||
                        op.kind == PipelineOpKind::kBackward);
            const bool forwards = op.kind == PipelineOpKind::kForward;
            EXPECT_EQ(forward, forwards ? -1 : op.micro_batch) << p << " " << m << " " << v;
            forward = forwards ? op.micro_batch : -1;
          }
          ++shapes;
        }
      }
    }
  }
  EXPECT_GT(shapes, 300);
}

TEST(PipelineSchedule, MessagesHaveTheSameNumberAtBothEndsAndNoOtherHasIt) {
  for (const PipelineSchedule& s : all_schedules()) {
    std::map<std::tuple<bool, int>, std::vector<std::pair<int, int>>> ends;  // (rank, peer)
    for (int rank = 0; rank < s.ranks; ++rank) {
      for (const PipelineOp& op : s.operations[static_cast<std::size_t>(rank)]) {
        if (is_compute(op.kind)) continue;
        const bool forward = op.kind == Op::kSendForward || op.kind == Op::kReceiveForward;
        ends[{forward, pipeline_message(s, rank, op)}].emplace_back(rank, op.peer);
      }
    }
    const int boundaries = s.ranks == 1 ? 0 : s.stages() - 1;
    EXPECT_EQ(static_cast<int>(ends.size()), 2 * boundaries * s.micro_batches) << name_of(s);
    for (const auto& [message, both] : ends) {
      ASSERT_EQ(both.size(), 2U) << name_of(s);
      EXPECT_EQ(both[0], std::pair(both[1].second, both[1].first)) << name_of(s);
    }
  }
}

TEST(PipelineSchedule, SendsMayCompleteOnReceiptButNotBlock) {
  for (const PipelineSchedule& s : all_schedules()) {
    PipelineTiming timing;
    timing.message = 0.1;
    timing.sends = SendMode::kOnReceive;
    EXPECT_TRUE(check_pipeline(s, timing).has_value()) << name_of(s);
  }
  PipelineTiming blocking;
  blocking.sends = SendMode::kBlocking;
  EXPECT_TRUE(check_pipeline(make_pipeline_schedule(PipelineKind::kGpipe, 4, 8), blocking));
  const auto stopped = check_pipeline(make_pipeline_schedule(PipelineKind::k1F1B, 4, 8), blocking);
  ASSERT_FALSE(stopped.has_value());
  EXPECT_EQ(stopped.error().kind, PipelineFault::Kind::kDeadlock);
  EXPECT_NE(stopped.error().text.find("rank 3 stands at 'send backward of micro-batch 0'"),
            std::string::npos)
      << stopped.error().text;
}

std::string refusal(PipelineKind kind, int p, int m, int v) {
  try {
    static_cast<void>(make_pipeline_schedule(kind, p, m, v));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(PipelineSchedule, RefusesShapesWithTheNearestThatWork) {
  EXPECT_EQ(refusal(PipelineKind::kInterleaved, 4, 6, 2),
            "parallel.micro_batches = 6: interleaved-1f1b needs a multiple of parallel.pp = 4; 4 "
            "and 8 are the nearest, or 1f1b");
  EXPECT_EQ(refusal(PipelineKind::kInterleaved, 4, 3, 2),
            "parallel.micro_batches = 3: interleaved-1f1b needs a multiple of parallel.pp = 4; 4 "
            "is the nearest, or 1f1b");
  EXPECT_EQ(refusal(PipelineKind::kInterleaved, 4, 8, 1),
            "parallel.virtual_stages = 1: interleaved-1f1b needs 2 to 1024; with one it is 1f1b");
  EXPECT_EQ(refusal(PipelineKind::kZbH1, 4, 8, 2),
            "parallel.virtual_stages = 2: zb-h1 has 1; more need interleaved-1f1b");
  EXPECT_EQ(refusal(PipelineKind::kGpipe, 0, 8, 1), "parallel.pp = 0: must be between 1 and 4096");
  EXPECT_EQ(refusal(PipelineKind::kGpipe, 4, 0, 1),
            "parallel.micro_batches = 0: must be at least 1");
  EXPECT_NE(refusal(PipelineKind::kGpipe, 4096, 1 << 20, 1).find("the most is 4096"),
            std::string::npos);
  EXPECT_THROW(static_cast<void>(parse_pipeline_kind("dualpipe")), ConfigError);
  for (const PipelineKind kind : pipeline_kinds()) {
    EXPECT_EQ(parse_pipeline_kind(pipeline_name(kind)), kind);
  }
}

/// Weight of the heaviest stage over all ways to cut, by trying them.
double lightest_cut(std::int64_t layers, int stages, double head) {
  if (stages == 1) return static_cast<double>(layers) + head;
  double best = 1e9;
  for (std::int64_t first = 1; first <= layers - stages + 1; ++first) {
    best = std::min(
        best, std::max(static_cast<double>(first), lightest_cut(layers - first, stages - 1, head)));
  }
  return best;
}

TEST(PipelineSchedule, StagesAreAsLightAsAnyCut) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (std::int64_t layers = stages; layers <= 13; ++layers) {
      for (const double head : {0.0, 0.4, 1.0, 2.5, 5.45, 20.0}) {
        const std::vector<LayerSpan> cut = stage_layers(layers, stages, head);
        std::int64_t at = 0;
        double heaviest = 0;
        for (const LayerSpan& span : cut) {
          EXPECT_EQ(span.begin, at);
          EXPECT_GE(span.size(), 1);
          at = span.end;
          heaviest =
              std::max(heaviest, static_cast<double>(span.size()) + (at == layers ? head : 0));
        }
        EXPECT_EQ(at, layers);
        EXPECT_DOUBLE_EQ(heaviest, lightest_cut(layers, stages, head))
            << layers << " layers, " << stages << " stages, head " << head;
      }
    }
  }
  // GPT-2 small: the head weighs as much as 5.45 layers.
  const std::vector<LayerSpan> gpt2 = {{0, 3}, {3, 7}, {7, 11}, {11, 12}};
  EXPECT_EQ(stage_layers(12, 4, 50257.0 / (12 * 768)), gpt2);
  EXPECT_THROW(static_cast<void>(stage_layers(3, 4, 0)), ConfigError);
}

TEST(PipelineSchedule, IsDrawnAsALineForEachRank) {
  const PipelineSchedule s = make_pipeline_schedule(PipelineKind::k1F1B, 2, 3);
  EXPECT_EQ(draw_pipeline(s, *check_pipeline(s)),
            "rank 0 | F0 F1 .  .  B0--- F2 B1--- .  B2---\n"
            "rank 1 | .  F0 B0--- F1 B1--- F2 B2--- .  .\n");
  const PipelineSchedule split = make_pipeline_schedule(PipelineKind::kZbH1, 2, 2);
  EXPECT_EQ(draw_pipeline(split, *check_pipeline(split)),
            "rank 0 | F0 F1 .  B0 W0 B1 W1\n"
            "rank 1 | .  F0 B0 F1 B1 W0 W1\n");
  const PipelineSchedule chunks = make_pipeline_schedule(PipelineKind::kInterleaved, 1, 1, 2);
  EXPECT_EQ(draw_pipeline(chunks, *check_pipeline(chunks)), "rank 0 | F0a F0b B0b---- B0a----\n");
  // Cut into blocks of lines where the terminal is narrow.
  const PipelineTextOptions narrow{.width = 33, .blocks = 1, .waiting = "-", .paint = {}};
  EXPECT_EQ(draw_pipeline(s, *check_pipeline(s), narrow),
            "rank 0 | F0 F1 -  -  B0--- F2 B1-\n"
            "rank 1 | -  F0 B0--- F1 B1--- F2\n"
            "... and 33 % more\n");
}

}  // namespace
}  // namespace isthmus::this_file
