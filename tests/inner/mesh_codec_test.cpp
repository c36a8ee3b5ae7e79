// SPDX-License-Identifier: Apache-2.0
// Codecs between the ranks of a mesh, a dimension at a time.
#include <gtest/gtest.h>

#include "inner/mesh_test.h"
#include "isthmus/codec.h"

namespace isthmus {
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
  const CopiedParameters source(alone.parameters());
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

}  // namespace
}  // namespace isthmus
