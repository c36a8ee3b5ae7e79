// SPDX-License-Identifier: Apache-2.0
// The acceptance of meshes: over 50 steps of a text that can be learned, a mesh follows the loss of
// one rank within 1e-4 of it in fp32.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "config/schema/recompute.h"
#include "core/state/state_memory.h"
#include "core/temporary_directory.h"
#include "inner/mesh_test.h"

namespace isthmus::this_file {
namespace {

constexpr int kSteps = 50;
constexpr double kOfLoss = 1e-4;  // the same sums of floats in another order, step after step

/// After x comes 5 x + 3, but one time in eight any token.
class LearnableBatches {
 public:
  explicit LearnableBatches(const LanguageModelOptions& o)
      : sequences_(o.sequences), length_(o.context) {}

  [[nodiscard]] BatchProvider provider() {
    return [this](StepIndex t) { return at(t); };
  }

 private:
  TokenBatch at(StepIndex t) {
    inputs_.clear();
    targets_.clear();
    const Rng rng{23, Stream::kTestData};
    for (std::int64_t s = 0; s < sequences_; ++s) {
      std::int64_t token = 0;
      for (std::int64_t i = 0; i <= length_; ++i) {
        const auto index = static_cast<std::uint64_t>((t.value() * 1000 + s) * 1000 + i);
        const bool any = i == 0 || rng.below(8, index, 0) == 0;
        token =
            any ? static_cast<std::int64_t>(rng.below(kVocab, index, 1)) : (5 * token + 3) % kVocab;
        if (i < length_) inputs_.push_back(static_cast<std::int32_t>(token));
        if (i > 0) targets_.push_back(static_cast<std::int32_t>(token));
      }
    }
    return {inputs_, targets_, sequences_, length_};
  }

  std::int64_t sequences_, length_;
  std::vector<std::int32_t> inputs_, targets_;
};

std::vector<double> curve(const LanguageModelOptions& options) {
  LearnableBatches batches(options);
  LanguageModelLoop loop(options, batches.provider());
  std::vector<double> losses;
  for (int t = 1; t <= kSteps; ++t) losses.push_back(loop.train_step(StepIndex(t)).loss);
  return losses;
}

LanguageModelOptions small(const std::string& name) {
  LanguageModelOptions o = model_of(name);
  o.model.layers = 8;  // two virtual stages for each of four ranks
  o.inner.lr = 5e-3;
  o.total_steps = kSteps;
  return o;
}

/// Arrays of a MiB, below which they stay in memory, in shares of two ranks too.
LanguageModelOptions large(const std::string& name) {
  LanguageModelOptions o = small(name);
  o.model.layers = 2;
  o.model.d_model = 192;
  o.model.d_ff = 768;
  o.inner.lr = 2e-3;
  o.sequences = 4;
  o.context = 8;
  return o;
}

struct CurveCase {
  Case mesh;
  int zero = 0;
  Recompute recompute = Recompute::kNone;
  bool offload = false;
};

class MeshCurve : public testing::TestWithParam<std::tuple<const char*, CurveCase>> {};

TEST_P(MeshCurve, FollowsOneRankForFiftySteps) {
  const auto& [model, c] = GetParam();
  const LanguageModelOptions one = c.offload ? large(model) : small(model);
  static std::map<std::pair<std::string, bool>, std::vector<double>> curves;  // of one rank
  std::vector<double>& expected = curves[{model, c.offload}];
  if (expected.empty()) expected = curve(one);
  EXPECT_LT(expected.back(), 0.8 * expected.front()) << "nothing is learned";

  LanguageModelOptions mesh = on_mesh(one, c.mesh);
  mesh.zero = c.zero;
  mesh.recompute = c.recompute;
  const TemporaryDirectory directory;
  StateMemory files({.folder = directory / "state"});
  const StateMemoryScope scope(c.offload ? &files : nullptr);
  const std::vector<double> losses = curve(mesh);
  EXPECT_EQ(files.traffic().written_bytes > 0, c.offload);
  for (std::size_t t = 0; t < losses.size(); ++t) {
    EXPECT_NEAR(losses[t], expected[t], kOfLoss * expected[t]) << "step " << t + 1;
  }
}

const MeshShape kCube{.tp = 2, .pp = 2, .dp = 2};
const MeshShape kStagesTwice{.pp = 2, .dp = 2};
const MeshShape kSplitCube{.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true};
const MeshShape kWide{.tp = 4, .dp = 2};
const MeshShape kSplitWide{.tp = 4, .dp = 2, .sequence_parallel = true};
const Case kInterleaved{"1x4x1 interleaved", {.pp = 4}, 4, PipelineKind::kInterleaved, 2};

const CurveCase kCases[] = {
    {{"2x2x2", kCube, 2}},
    {{"2x2x2 zero 1", kCube, 2}, 1},
    {{"2x2x2 zero 2", kCube, 2}, 2},
    {{"2x2x2 zero 3", kCube, 2}, 3},
    {{"1x2x2 zero 2", kStagesTwice, 2}, 2},
    {{"1x2x2 zero 3", kStagesTwice, 2}, 3},
    {{"2x2x2 split zero 3 recomputed", kSplitCube, 2}, 3, Recompute::kFull},
    {{"2x2x2 recomputed", kCube, 2}, 0, Recompute::kFull},
    {{"2x2x2 split", kSplitCube, 2}},
    {{"2x2x2 split zero 1 selective", kSplitCube, 2}, 1, Recompute::kSelective},
    {kInterleaved},
    {kInterleaved, 0, Recompute::kFull},
    {{"4x1x2", kWide}},
    {{"4x1x2 zero 1", kWide}, 1},
    {{"4x1x2 zero 2", kWide, 2}, 2},
    {{"4x1x2 zero 3", kWide, 2}, 3},
    {{"4x1x2 split zero 2", kSplitWide, 2}, 2, Recompute::kSelective},
    {{"4x1x2 split zero 3", kSplitWide}, 3, Recompute::kFull},
};
// As many steps of larger models on disks take long: one of each (mesh_offload_test.cpp has the
// bits of more).
const CurveCase kPipelineInFiles{{"1x2x1 offloaded", {.pp = 2}, 4}, 0, Recompute::kFull, true};
const CurveCase kSharesInFiles{{"1x1x2 offloaded", {.dp = 2}}, 2, Recompute::kNone, true};

std::string case_name(const testing::TestParamInfo<MeshCurve::ParamType>& at) {
  const CurveCase& c = std::get<1>(at.param);
  std::string name = std::string(std::get<0>(at.param)) + c.mesh.name + "zero" +
                     std::to_string(c.zero) + std::string(recompute_name(c.recompute));
  std::erase_if(name, [](char character) { return std::isalnum(character) == 0; });
  return name;
}
const auto kFamilies = testing::Values("gpt2", "llama");
INSTANTIATE_TEST_SUITE_P(Meshes, MeshCurve, testing::Combine(kFamilies, testing::ValuesIn(kCases)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Offloaded, MeshCurve,
                         testing::Values(std::tuple("gpt2", kPipelineInFiles),
                                         std::tuple("llama", kSharesInFiles)),
                         case_name);

}  // namespace
}  // namespace isthmus::this_file
