// SPDX-License-Identifier: Apache-2.0
// Placed meshes against a step that is played: ranks as tasks in virtual time, passes as compute
// regions, rings and messages as frames over the links between the slots that ranks were put in.
#include "plan/mesh_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "inner/mesh/mesh.h"
#include "inner/mesh/pipeline_schedule.h"
#include "plan/mesh_search.h"
#include "sim/network.h"
#include "sim/world.h"

namespace isthmus::plan::this_file {
namespace {
using Op = PipelineOpKind;

// What the plan leaves out of a step: rings that overlap one another, a stage that is done early
// reducing early, whole nanoseconds and bytes.
constexpr double kPlayed = 0.05;

Duration duration_of(double seconds) {
  return Duration(static_cast<std::int64_t>(seconds * 1e9 + 0.5));
}

/// One step of a mesh whose ranks are in slots.
class Step {
 public:
  Step(const MeshWorkload& workload, const MeshChoice& choice, const MeshMachine& machine,
       const MeshOrder& order)
      : choice_(choice),
        machine_(machine),
        costs_(rank_costs(ModelLayout(workload.shape), workload, choice)),
        schedule_(make_pipeline_schedule(choice.schedule, choice.pp,
                                         static_cast<int>(choice.micro_batches),
                                         choice.virtual_stages)),
        rank_of_slot_(ranks_by_slot(choice, order)) {
    slot_of_rank_.resize(rank_of_slot_.size());
    for (std::size_t slot = 0; slot < rank_of_slot_.size(); ++slot) {
      slot_of_rank_[static_cast<std::size_t>(rank_of_slot_[slot])] = static_cast<int>(slot);
    }
  }

  /// Seconds until the last rank is done.
  double play() {
    SimWorld world(1);
    world_ = &world;
    double seconds = 0;
    world.run([&] {
      // Several groups on one link do not hinder one another, as in the plan.
      SimNetwork tensor(world, choice_.ranks(), links());
      SimNetwork pipeline(world, choice_.ranks(), links());
      SimNetwork data(world, choice_.ranks(), links());
      const auto tensor_ends = tensor.endpoints();
      const auto pipeline_ends = pipeline.endpoints();
      const auto data_ends = data.endpoints();
      std::vector<std::unique_ptr<Task>> tasks;
      for (std::size_t slot = 0; slot < rank_of_slot_.size(); ++slot) {
        tasks.push_back(world.spawn("rank", [&, slot] {
          run_rank(static_cast<int>(rank_of_slot_[slot]), *tensor_ends[slot], *pipeline_ends[slot],
                   *data_ends[slot]);
        }));
      }
      for (const auto& task : tasks) task->join();
      seconds = std::chrono::duration<double>(world.clock().now() - TimePoint{}).count();
    });
    return seconds;
  }

 private:
  static constexpr double kBits = 8;

  [[nodiscard]] MeshShape shape() const {
    return {.tp = choice_.tp, .pp = choice_.pp, .dp = choice_.dp};
  }
  [[nodiscard]] WorkerId slot(const MeshPosition& at) const {
    return WorkerId(slot_of_rank_[static_cast<std::size_t>(mesh_rank(shape(), at))]);
  }

  /// Between all slots; by what both ends' places in the machine say, nobody else.
  [[nodiscard]] std::vector<DirectedLink> links() const {
    std::vector<DirectedLink> all;
    for (int from = 0; from < choice_.ranks(); ++from) {
      for (int to = 0; to < choice_.ranks(); ++to) {
        const LinkClass* link = &machine_.links.back();
        for (auto it = machine_.links.rbegin(); it != machine_.links.rend(); ++it) {
          if (it->ranks == 0 || from / it->ranks == to / it->ranks) link = &*it;
        }
        all.push_back({.bits_per_s = static_cast<std::int64_t>(link->bytes_per_s * kBits),
                       .one_way = duration_of(link->latency_s)});
      }
    }
    return all;
  }

