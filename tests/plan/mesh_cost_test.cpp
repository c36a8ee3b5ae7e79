// SPDX-License-Identifier: Apache-2.0
// Memory, operations and traffic of a mesh against closed forms, and against what one rank counts
// for itself.
#include "plan/mesh_cost.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "inner/loop/model_cost.h"
#include "inner/model/presets.h"
#include "inner/model_families.h"

namespace isthmus::plan::this_file {
namespace {
constexpr std::int64_t kD = 64, kLayers = 8, kVocab = 512, kContext = 32, kSequences = 16;

MeshWorkload workload(const std::string& arch, bool tied = true, std::int64_t kv_heads = 0) {
  ModelConfig model;
  model.arch = arch;
  model.layers = kLayers;
  model.d_model = kD;
  model.heads = 8;
  model.kv_heads = kv_heads;
  model.d_ff = 4 * kD;
  model.vocab = kVocab;
  model.tied = tied;
  return {model_shape(model, kContext), InnerConfig{}, kContext, kSequences};
}

MeshChoice mesh(int tp, int pp, int dp, std::int64_t micro_batches = 1) {
  MeshChoice choice;
  choice.tp = tp;
  choice.pp = pp;
  choice.dp = dp;
  choice.micro_batches = micro_batches;
  return choice;
}

TEST(MeshCost, OneRankCountsWhatTheModelCountsForItself) {
  for (const Workload& preset : workloads()) {
    for (const std::string_view optimizer : {"adamw", "sgd", "muon"}) {
      for (const bool qk_norm : {false, true}) {
        for (const int kind : {0, 1, 2, 3, 4, 5}) {
          const auto recompute = static_cast<Recompute>(kind / 2);
          const bool bf16 = kind % 2 != 0;
          ModelConfig model = preset.model;
          if (qk_norm && model.arch != "llama") continue;
          model.qk_norm = qk_norm;
          MeshWorkload w{model_shape(model, preset.context), InnerConfig{}, preset.context,
                         preset.sequences};
          w.inner.optimizer = optimizer;
          MeshChoice choice = mesh(1, 1, 1, preset.sequences);
          choice.recompute = recompute;
          choice.bf16 = bf16;
          const RankCost cost = rank_cost(w, choice, 0);
          const ModelLayout layout(w.shape);
          const MemoryEstimate own =
              training_memory(layout, w.inner, w.context, recompute, bf16, preset.sequences);
          EXPECT_EQ(cost.memory.parameters, own.parameters) << preset.name;
          EXPECT_EQ(cost.memory.gradients, own.gradients) << preset.name;
          EXPECT_EQ(cost.memory.moments, own.moments) << preset.name << optimizer;
          EXPECT_EQ(cost.memory.update, own.update) << preset.name << optimizer;
          EXPECT_EQ(cost.memory.activations, own.activations) << preset.name << kind << qk_norm;
          EXPECT_EQ(cost.memory.logits, own.logits) << preset.name;
          EXPECT_EQ(cost.memory.total(), own.total()) << preset.name;
          if (recompute == Recompute::kFull) continue;
          const double tokens = static_cast<double>(w.context * w.sequences);
          EXPECT_DOUBLE_EQ(cost.flops, tokens * training_flops_per_token(layout, w.context))
              << preset.name;
        }
      }
    }
  }
}

TEST(MeshCost, OneRankOfAFamilyCountsWhatItsLayersKeep) {
  for (const std::string& family : family_names()) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      for (const bool bf16 : {false, true}) {
        const ModelConfig plain{.arch = "llama",
                                .layers = 3,
                                .d_model = 48,
                                .heads = 4,
                                .kv_heads = 2,
                                .d_ff = 80,
                                .vocab = 101,
                                .tied = false};
        const MeshWorkload w{model_shape(of_family(plain, family), kContext), InnerConfig{},
                             kContext, kSequences};
        MeshChoice choice = mesh(1, 1, 1, kSequences);
        choice.recompute = recompute;
        choice.bf16 = bf16;
        const RankCost cost = rank_cost(w, choice, 0);
        const ModelLayout layout(w.shape);
        const MemoryEstimate own =
            training_memory(layout, w.inner, kContext, recompute, bf16, kSequences);
        EXPECT_EQ(cost.memory.activations, own.activations) << family << bf16;
        EXPECT_EQ(cost.memory.total(), own.total()) << family << bf16;
        if (recompute == Recompute::kFull) continue;
        const double tokens = static_cast<double>(kContext * kSequences);
        EXPECT_DOUBLE_EQ(cost.flops, tokens * training_flops_per_token(layout, kContext)) << family;
      }
    }
  }
}

