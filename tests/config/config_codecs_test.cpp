// SPDX-License-Identifier: Apache-2.0
// parallel.codecs: codecs for the dimensions that a mesh has, where the file gives none of its own.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

Config with(const std::vector<std::string>& mesh, const std::vector<std::string>& keys) {
  std::vector<std::string> overrides = mesh;
  overrides.insert(overrides.end(), keys.begin(), keys.end());
  return load_minimal(overrides);
}

const std::vector<std::string> kCube = {"parallel.tp=2", "parallel.pp=2", "parallel.dp=2"};
const std::vector<std::string> kShared = {"parallel.dp=2", "parallel.zero=1"};

std::vector<std::string> codecs_of(const Config& config) {
  const CodecByDimension& codecs = config.rank_codecs;
  return {codecs.data, codecs.state, codecs.pipeline, codecs.tensor};
}

TEST(ConfigCodecs, EachPresetFillsTheDimensionsOfTheMesh) {
  using Four = std::vector<std::string>;
  EXPECT_EQ(codecs_of(with(kCube, {})), (Four{"fp32", "fp32", "fp32", "fp32"}));
  EXPECT_EQ(codecs_of(with(kCube, {"parallel.codecs=none"})),
            (Four{"fp32", "fp32", "fp32", "fp32"}));
  EXPECT_EQ(codecs_of(with(kCube, {"parallel.codecs=default"})),
            (Four{"int8", "fp32", "bf16", "bf16"}));
  EXPECT_EQ(codecs_of(with(kCube, {"parallel.codecs=strong"})),
            (Four{"int4", "fp32", "int4", "int4"}));
  EXPECT_EQ(codecs_of(with(kShared, {"parallel.codecs=default"})),
            (Four{"int8", "int8", "fp32", "fp32"}));
  EXPECT_EQ(codecs_of(with({"parallel.tp=2"}, {"parallel.codecs=strong"})),
            (Four{"fp32", "fp32", "fp32", "int4"}));
}

// A layer's sums travel as bfloat16 there, and a codec of their own is refused.
TEST(ConfigCodecs, UnderBf16TensorParallelSumsKeepTheirForm) {
  const Config config = with(kCube, {"parallel.codecs=default", "train.precision=bf16"});
  EXPECT_EQ(config.rank_codecs.tensor, "fp32");
  EXPECT_EQ(config.rank_codecs.pipeline, "bf16");
}

TEST(ConfigCodecs, AKeyOfItsOwnGoesBefore) {
  const Config config = with(kCube, {"parallel.codecs=default", "parallel.codec_data=\"int8:64\""});
  EXPECT_EQ(codecs_of(config), (std::vector<std::string>{"int8:64", "fp32", "bf16", "bf16"}));
}

TEST(ConfigCodecs, TheResolvedTextTellsWhereTheyComeFrom) {
  const std::string text = resolved_toml(with(kCube, {"parallel.codecs=default"}));
  EXPECT_THAT(text, ContainsRegex("codec_data = \"int8\" +# parallel.codecs\n"));
  EXPECT_THAT(text, ContainsRegex("codec_tensor = \"bf16\" +# parallel.codecs\n"));
  EXPECT_THAT(text, ContainsRegex("codecs = \"default\" +# --set"));
  EXPECT_THAT(text, Not(HasSubstr("codec_state")));  // no ZeRO
}

TEST(ConfigCodecs, ARunIsThatOfTheKeysItStandsFor) {
  const Config preset = with(kShared, {"parallel.codecs=default"});
  const Config keys = with(kShared, {"parallel.codec_data=int8", "parallel.codec_state=int8"});
  EXPECT_EQ(config_digest(preset), config_digest(keys));
  EXPECT_EQ(outcome_digest(preset), outcome_digest(keys));
  EXPECT_EQ(common_values(preset), common_values(keys));
  EXPECT_NE(config_digest(preset), config_digest(with(kShared, {})));
}

TEST(ConfigCodecs, WithoutAMeshOrUnderAnotherNameItIsRefused) {
  const auto alone = diagnostics_of(kMinimal, {"parallel.codecs=default"});
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].code, "E-KEY-UNUSED");
  EXPECT_THAT(alone[0].hint, HasSubstr("tp, pp or dp > 1"));
  const auto unknown = diagnostics_of(kMinimal, {"parallel.dp=2", "parallel.codecs=storng"});
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_THAT(unknown[0].hint, HasSubstr("did you mean 'strong'?"));
}

}  // namespace
}  // namespace isthmus::this_file