  void compute(double flops) {
    world_->compute(duration_of(flops / machine_.flops_per_s), [] {});
  }

  /// Collectives of a rank as rings: what it sends goes to `next` in as many equal parts as there
  /// are hops, each after the one before has come from the other side.
  static void ring(Transport& end, const Volume& volume, WorkerId next) {
    if (volume.hops == 0) return;
    const auto part = std::make_shared<const std::vector<std::byte>>(
        static_cast<std::size_t>(volume.sent_bytes / static_cast<double>(volume.hops) + 0.5));
    for (std::int64_t hop = 0; hop < volume.hops; ++hop) {
      end.send(next, part);
      ASSERT_TRUE(end.receive(TimePoint(std::chrono::hours(1000))).has_value());
    }
  }

  void run_rank(int rank, Transport& tensor, Transport& pipeline, Transport& data) {
    const MeshPosition at = mesh_position(shape(), rank);
    const RankCost& cost = costs_[static_cast<std::size_t>(at.pp)];
    const WorkerId tensor_next = slot({(at.tp + 1) % choice_.tp, at.pp, at.dp});
    const WorkerId data_next = slot({at.tp, at.pp, (at.dp + 1) % choice_.dp});
    std::unique_ptr<Task> reduction;
    std::map<int, int> early;
    for (const PipelineOp& op : schedule_.operations[static_cast<std::size_t>(at.pp)]) {
      const StageWork& work = cost.stages[static_cast<std::size_t>(op.chunk)];
      switch (op.kind) {
        case Op::kForward:
          compute(work.forward_flops + 2 * work.head_flops);
          ring(tensor, work.forward, tensor_next);
          break;
        case Op::kBackward:
          if (op.micro_batch + 1 == choice_.micro_batches && !reduction && choice_.dp > 1) {
            reduction = world_->spawn("reduction", [&] {
              Volume early_ones = cost.data.reduce;
              early_ones.hops -= cost.data.last.hops;
              early_ones.sent_bytes -= cost.data.last.sent_bytes;
              ring(data, early_ones, data_next);
            });
          }
          compute(2 * (work.forward_flops - work.head_flops) + work.again_flops);
          ring(tensor, work.backward, tensor_next);
          break;
        case Op::kSendForward:
        case Op::kSendBackward: {
          auto frame =
              std::vector<std::byte>(static_cast<std::size_t>(cost.message_bytes), std::byte{0});
          frame.front() = static_cast<std::byte>(message(at.pp, op));
          pipeline.send(slot({at.tp, op.peer, at.dp}),
                        std::make_shared<const std::vector<std::byte>>(std::move(frame)));
          break;
        }
        case Op::kReceiveForward:
        case Op::kReceiveBackward:
          await(pipeline, message(at.pp, op), early);
          break;
        default:
          FAIL() << "a split backward pass is not played";
      }
    }
    if (!reduction) return;
    reduction->join();
    ring(data, cost.data.last, data_next);
    ring(data, cost.data.gather, data_next);
  }

  [[nodiscard]] int message(int pipeline_rank, const PipelineOp& op) const {
    const bool forward = op.kind == Op::kSendForward || op.kind == Op::kReceiveForward;
    const int number = 2 * pipeline_message(schedule_, pipeline_rank, op) + (forward ? 0 : 1);
    EXPECT_LT(number, 256);  // a byte says which it is
    return number;
  }

  static void await(Transport& end, int message, std::map<int, int>& early) {
    while (early[message] == 0) {
      const auto frame = end.receive(TimePoint(std::chrono::hours(1000)));
      ASSERT_TRUE(frame.has_value());
      ++early[std::to_integer<int>((*frame->bytes)[0])];
    }
    --early[message];
  }