/// Values of a layer that every tensor-parallel rank has, and those that they share.
struct LayerValues {
  std::int64_t whole = 0, shared = 0;
};
LayerValues layer_values(const std::string& arch, std::int64_t kv_heads) {
  const std::int64_t d = kD, ff = 4 * kD, key = kv_heads * kD / 8;
  if (arch == "gpt2") return {6 * d, 12 * d * d + 7 * d};
  return {2 * d, 2 * d * d + 2 * key * d + 3 * ff * d};
}

TEST(MeshCost, TensorAndPipelineRanksHoldTheirShares) {
  for (const std::string arch : {"gpt2", "llama"}) {
    for (const bool tied : {true, false}) {
      const std::int64_t kv_heads = arch == "gpt2" ? 8 : 4;
      const MeshWorkload w = workload(arch, tied, kv_heads);
      const LayerValues layer = layer_values(arch, kv_heads);
      const std::int64_t positions = arch == "gpt2" ? kContext * kD : 0;
      const std::int64_t norm = arch == "gpt2" ? 2 * kD : kD;
      for (const int tp : {1, 2, 4}) {
        const std::int64_t own = layer.whole + layer.shared / tp;
        const std::int64_t table = kVocab * kD / tp;
        EXPECT_EQ(rank_cost(w, mesh(tp, 1, 1), 0).elements,
                  kLayers * own + positions + norm + table * (tied ? 1 : 2));
        // The head is 0.67 layers: three stages of 2 and a last one of 2 that also bears it.
        EXPECT_EQ(rank_cost(w, mesh(tp, 4, 1), 0).elements, 2 * own + positions + table);
        EXPECT_EQ(rank_cost(w, mesh(tp, 4, 1), 1).elements, 2 * own);
        EXPECT_EQ(rank_cost(w, mesh(tp, 4, 1), 3).elements, 2 * own + norm + table);
      }
    }
  }
}

TEST(MeshCost, OperationsAddUpToThoseOfOneRank) {
  const MeshWorkload w = workload("llama", false, 4);
  const double one = rank_cost(w, mesh(1, 1, 1), 0).flops;
  double stages = 0;
  for (int rank = 0; rank < 4; ++rank) stages += rank_cost(w, mesh(1, 4, 1, 4), rank).flops;
  EXPECT_DOUBLE_EQ(stages, one);
  EXPECT_DOUBLE_EQ(2 * rank_cost(w, mesh(1, 1, 2), 0).flops, one);
  // What is whole on every tensor-parallel rank is computed by each of them.
  const double whole = static_cast<double>(kLayers * 2 * kD + kD);
  const double tokens = static_cast<double>(kContext * kSequences);
  EXPECT_NEAR(4 * rank_cost(w, mesh(4, 1, 1), 0).flops, one + 3 * 6 * tokens * whole, 1e-3);
}

