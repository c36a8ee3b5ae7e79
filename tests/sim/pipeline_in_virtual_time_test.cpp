// SPDX-License-Identifier: Apache-2.0
// The lists of the pipeline schedules as a runtime executes them: ranks as tasks, passes as compute
// regions of fixed times, messages as frames over links. Idle time against the papers' formulas.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "inner/mesh/pipeline_schedule.h"
#include "sim/network.h"
#include "sim/world.h"

namespace isthmus::this_file {
namespace {
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Op = PipelineOpKind;

/// Of a chunk and one micro-batch.
struct PassTimes {
  Duration forward, input, weight;
  [[nodiscard]] Duration of(Op kind) const {
    switch (kind) {
      case Op::kForward:
        return forward;
      case Op::kBackward:
        return input + weight;
      case Op::kBackwardInput:
        return input;
      default:
        return weight;
    }
  }
};

// A message takes a hundredth of a pass of 100 ms: 1000 bytes in 0.1 ms, and 0.9 ms on the way.
constexpr DirectedLink kLink{.bits_per_s = 80'000'000, .one_way = microseconds(900)};
constexpr std::size_t kFrameBytes = 1000;

/// Executes one rank's list; frames that come before their turn wait in `early`.
class PipelineRank {
 public:
  PipelineRank(SimWorld& world, Transport& end, const PipelineSchedule& schedule,
               const PassTimes& times)
      : world_(world), end_(end), schedule_(schedule), times_(times) {}

  void run() {
    const int self = end_.self().value();
    for (const PipelineOp& op : schedule_.operations[static_cast<std::size_t>(self)]) {
      if (is_compute(op.kind)) {
        world_.compute(times_.of(op.kind), [] {});
        busy += times_.of(op.kind);
        continue;
      }
      const bool forward = op.kind == Op::kSendForward || op.kind == Op::kReceiveForward;
      const int message = 2 * pipeline_message(schedule_, self, op) + (forward ? 0 : 1);
      if (op.kind == Op::kSendForward || op.kind == Op::kSendBackward) {
        end_.send(WorkerId(op.peer), std::make_shared<const std::vector<std::byte>>(
                                         kFrameBytes, static_cast<std::byte>(message)));
      } else {
        take(op.peer, message);
      }
    }
  }

  Duration busy{0};

 private:
  void take(int peer, int message) {
    while (early_[{peer, message}] == 0) {
      const auto frame = end_.receive(TimePoint(seconds(1000)));
      ASSERT_TRUE(frame.has_value());
      ++early_[{frame->from.value(), std::to_integer<int>((*frame->bytes)[0])}];
    }
    --early_[{peer, message}];
  }

  SimWorld& world_;
  Transport& end_;
  const PipelineSchedule& schedule_;
  const PassTimes& times_;
  std::map<std::pair<int, int>, int> early_;
};

/// Idle time of each rank until all are done.
std::vector<Duration> idle_times(const PipelineSchedule& schedule, const PassTimes& times) {
  SimWorld world(1);
  SimNetwork network(world, schedule.ranks, uniform_links(schedule.ranks, kLink));
  std::vector<Duration> idle;
  world.run([&] {
    const auto ends = network.endpoints();
    std::vector<PipelineRank> ranks;
    for (const auto& end : ends) ranks.emplace_back(world, *end, schedule, times);
    std::vector<std::unique_ptr<Task>> tasks;
    for (PipelineRank& rank : ranks) {
      tasks.push_back(world.spawn("rank", [&rank] { rank.run(); }));
    }
    for (const auto& task : tasks) task->join();
    for (const PipelineRank& rank : ranks) {
      idle.push_back(world.clock().now() - TimePoint{} - rank.busy);
    }
  });
  return idle;
}

struct BubbleCase {
  std::string name;
  PipelineKind kind;
  int chunks;
  PassTimes times;
  Duration formula;  // at p = 4
};

TEST(PipelineInVirtualTime, BubblesStayWithinFivePercentOfTheFormulas) {
  constexpr auto kPass = milliseconds(100);
  const PassTimes equal{kPass, kPass, kPass};
  const PassTimes unequal{kPass, milliseconds(120), milliseconds(80)};
  const BubbleCase cases[] = {
      // (p - 1) (F + B + W) / v of a whole stage, here of v chunks
      {"gpipe", PipelineKind::kGpipe, 1, equal, 3 * milliseconds(300)},
      {"gpipe, unequal", PipelineKind::kGpipe, 1, unequal, 3 * milliseconds(300)},
      {"1f1b", PipelineKind::k1F1B, 1, equal, 3 * milliseconds(300)},
      {"interleaved", PipelineKind::kInterleaved, 2, equal, 3 * milliseconds(2 * 300) / 2},
      {"interleaved, unequal", PipelineKind::kInterleaved, 2, unequal, 3 * milliseconds(300)},
      // (p - 1) (F + B - W)
      {"zb-h1", PipelineKind::kZbH1, 1, equal, 3 * milliseconds(100)},
      {"zb-h1, unequal", PipelineKind::kZbH1, 1, unequal, 3 * milliseconds(140)}};
  for (const BubbleCase& c : cases) {
    const PipelineSchedule schedule = make_pipeline_schedule(c.kind, 4, 8, c.chunks);
    for (const Duration idle : idle_times(schedule, c.times)) {
      EXPECT_GT(idle, c.formula) << c.name;  // messages take time
      EXPECT_LE(20 * idle, 21 * c.formula) << c.name;
    }
  }
}

}  // namespace
}  // namespace isthmus::this_file