  const MeshChoice& choice_;
  const MeshMachine& machine_;
  std::vector<RankCost> costs_;
  PipelineSchedule schedule_;
  std::vector<std::int64_t> rank_of_slot_;
  std::vector<int> slot_of_rank_;
  SimWorld* world_ = nullptr;
};

struct Case {
  std::string name;
  std::int64_t d_model, d_ff, rows;  // of a micro-batch
  MeshChoice mesh;
  MeshMachine machine;
  MeshOrder best;
};

MeshWorkload workload_of(const Case& c) {
  constexpr std::int64_t kContext = 16;
  ModelConfig model;
  model.arch = "llama";
  model.layers = 4;
  model.d_model = c.d_model;
  model.heads = 4;
  model.kv_heads = 4;
  model.d_ff = c.d_ff;
  model.vocab = 16;
  model.tied = false;
  const std::int64_t samples = c.rows / kContext * c.mesh.micro_batches * c.mesh.dp;
  return {model_shape(model, kContext), InnerConfig{}, kContext, samples};
}

MeshChoice mesh(int tp, int pp, int dp, std::int64_t micro_batches) {
  MeshChoice choice;
  choice.tp = tp;
  choice.pp = pp;
  choice.dp = dp;
  choice.micro_batches = micro_batches;
  return choice;
}

/// Nodes of four ranks.
MeshMachine nodes(double flops_per_s, double network_bytes_per_s) {
  MeshMachine machine;
  machine.flops_per_s = flops_per_s;
  machine.links = {{"node", 4, 1e9, 1e-6}, {"network", 0, network_bytes_per_s, 20e-6}};
  return machine;
}

constexpr MeshDimension kT = MeshDimension::kTensor, kP = MeshDimension::kPipeline,
                        kD = MeshDimension::kData;

std::vector<Case> cases() {
  return {
      // Large batches of a small model: the stages' messages need the fast link, gradients little.
      {"messages", 32, 64, 1024, mesh(2, 2, 2, 8), nodes(10e9, 20e6), {kT, kP, kD}},
      // A large model and small batches: gradients need it.
      {"gradients", 256, 512, 16, mesh(2, 2, 2, 4), nodes(10e9, 50e6), {kT, kD, kP}},
      // No tensor parallelism: pipelines of four in a node, or data-parallel groups of four.
      {"deep", 32, 64, 1024, mesh(1, 4, 4, 8), nodes(10e9, 20e6), {kT, kP, kD}},
      {"wide", 256, 512, 16, mesh(1, 4, 4, 8), nodes(10e9, 50e6), {kT, kD, kP}},
  };
}

MeshPlacement place(const MeshChoice& choice, const std::vector<RankCost>& costs,
                    const MeshMachine& machine) {
  return place_mesh(choice, costs, machine, unlike_orders(choice, machine.links));
}

TEST(MeshPlacement, BeatsRankOrderByThePredictedRatio) {
  for (const Case& c : cases()) {
    const MeshWorkload w = workload_of(c);
    ASSERT_TRUE(mesh_problems(w, c.mesh).empty()) << mesh_problems(w, c.mesh).front();
    const auto costs = rank_costs(ModelLayout(w.shape), w, c.mesh);
    const MeshPlacement placed = place(c.mesh, costs, c.machine);
    EXPECT_EQ(order_text(placed.order), order_text(c.best)) << c.name;
    const double best = Step(w, c.mesh, c.machine, placed.order).play();
    const double rank_order = Step(w, c.mesh, c.machine, kMeshOrder).play();
    EXPECT_NEAR(rank_order / best, placed.rank_order_s / placed.time.step,
                kPlayed * placed.rank_order_s / placed.time.step)
        << c.name;
    EXPECT_EQ(rank_order > 1.2 * best, !placed.in_rank_order()) << c.name;
    // Rank order is one of the bad ones elsewhere: no order is better, and each takes its time.
    MeshOrder order = {kT, kP, kD};
    do {
      const double predicted = mesh_time(c.mesh, costs, c.machine, order).step;
      const double played = Step(w, c.mesh, c.machine, order).play();
      EXPECT_NEAR(played, predicted, kPlayed * predicted) << c.name << ": " << order_text(order);
      EXPECT_GE(played, (1 - kPlayed) * best) << c.name << ": " << order_text(order);
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(MeshPlacement, StaysInRankOrderWhereNothingIsGained) {
  const Case c = cases().front();
  const MeshWorkload w = workload_of(c);
  const auto costs = rank_costs(ModelLayout(w.shape), w, c.mesh);
  MeshMachine alike = c.machine;
  alike.links[1] = alike.links[0];
  alike.links[1].ranks = 0;
  EXPECT_TRUE(place(c.mesh, costs, alike).in_rank_order());
  MeshMachine one = c.machine;
  one.links = {{"node", 0, 1e9, 1e-6}};
  const MeshPlacement placed = place(c.mesh, costs, one);
  EXPECT_TRUE(placed.in_rank_order());
  EXPECT_EQ(placed.time.step, placed.rank_order_s);
}

// Slot by slot, by hand: 2 x 2 x 2 with the pipeline beside tensor-parallel pairs.
TEST(MeshPlacement, NamesTheRankOfEachSlot) {
  EXPECT_EQ(ranks_by_slot(mesh(2, 2, 2, 1), {kT, kP, kD}),
            (std::vector<std::int64_t>{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(ranks_by_slot(mesh(2, 2, 2, 1), kMeshOrder),
            (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(ranks_by_slot(mesh(1, 2, 3, 1), {kP, kT, kD}),
            (std::vector<std::int64_t>{0, 3, 1, 4, 2, 5}));
  std::vector<std::int64_t> ranks = ranks_by_slot(mesh(3, 4, 5, 1), {kD, kP, kT});
  std::sort(ranks.begin(), ranks.end());
  for (std::size_t i = 0; i < ranks.size(); ++i) EXPECT_EQ(ranks[i], static_cast<std::int64_t>(i));
}

// Nodes of four ranks, by hand. Of 2 x 2 x 2 the dimension that comes last has the network; of
// 1 x 4 x 4 the inner one of two; and a pipeline of two, whose ring of virtual stages is the same
// two ranks, is as it is without.
TEST(MeshPlacement, LooksAtOneOrderForEachUseOfTheLinks) {
  const std::vector<LinkClass> links = nodes(1, 1).links;
  const auto texts = [&](const MeshChoice& choice) {
    std::vector<std::string> all;
    for (const MeshOrder& order : unlike_orders(choice, links)) all.push_back(order_text(order));
    return all;
  };
  const std::vector<std::string> cube = {"tensor, data, pipeline", "tensor, pipeline, data",
                                         "pipeline, data, tensor"};
  EXPECT_EQ(texts(mesh(2, 2, 2, 8)), cube);
  MeshChoice chunked = mesh(2, 2, 2, 8);
  chunked.virtual_stages = 2;
  EXPECT_EQ(texts(chunked), cube);
  EXPECT_EQ(texts(mesh(1, 4, 4, 8)),
            (std::vector<std::string>{"tensor, data, pipeline", "tensor, pipeline, data"}));
  EXPECT_EQ(texts(mesh(4, 1, 1, 8)), (std::vector<std::string>{"tensor, data, pipeline"}));
}

// The search puts a mesh where it is fastest, and says what rank order would take.
TEST(MeshSearch, PlacesItsMeshes) {
  const Case c = cases().front();
  MeshSearch search;
  search.ranks = 8;
  search.tp = 2;
  search.pp = 2;
  search.micro_batches = c.mesh.micro_batches;
  search.schedule = PipelineKind::k1F1B;
  search.zero = 0;
  search.sequence_parallel = false;
  const MeshRanking ranking = rank_meshes(workload_of(c), c.machine, search);
  ASSERT_EQ(ranking.candidates.size(), 1U);
  const MeshCandidate& found = ranking.candidates.front();
  EXPECT_EQ(order_text(found.order), "tensor, pipeline, data");
  EXPECT_GT(found.rank_order_s, 1.2 * found.time.step);
}

}  // namespace
}  // namespace isthmus::plan::this_file