// A layer of this model forward, by hand: d = 64, queries and what closes them d d each, keys and
// values half of that, three products of the feed-forward layer with 4 d, two norms; attention's
// scores and sums 2 d T each.
TEST(MeshCost, RecomputationRunsEachLayerButAStagesLastOnceMore) {
  const MeshWorkload w = workload("llama", false, 4);
  const double d = kD, tokens = static_cast<double>(kContext * kSequences);
  const double weights = 2 * d * d + 2 * d * (d / 2) + 3 * d * 4 * d + 2 * d;
  const double layer = tokens * (2 * weights + 4 * d * kContext);
  const auto more = [&](MeshChoice choice, int rank) {
    const double plain = rank_cost(w, choice, rank).flops;
    choice.recompute = Recompute::kSelective;  // no product, no attention
    EXPECT_EQ(rank_cost(w, choice, rank).flops, plain);
    choice.recompute = Recompute::kFull;
    return rank_cost(w, choice, rank).flops - plain;
  };
  EXPECT_DOUBLE_EQ(more(mesh(1, 1, 1), 0), 7 * layer);
  EXPECT_DOUBLE_EQ(more(mesh(1, 1, 2, 4), 0), 7 * layer / 2);
  for (int rank = 0; rank < 4; ++rank) EXPECT_DOUBLE_EQ(more(mesh(1, 4, 1, 4), rank), layer);
  MeshChoice interleaved = mesh(1, 4, 1, 4);
  interleaved.schedule = PipelineKind::kInterleaved;
  interleaved.virtual_stages = 2;
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(more(interleaved, rank), 0);
}

TEST(MeshCost, TheOuterMethodsDemandsAreOfTheFirstRank) {
  MeshWorkload w = workload("llama");
  w.outer = {.method = "some", .whole_gradients = true, .state_values = 2};
  const std::int64_t values = ModelLayout(w.shape).elements();
  MeshChoice choice = mesh(1, 1, 4);
  EXPECT_EQ(rank_cost(w, choice, 0).memory.outer, 4 * 2 * values);  // gradients are there anyway
  choice.zero = 1;
  EXPECT_EQ(rank_cost(w, choice, 0).memory.outer, 4 * 3 * values);
  choice.pp = 2;
  choice.tp = 2;
  EXPECT_EQ(rank_cost(w, choice, 0).memory.outer, 4 * 3 * values);
  EXPECT_EQ(rank_cost(w, choice, 1).memory.outer, 0);
  const RankMemory with = rank_cost(w, choice, 0).memory;
  w.outer = {};
  EXPECT_EQ(rank_cost(w, choice, 0).memory.total(), with.total() - 4 * 3 * values);
  // In lanes each of 16 ranks has its share. For a moment it has the lane's local values, its codes
  // and those tiles that a report looks at, here every fourth; the first the fragment's codes too.
  const auto tile = static_cast<std::int64_t>(kTileValues);
  const std::int64_t tiles = (values + tile - 1) / tile, of_lane = tiles / 16;
  ASSERT_EQ(tiles / 32, 4);
  w.outer = {.method = "some",
             .state_values = 3,
             .lanes = outer::LaneDemand{
                 .state_values = 3, .fragments = {values}, .codec = make_codec("fp32")}};
  const std::int64_t norms = 8 * (of_lane + tiles);
  const std::int64_t looked_at = 4 * tile * (of_lane / 4 + (tiles + 3) / 4);
  EXPECT_EQ(rank_cost(w, choice, 0).memory.outer,
            (3 + 2) * 4 * tile * of_lane + 4 * values + norms + looked_at);
  const std::int64_t others = rank_cost(w, choice, 1).memory.outer;
  EXPECT_GE(others, (3 + 2) * 4 * tile * of_lane);
  EXPECT_LE(others, (3 + 2) * 4 * tile * (of_lane + 1) + norms + tile * (of_lane + 4));
  w.outer = {.method = "1bit-adam", .adam_moments = true};
  EXPECT_EQ(mesh_problems(w, choice),
            std::vector<std::string>{
                "parallel.zero = 1 with outer.method = \"1bit-adam\": the most that works is 0"});
}

