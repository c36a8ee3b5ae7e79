// SPDX-License-Identifier: Apache-2.0
// Step times of meshes by hand, links between ranks, and the order of meshes.
#include "plan/mesh_search.h"

#include <gtest/gtest.h>

#include "config/schema/recompute.h"
#include "inner/mesh/pipeline_schedule_check.h"

namespace isthmus::plan::this_file {
namespace {

MeshWorkload workload(std::int64_t layers = 8, std::int64_t vocab = 16) {
  ModelConfig model;
  model.arch = "llama";
  model.layers = layers;
  model.d_model = 256;
  model.heads = 8;
  model.kv_heads = 8;
  model.d_ff = 1024;
  model.vocab = vocab;
  return {model_shape(model, 64), InnerConfig{}, 64, 64};
}

/// Two nodes of four ranks.
MeshMachine two_nodes(double inside = 100e9, double between = 1e9) {
  MeshMachine machine;
  machine.flops_per_s = 1e12;
  machine.links = {{"node", 4, inside, 1e-6}, {"network", 0, between, 10e-6}};
  return machine;
}

MeshChoice mesh(int tp, int pp, int dp, std::int64_t micro_batches = 1) {
  MeshChoice choice;
  choice.tp = tp;
  choice.pp = pp;
  choice.dp = dp;
  choice.micro_batches = micro_batches;
  return choice;
}

MeshTime time_of(const MeshWorkload& w, const MeshChoice& choice, const MeshMachine& machine) {
  return mesh_time(choice, rank_costs(ModelLayout(w.shape), w, choice), machine);
}

TEST(MeshTime, GroupsUseTheSlowestLinkAmongTheirRanks) {
  const auto links = two_nodes().links;
  const auto link = [&](const MeshChoice& choice, MeshDimension dimension) {
    return links[slowest_link(choice, kMeshOrder, dimension, links)].name;
  };
  EXPECT_EQ(link(mesh(4, 1, 2), MeshDimension::kTensor), "node");
  EXPECT_EQ(link(mesh(4, 1, 2), MeshDimension::kData), "network");
  EXPECT_EQ(link(mesh(8, 1, 1), MeshDimension::kTensor), "network");
  EXPECT_EQ(link(mesh(2, 2, 2), MeshDimension::kData), "node");  // inside the pipeline stages
  EXPECT_EQ(link(mesh(2, 2, 2), MeshDimension::kPipeline), "network");
  EXPECT_EQ(link(mesh(1, 1, 1), MeshDimension::kPipeline), "node");
  // Groups of three do not keep to nodes of four.
  EXPECT_EQ(link(mesh(3, 1, 2), MeshDimension::kTensor), "network");
  constexpr MeshOrder kTensorOutside = {MeshDimension::kPipeline, MeshDimension::kData,
                                        MeshDimension::kTensor};
  EXPECT_EQ(links[slowest_link(mesh(2, 2, 2), kTensorOutside, MeshDimension::kTensor, links)].name,
            "network");
}

TEST(MeshTime, IsComputingPlusCommunicationThatNothingHides) {
  const MeshWorkload w = workload();
  const MeshMachine machine = two_nodes();
  const RankCost one = rank_cost(w, mesh(1, 1, 1), 0);
  EXPECT_DOUBLE_EQ(time_of(w, mesh(1, 1, 1), machine).step, one.flops / 1e12);

  // Tensor-parallel sums of 64 x 64 x 256 floats in a node: four a layer, two outside, each with
  // six hops; and the softmax of the rows.
  const MeshTime tensor = time_of(w, mesh(4, 1, 1), machine);
  const double stream = 64 * 64 * 256 * 4;
  const double sums = (4 * 8 + 2) * (2 * 0.75 * stream / 100e9 + 6 * 1e-6);
  const double softmax = 0.75 * 4 * 64 * 64 * 24 / 100e9 + 3 * 1e-6;
  EXPECT_NEAR(tensor.tensor, sums + softmax, 1e-12);
  EXPECT_NEAR(tensor.step, rank_cost(w, mesh(4, 1, 1), 0).flops / 1e12 + sums + softmax, 1e-12);

  // Gradients of all values over the network in buckets of 2^20, but for what the backward pass
  // hides; then the values themselves.
  const RankCost part = rank_cost(w, mesh(1, 1, 8), 0);
  const double half = (7.0 / 8) * 4 * static_cast<double>(part.elements) / 1e9;
  const auto buckets = static_cast<double>((part.elements + (1 << 20) - 1) / (1 << 20));
  const double reduce = half + buckets * 7 * 10e-6, gather = half + 7 * 10e-6;
  const MeshTime data = time_of(w, mesh(1, 1, 8), machine);
  EXPECT_NEAR(data.data, reduce - part.flops * 2 / 3 / 1e12 + gather, 1e-7);
  EXPECT_NEAR(data.step, data.compute + data.data, 1e-12);
}

TEST(MeshTime, BubbleIsTheFormulaForEqualStages) {
  // No vocabulary to speak of, so that four stages of two layers are nearly alike.
  const MeshWorkload w = workload(8, 1);
  MeshMachine machine = two_nodes(1e18, 1e18);
  for (LinkClass& link : machine.links) link.latency_s = 0;
  const double whole = rank_cost(w, mesh(1, 1, 1), 0).flops / 1e12;
  const auto bubble = [&](PipelineKind kind, int chunks) {
    MeshChoice choice = mesh(1, 4, 1, 8);
    choice.schedule = kind;
    choice.virtual_stages = chunks;
    return time_of(w, choice, machine).bubble / whole;
  };
  // (p - 1) / (p m), and of that 1 / v and 1 / 3.
  EXPECT_NEAR(bubble(PipelineKind::k1F1B, 1), 3.0 / 32, 1e-3);
  EXPECT_NEAR(bubble(PipelineKind::kInterleaved, 2), 3.0 / 64, 1e-3);
  // 3 (F + B - W): attention, of 4 d T operations a token and layer beside 8 d^2 + 6 d d_ff, has no
  // weights and so is twice in B and not in W.
  const double attention = 4.0 * 256 * 64, products = 8.0 * 256 * 256 + 6.0 * 256 * 1024;
  const double share = attention / (attention + products);
  EXPECT_NEAR(bubble(PipelineKind::kZbH1, 1), (1 + 2 * share) / 32, 1e-4);
}

TEST(MeshTime, LongStepsAreAsIfPlayedWhole) {
  // A head of a whole layer and slow links, so that stages differ and messages delay.
  const MeshWorkload w = workload(8, 12 * 256);
  const MeshMachine machine = two_nodes();
  for (const auto& [kind, chunks] :
       {std::pair{PipelineKind::k1F1B, 1}, std::pair{PipelineKind::kInterleaved, 2},
        std::pair{PipelineKind::kZbH1, 1}, std::pair{PipelineKind::kGpipe, 1}}) {
    MeshChoice choice = mesh(1, 4, 1, 64);
    choice.schedule = kind;
    choice.virtual_stages = chunks;
    const auto costs = rank_costs(ModelLayout(w.shape), w, choice);
    PipelineTiming timing;
    timing.stages.clear();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (const RankCost& cost : costs) {
        // Of the last stage: the head's rows, with all their gradients in the forward pass.
        const bool last = chunk + 1 == chunks && cost.pipeline_rank == 3;
        const double rows = 64, d = 256, vocab = 12 * 256;
        const double head = last ? rows * 2 * (d * vocab + d) / 1e12 : 0;
        const double forward = cost.stages[static_cast<std::size_t>(chunk)].forward_flops / 1e12;
        const double attention =
            cost.stages[static_cast<std::size_t>(chunk)].attention_flops / 1e12;
        timing.stages.push_back(
            {forward + 2 * head, forward - head + attention, forward - head - attention});
      }
    }
    timing.message = 1e-6 + static_cast<double>(costs[0].message_bytes) / 100e9;
    const auto report = check_pipeline(make_pipeline_schedule(kind, 4, 64, chunks), timing);
    const MeshTime time = mesh_time(choice, costs, machine);
    EXPECT_NEAR(time.step - time.data, report->makespan, 1e-9 * report->makespan)
        << pipeline_name(kind);
  }
}

TEST(MeshSearch, KeepsTensorParallelismInTheNode) {
  MeshMachine machine = two_nodes();
  MeshSearch search;
  search.ranks = 8;
  const MeshRanking ranking = rank_meshes(workload(), machine, search);
  ASSERT_FALSE(ranking.candidates.empty());
  // All of 8 = tp pp dp: ten meshes, all of which work here.
  EXPECT_EQ(ranking.candidates.size() + ranking.refused.size(), 10U);
  double before = 0;
  for (const MeshCandidate& candidate : ranking.candidates) {
    EXPECT_EQ(candidate.choice.ranks(), 8);
    EXPECT_GE(candidate.time.step, before);
    before = candidate.time.step;
    EXPECT_FALSE(candidate.why.empty());
    const MeshTime& t = candidate.time;
    EXPECT_NEAR(t.step, t.compute + t.tensor + t.bubble + t.data, 1e-12);
  }
  EXPECT_LE(ranking.candidates.front().choice.tp, 4);
  EXPECT_EQ(ranking.candidates.back().choice.tp, 8);  // over the network: the worst of all
}

// A pass ends once its own chunk's gradients are reduced, and those of the chunk's first layer are
// final last: with two chunks there are two of these in each micro-batch.
TEST(MeshTime, ZeroTwoWaitsForTheLastBucketOfEachVirtualStage) {
  MeshMachine machine;
  machine.flops_per_s = 1e9;  // so slow that all else is hidden
  machine.links = {{"node", 0, 1e9, 1e-3}};
  MeshWorkload work = workload();
  const auto data = [&](int zero, std::int64_t micro_batches) {
    MeshChoice choice = mesh(1, 2, 2, micro_batches);
    choice.zero = zero;
    choice.schedule = PipelineKind::kInterleaved;
    choice.virtual_stages = 2;
    return time_of(work, choice, machine).data;
  };
  work.shape.tied = false;
  // Slices are halves, so that each of a stage's two layers goes to one rank.
  const double layer = 4 * 256 * 256 + 3 * 256 * 1024 + 2 * 256;
  const double bucket = 4 * layer / 1e9 + 1e-3;
  for (const int zero : {2, 3}) {
    EXPECT_NEAR(data(zero, 8) - data(zero, 4), (8 - 4) * 2 * bucket, 1e-9) << zero;
  }
  EXPECT_NEAR(data(1, 8), data(1, 4), 1e-9);  // once a step
  // A tied table lies before the layers of the last stage, and its slices begin with it: of the
  // first layer the first rank has what is left of its half.
  work.shape.tied = true;
  const double table = static_cast<double>(work.shape.vocab * work.shape.d_model);
  const double half = (table + 2 * layer + 256) / 2;
  const double table_and_layer = 4 * half / 1e9 + 2e-3;
  EXPECT_NEAR(data(2, 8) - data(2, 4), (8 - 4) * (bucket + table_and_layer), 1e-9);
}

// Wide weights, one short sample a rank and fast products: the optimizer's arrays take the time.
TEST(MeshSearch, NamesTheUpdateAsTheReason) {
  const auto links_without_time = [](double memory_rate) {
    MeshMachine machine = two_nodes(1e30, 1e30);
    machine.flops_per_s = 1e20;
    machine.memory_bytes_per_s = memory_rate;
    for (LinkClass& link : machine.links) link.latency_s = 0;
    return machine;
  };
  MeshWorkload w = workload();
  w.context = 1;
  w.sequences = 8;
  MeshSearch search;
  search.ranks = 8;
  search.micro_batches = 1;
  search.pp = 1;
  search.tp = 1;
  const auto only = [&](double rate) {
    return rank_meshes(w, links_without_time(rate), search).candidates.front();
  };
  const MeshCandidate slow = only(1e9);
  ASSERT_GT(slow.time.update, 0.5 * slow.time.step);
  EXPECT_NE(slow.why.find("; then the update "), std::string::npos) << slow.why;
  EXPECT_NE(slow.why.find(" through memory"), std::string::npos) << slow.why;
  EXPECT_EQ(only(0).why, "computes all of the time");

  // Without ZeRO all ranks share it; with ZeRO those of a stage, and the last one has the head too.
  w = workload(2, 8192);
  w.context = 1;
  w.sequences = 8;
  search = {};
  search.ranks = 8;
  search.zero = 1;
  const MeshRanking ranking = rank_meshes(w, links_without_time(1e9), search);
  ASSERT_GE(ranking.candidates.size(), 2U);
  const MeshTime& best = ranking.candidates.front().time;
  int named = 0;
  for (std::size_t i = 1; i < ranking.candidates.size(); ++i) {
    const MeshCandidate& each = ranking.candidates[i];
    const MeshTime& t = each.time;
    const double lost = t.update - best.update;
    const bool most = lost > t.compute - best.compute && lost > t.tensor - best.tensor &&
                      lost > t.bubble - best.bubble && lost > t.data - best.data;
    const bool says = each.why.find("the update ") == 0;
    EXPECT_EQ(says, most) << mesh_text(each.choice) << ": " << each.why;
    named += says ? 1 : 0;
  }
  EXPECT_GT(named, 0);
}

TEST(MeshSearch, TakesAsMuchZeroAndRecomputationAsMemoryNeeds) {
  const MeshWorkload w = workload();
  MeshMachine machine = two_nodes();
  MeshSearch search;
  search.ranks = 4;
  search.tp = 1;
  search.pp = 1;
  search.micro_batches = 1;
  const auto best = [&] { return rank_meshes(w, machine, search).candidates.front(); };
  EXPECT_EQ(best().choice.zero, 1);
  EXPECT_EQ(best().choice.recompute, Recompute::kNone);
  MeshChoice choice = mesh(1, 1, 4);
  choice.zero = 2;
  machine.memory_bytes = rank_cost(w, choice, 0).memory.total();
  EXPECT_TRUE(best().fits);
  EXPECT_TRUE(best().choice.zero == 2 || best().choice.recompute != Recompute::kNone);
  choice.zero = 3;
  choice.recompute = Recompute::kFull;
  machine.memory_bytes = rank_cost(w, choice, 0).memory.total();
  EXPECT_TRUE(best().fits);
  EXPECT_EQ(best().choice.zero, 3);
  EXPECT_EQ(best().choice.recompute, Recompute::kFull);

  machine.memory_bytes -= 1;
  const MeshRanking none = rank_meshes(w, machine, search);
  EXPECT_FALSE(none.fits());
  EXPECT_EQ(none.enough_ranks, 8);  // the same memory for half of the samples and the state
  EXPECT_NE(none.candidates.front().why.find("too much even with ZeRO 3 and recomputation"),
            std::string::npos)
      << none.candidates.front().why;
}

// By bytes alone: as much as each kind needs, the kind is taken and none that saves more.
TEST(MeshSearch, TriesNoneThenSelectiveThenFullRecomputation) {
  const MeshWorkload w = workload();
  MeshMachine machine = two_nodes();
  MeshSearch search;
  search.ranks = 4;
  search.tp = 1;
  search.pp = 1;
  search.zero = 1;
  search.micro_batches = 1;
  MeshChoice choice = mesh(1, 1, 4);
  choice.zero = 1;
  std::int64_t before = 0;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    choice.recompute = recompute;
    machine.memory_bytes = rank_cost(w, choice, 0).memory.total();
    EXPECT_TRUE(before == 0 || machine.memory_bytes < before) << recompute_name(recompute);
    before = machine.memory_bytes;
    const MeshCandidate best = rank_meshes(w, machine, search).candidates.front();
    EXPECT_TRUE(best.fits) << recompute_name(recompute);
    EXPECT_EQ(best.choice.recompute, recompute);
  }
  machine.memory_bytes = 0;
  search.recompute = Recompute::kSelective;  // asked for
  EXPECT_EQ(rank_meshes(w, machine, search).candidates.front().choice.recompute,
            Recompute::kSelective);
}

TEST(MeshSearch, RefusesWithTheReason) {
  MeshSearch search;
  search.ranks = 24;
  search.tp = 3;
  const MeshRanking ranking = rank_meshes(workload(), two_nodes(), search);
  EXPECT_TRUE(ranking.candidates.empty());
  ASSERT_FALSE(ranking.refused.empty());
  EXPECT_EQ(ranking.refused.front().text,
            "parallel.tp = 3: must divide model.n_heads = 8; the nearest that works is 2");
}

}  // namespace
}  // namespace isthmus::plan::this_file
