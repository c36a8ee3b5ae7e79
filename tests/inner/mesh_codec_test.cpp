// SPDX-License-Identifier: Apache-2.0
// Codecs between the ranks of a mesh, a dimension at a time.
#include <gtest/gtest.h>

#include "inner/mesh_test.h"
#include "isthmus/codec.h"

namespace isthmus::this_file {
namespace {

TEST(CodedMesh, EachDimensionsCodecChangesThatDimensionAlone) {
  const LanguageModelOptions one = model_of("llama");
  const auto gradients = [&](const Case& c, const CodecByDimension& codecs) {
    LanguageModelOptions options = on_mesh(one, c);
    options.rank_codecs = codecs;
    return first_step(options);
  };
  const Case split{"", {.tp = 2, .sequence_parallel = true}};
  const Case tp{"", {.tp = 2}}, dp{"", {.dp = 2}}, pp{"", {.pp = 2}, 4};
  const CodecByDimension data{.data = "int8"}, tensor{.tensor = "int8"},
      pipeline{.pipeline = "int8"};
  for (const Case* c : {&tp, &split, &dp, &pp}) {
    const Step plain = gradients(*c, {});
    const double top = largest(plain.gradients);
    for (const CodecByDimension* codecs : {&data, &tensor, &pipeline}) {
      const bool own = ((c == &tp || c == &split) && codecs == &tensor) ||
                       (c == &dp && codecs == &data) || (c == &pp && codecs == &pipeline);
      const Step coded = gradients(*c, *codecs);
      const double off = largest_difference(coded.gradients, plain.gradients);
      if (own) {
        EXPECT_GT(off, 1e-5 * top);
        EXPECT_LT(off, 0.1 * top);  // half a step of 127, through a few layers
      } else {
        EXPECT_EQ(off, 0);
      }
    }
  }
}

// Where tokens are fewer than ranks some hold none, and codes of nothing travel.
TEST(CodedMesh, SplitsFewerTokensThanRanks) {
  const LanguageModelOptions one = model_of("llama");
  LanguageModelOptions options = on_mesh(one, {"", {.tp = 4, .sequence_parallel = true}});
  options.rank_codecs.tensor = "int8";
  RandomBatches batches(kVocab, one.sequences, one.context);
  LanguageModelLoop alone(one, batches.provider()), mesh(options, batches.provider());
  const CopiedParameters source(alone);
  RandomBatches few(kVocab, 1, 2);
  const TokenBatch batch = few.at(StepIndex(1));
  EXPECT_NEAR(mesh.loss(batch, source), alone.loss(batch, source), 0.1);
}

// The data-parallel sum is that of what each rank's slice decodes to, in rank order: from the
// definition, with the codec itself.
TEST(CodedMesh, SumsDecodedGradientsInRankOrder) {
  LanguageModelOptions half = model_of("llama");
  half.sequences /= 2;
  LanguageModelOptions mesh = on_mesh(model_of("llama"), {"", {.dp = 2}});
  mesh.rank_codecs.data = "int8";
  RandomBatches whole(kVocab, mesh.sequences, mesh.context);
  const auto codec = make_codec("int8");
  std::vector<float> expected;
  const ModelLayout layout(model_shape(half.model, half.context));
  const auto n = static_cast<std::size_t>(layout.elements());
  for (int rank = 0; rank < 2; ++rank) {
    LanguageModelLoop loop(half, [&](StepIndex t) {
      const TokenBatch batch = whole.at(t);
      const std::size_t size = batch.inputs.size() / 2;
      const std::size_t from = static_cast<std::size_t>(rank) * size;
      return TokenBatch{batch.inputs.subspan(from, size), batch.targets.subspan(from, size),
                        half.sequences, half.context};
    });
    (void)loop.gradients(StepIndex(1), {});
    std::vector<float> own;
    for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
      for (const float g : loop.gradient(i)) own.push_back(g / 2);  // exact: the mean is over both
    }
    std::vector<float> decoded(n);
    for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, n / 2}, {n / 2, n}}) {
      const Encoded code = encode(*codec, std::span(own).subspan(begin, end - begin));
      ASSERT_TRUE(decode(*codec, code.bytes, std::span(decoded).subspan(begin, end - begin)));
    }
    if (rank == 0) expected = decoded;
    if (rank == 1) {
      for (std::size_t i = 0; i < n; ++i) expected[i] += decoded[i];
    }
  }
  EXPECT_EQ(first_step(mesh).gradients, expected);
}

/// Weights after some steps, and losses of these.
struct TrainedRun {
  std::vector<double> losses;
  std::vector<float> values;
};