TEST(MeshCost, ZeroDividesTheStateByItsFormulas) {
  const MeshWorkload w = workload("gpt2");
  const int n = 4;
  const std::int64_t p = rank_cost(w, mesh(1, 1, n), 0).elements;
  const std::int64_t state[] = {16 * p, 8 * p + 8 * p / n, 4 * p + 12 * p / n, 16 * p / n};
  for (int zero = 0; zero <= 3; ++zero) {
    MeshChoice choice = mesh(1, 1, n);
    choice.zero = zero;
    const RankMemory m = rank_cost(w, choice, 0).memory;
    EXPECT_EQ(m.parameters + m.gradients + m.moments, state[zero]) << zero;
  }
}

TEST(MeshCost, ActivationsAreOfTheMicroBatchesInFlight) {
  const MeshWorkload w = workload("gpt2", false);
  const std::int64_t scratch = kContext * kD * 4;  // a gradient of the stream, once a rank
  const std::int64_t two_layers = [&] {
    MeshWorkload small = w;
    small.shape.layers = 2;
    small.sequences = 1;
    return rank_cost(small, mesh(1, 1, 1), 0).memory.activations - scratch;
  }();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(rank_cost(w, mesh(1, 4, 1, 16), rank).memory.activations,
              (4 - rank) * two_layers + scratch);
    MeshChoice gpipe = mesh(1, 4, 1, 16);
    gpipe.schedule = PipelineKind::kGpipe;
    EXPECT_EQ(rank_cost(w, gpipe, rank).memory.activations, 16 * two_layers + scratch);
    MeshChoice split = mesh(1, 4, 1, 16);
    split.schedule = PipelineKind::kZbH1;
    // A split backward pass has scratch for the widest gradient, here of the feed-forward layer.
    EXPECT_EQ(rank_cost(w, split, rank).memory.activations,
              4 * two_layers + scratch + kContext * 4 * kD * 4);
  }
  // Of a layer with tensor parallelism: queries, keys, values, what they attend and the
  // feed-forward layer are shared; with a split sequence the rest is as well.
  const std::int64_t rows = kContext * kSequences, d = kD, f = 4;
  const std::int64_t wide = 4 * d + 2 * 4 * d + 8, stream = 3 * d + 4;  // log-sum-exps; statistics
  const std::int64_t outside = (kLayers + 1 + 2) * d + 2;
  for (const int tp : {2, 4}) {
    MeshChoice choice = mesh(tp, 1, 1);
    EXPECT_EQ(rank_cost(w, choice, 0).memory.activations,
              rows * f * (kLayers * (wide / tp + stream) + outside));
    choice.sequence_parallel = true;
    EXPECT_EQ(rank_cost(w, choice, 0).memory.activations,
              rows * f * (kLayers * (wide + stream) + outside) / tp);
  }
}

// Rows of the table's gradient that a step's tokens can touch, which they are, where each row of
// the table is and each of a micro-batch's tokens.
TEST(MeshCost, TheFirstStageKeepsATiedEmbeddingsRowsApart) {
  const auto more = [](const MeshChoice& choice, int rank) {
    return rank_cost(workload("gpt2"), choice, rank).memory.activations -
           rank_cost(workload("gpt2", false), choice, rank).memory.activations;
  };
  const std::int64_t tokens = kContext * kSequences;
  EXPECT_EQ(more(mesh(1, 1, 1), 0), kVocab * kD * 4 + (2 * kVocab + tokens) * 4);
  EXPECT_EQ(more(mesh(1, 2, 4, 4), 0),
            tokens / 4 * kD * 4 + (tokens / 4 + kVocab + tokens / 16) * 4);
  EXPECT_EQ(more(mesh(2, 2, 1), 0), kVocab / 2 * (kD * 4 + 8) + tokens * 4);
  EXPECT_EQ(more(mesh(1, 2, 4, 4), 1), 0);
}

TEST(MeshCost, TensorParallelSumsFourTimesALayer) {
  const MeshWorkload w = workload("gpt2");
  for (const int t : {2, 4}) {
    for (const std::int64_t m : {1, 4}) {
      const std::int64_t rows = kContext * kSequences / m, stream = rows * kD * 4;
      const Volume v = rank_cost(w, mesh(t, 1, 1, m), 0).volumes.tensor;
      // Embedding and the gradient of the head's input; one gather of three doubles a token.
      EXPECT_EQ(v.operations, m * (4 * kLayers + 2 + 1));
      EXPECT_EQ(v.payload_bytes, m * ((4 * kLayers + 2) * stream + t * rows * 24));
      const double ring = static_cast<double>(t - 1) / t;
      EXPECT_DOUBLE_EQ(v.sent_bytes,
                       static_cast<double>(m) * ring *
                           static_cast<double>(2 * (4 * kLayers + 2) * stream + t * rows * 24));
      // A split sequence sends as much and gathers two inputs a layer again; gradients of norms are
      // added once a step, as doubles.
      MeshChoice split = mesh(t, 1, 1, m);
      split.sequence_parallel = true;
      const RankCost cost = rank_cost(w, split, 0);
      const std::int64_t norms = 8 * (kLayers * 4 * kD + 2 * kD);
      EXPECT_DOUBLE_EQ(cost.volumes.tensor.sent_bytes,
                       v.sent_bytes + ring * static_cast<double>(m * 2 * kLayers * stream) +
                           2 * ring * static_cast<double>(norms));
      MeshChoice again = mesh(t, 1, 1, m);
      again.recompute = Recompute::kSelective;
      EXPECT_EQ(rank_cost(w, again, 0).volumes.tensor.operations, v.operations);
      again.recompute = Recompute::kFull;
      EXPECT_EQ(rank_cost(w, again, 0).volumes.tensor.operations - v.operations,
                m * 2 * (kLayers - 1));
    }
  }
}

TEST(MeshCost, PipelineMessagesAreThoseOfTheSchedule) {
  const MeshWorkload w = workload("llama", false);
  for (const auto& [kind, chunks] :
       {std::pair{PipelineKind::kGpipe, 1}, std::pair{PipelineKind::k1F1B, 1},
        std::pair{PipelineKind::kInterleaved, 2}, std::pair{PipelineKind::kZbH1, 1}}) {
    for (const int p : {1, 2, 4}) {
      MeshChoice choice = mesh(1, p, 1, 8);
      choice.schedule = kind;
      choice.virtual_stages = chunks;
      const PipelineSchedule schedule = make_pipeline_schedule(kind, p, 8, chunks);
      for (int rank = 0; rank < p; ++rank) {
        std::int64_t sends = 0;
        for (const PipelineOp& op : schedule.operations[static_cast<std::size_t>(rank)]) {
          sends +=
              op.kind == PipelineOpKind::kSendForward || op.kind == PipelineOpKind::kSendBackward
                  ? 1
                  : 0;
        }
        const Volume v = rank_cost(w, choice, rank).volumes.pipeline;
        EXPECT_EQ(v.operations, sends);
        EXPECT_EQ(v.payload_bytes, sends * kContext * kSequences / 8 * kD * 4);
      }
    }
  }
  const MeshWorkload tied = workload("llama");
  const Volume table = rank_cost(tied, mesh(2, 2, 1), 0).volumes.embeddings;
  EXPECT_EQ(table.operations, 2);  // rows of the table that a step's tokens can touch, and which
  EXPECT_EQ(table.payload_bytes, std::min(kVocab / 2, kContext * kSequences) * (kD + 1) * 4);
  EXPECT_EQ(rank_cost(tied, mesh(2, 2, 1), 1).volumes.embeddings.operations, 0);
  EXPECT_EQ(rank_cost(tied, mesh(1, 4, 1, 4), 1).volumes.embeddings.operations, 0);
  EXPECT_EQ(rank_cost(w, mesh(2, 2, 1), 0).volumes.embeddings.operations, 0);
}