TrainedRun trained(const LanguageModelOptions& options, int steps) {
  RandomBatches batches(kVocab, options.sequences, options.context);
  LanguageModelLoop loop(options, batches.provider());
  TrainedRun run;
  for (int t = 1; t <= steps; ++t) run.losses.push_back(loop.train_step(StepIndex(t)).loss);
  run.values = all_values(loop);
  return run;
}

// From the definition, with the codec itself: each rank's slice moves by what its change decodes
// to.
TEST(CodedChanges, AreThoseOfTheUncodedUpdateDecoded) {
  for (const int zero : {1, 2}) {
    LanguageModelOptions options = on_mesh(model_of("llama"), {"", {.dp = 3}});
    options.sequences = 9;
    options.zero = zero;
    RandomBatches batches(kVocab, options.sequences, options.context);
    LanguageModelLoop untrained(options, batches.provider());
    std::vector<float> expected = all_values(untrained);
    const std::vector<float> updated = trained(options, 1).values;
    options.rank_codecs.state = "int8";
    const auto codec = make_codec("int8");
    const std::size_t n = updated.size();
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const std::size_t begin = n * rank / 3, end = n * (rank + 1) / 3;
      std::vector<float> change;
      for (std::size_t i = begin; i < end; ++i) change.push_back(updated[i] - expected[i]);
      std::vector<float> decoded(change.size());
      ASSERT_TRUE(decode(*codec, encode(*codec, change).bytes, decoded));
      for (std::size_t i = begin; i < end; ++i) expected[i] += decoded[i - begin];
    }
    EXPECT_NE(expected, updated);
    EXPECT_EQ(trained(options, 1).values, expected) << zero;
    with_processes(options, [&](const LanguageModelOptions& processes) {
      EXPECT_EQ(trained(processes, 1).values, expected) << zero;
    });
  }
}

// Ranks that are processes have the weights by adding changes, threads read them where they lie.
TEST(CodedChanges, HaveTheSameBitsOnAllRanksAndFollowTheUncodedRun) {
  struct Mesh {
    Case shape;
    int zero;
  };
  for (const Mesh& mesh :
       {Mesh{{"dp4", {.dp = 4}}, 1}, Mesh{{"dp2", {.dp = 2}}, 2},
        Mesh{{"tp2 dp2", {.tp = 2, .dp = 2}}, 2}, Mesh{{"pp2 dp2", {.pp = 2, .dp = 2}, 2}, 1},
        Mesh{{"all", {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}, 2}, 1}}) {
    for (const char* name : {"llama-tied", "gpt2"}) {
      LanguageModelOptions options = on_mesh(model_of(name), mesh.shape);
      options.zero = mesh.zero;
      constexpr int kSteps = 8;
      const TrainedRun plain = trained(options, kSteps);
      options.rank_codecs.state = "int8";
      const TrainedRun threads = trained(options, kSteps);
      EXPECT_NE(threads.values, plain.values);
      EXPECT_NEAR(threads.losses.back(), plain.losses.back(), 1e-3 * plain.losses.back())
          << name << mesh.shape.name;
      with_processes(options, [&](const LanguageModelOptions& processes) {
        const TrainedRun found = trained(processes, kSteps);
        EXPECT_EQ(found.losses, threads.losses) << name << mesh.shape.name;
        EXPECT_EQ(found.values, threads.values) << name << mesh.shape.name;
      });
    }
  }
}

// What others than the ranks have written reaches those that get changes alone: an outer step, and
// an update without a pass before.
TEST(CodedChanges, AreAddedToWhatTheOuterLoopHasWritten) {
  LanguageModelOptions options = on_mesh(model_of("llama"), {"", {.dp = 2}});
  options.zero = 1;
  options.rank_codecs.state = "int8";
  const auto interrupted = [](const LanguageModelOptions& o) {
    RandomBatches batches(kVocab, o.sequences, o.context);
    LanguageModelLoop loop(o, batches.provider());
    (void)loop.train_step(StepIndex(1));
    loop.read_values(all_elements(loop));
    for (const Parameter& p : loop.parameters()) {
      for (float& value : p.values) value *= 0.75f;
    }
    loop.wrote_values(all_elements(loop));
    for (std::size_t i = 0; i < loop.parameters().size(); ++i) {
      for (float& g : loop.gradient(i)) g = 0.01f;
    }
    (void)loop.apply_gradients(StepIndex(2));
    TrainedRun run;
    for (int t = 3; t <= 5; ++t) run.losses.push_back(loop.train_step(StepIndex(t)).loss);
    run.values = all_values(loop);
    return run;
  };
  const TrainedRun threads = interrupted(options);
  with_processes(options, [&](const LanguageModelOptions& processes) {
    const TrainedRun found = interrupted(processes);
    EXPECT_EQ(found.losses, threads.losses);
    EXPECT_EQ(found.values, threads.values);
  });
}

}  // namespace
}  // namespace isthmus::this_file