// With m micro-batches ZeRO 2 reduces m times, in a bucket for each layer and two for what lies
// outside. ZeRO 3 gathers all of these once, and after it all layers but two for each further pass:
// those two are in their buffers still, as are the tied table and the final norm.
TEST(MeshCost, DataParallelRanksSendTwiceTheParametersAndUpToThreeTimesWithZeroThree) {
  const MeshWorkload w = workload("gpt2");
  const LayerValues layer = layer_values("gpt2", 8);
  const int n = 4;
  for (int zero = 0; zero <= 3; ++zero) {
    for (const std::int64_t m : {1, 4}) {
      MeshChoice choice = mesh(1, 1, n, m);
      choice.zero = zero;
      const RankCost cost = rank_cost(w, choice, 0);
      const std::int64_t p = cost.elements, layers = kLayers - 2;
      const std::int64_t again = (2 * m - 1) * layers;
      const std::int64_t values[] = {2 * p, 2 * p, (m + 1) * p,
                                     (m + 1) * p + again * (layer.whole + layer.shared)};
      const std::int64_t buckets = kLayers + 2;
      const std::int64_t operations[] = {2, 2, m * buckets + 1, (m + 1) * buckets + again};
      EXPECT_EQ(cost.volumes.data.payload_bytes, 4 * values[zero]) << zero;
      EXPECT_DOUBLE_EQ(cost.volumes.data.sent_bytes,
                       static_cast<double>(4 * values[zero]) * (n - 1) / n)
          << zero;
      EXPECT_EQ(cost.volumes.data.operations, operations[zero]) << zero;
      EXPECT_LE(cost.volumes.data.payload_bytes, 4 *
                                                     (zero < 2    ? 2
                                                      : zero == 2 ? m + 1
                                                                  : 3 * m) *
                                                     p);
    }
  }
}

TEST(MeshCost, NamesTheNearestMeshThatWorks) {
  const MeshWorkload w = workload("llama", true, 4);
  const auto first = [&](const MeshChoice& choice) {
    const std::vector<std::string> problems = mesh_problems(w, choice);
    return problems.empty() ? std::string() : problems.front();
  };
  EXPECT_EQ(first(mesh(4, 2, 2, 2)), "");
  EXPECT_EQ(first(mesh(3, 1, 1)),
            "parallel.tp = 3: must divide model.n_heads = 8; the nearest that works is 2");
  EXPECT_EQ(first(mesh(8, 1, 1)), "");  // key heads are on two ranks each
  EXPECT_EQ(first(mesh(16, 1, 1)),
            "parallel.tp = 16: must divide model.n_heads = 8; the nearest that works is 8");
  EXPECT_EQ(first(mesh(1, 9, 1)),
            "parallel.pp = 9: the model has 8 layers; the nearest that works is 8");
  EXPECT_EQ(first(mesh(1, 1, 3)),
            "parallel.dp = 3: must divide the 16 samples of a step; the nearest that works is 2");
  EXPECT_EQ(first(mesh(1, 1, 2, 3)),
            "parallel.micro_batches = 3: must divide the 8 samples of one rank; the nearest that "
            "works is 2");
  MeshChoice chunks = mesh(1, 4, 1, 8);
  chunks.schedule = PipelineKind::kInterleaved;
  chunks.virtual_stages = 3;
  EXPECT_EQ(first(chunks),
            "parallel.pp = 4 with 3 virtual stages each: the model has 8 layers for 12 stages; the "
            "most virtual stages that work are 2");
  chunks.virtual_stages = 2;
  chunks.micro_batches = 2;
  EXPECT_EQ(first(chunks),
            "parallel.micro_batches = 2: interleaved-1f1b needs a multiple of parallel.pp = 4; the "
            "nearest that works is 4, or 1f1b");
  MeshChoice slices = mesh(1, 2, 2);
  slices.zero = 3;
  EXPECT_EQ(first(slices), "");
  slices.schedule = PipelineKind::kGpipe;
  EXPECT_EQ(first(slices), "parallel.zero = 3 with schedule = \"gpipe\": the most that works is 1");
  MeshChoice zero = mesh(1, 1, 2);
  zero.zero = 4;
  EXPECT_EQ(first(zero), "parallel.zero = 4: must be 0, 1, 2 or 3");
}

}  // namespace
}  // namespace isthmus::plan::this_file
