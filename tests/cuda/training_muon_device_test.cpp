// SPDX-License-Identifier: Apache-2.0
// Training with Muon on the device against the CPU: update by update, and as a curve.
#include <algorithm>

#include "cuda/mesh_case.h"
#include "inner/cuda/cuda_optimizer.h"
#include "inner/model/optimizer.h"
#include "kernels/muon_case.h"
#include "kernels/optimizer.h"
#include "test_weight.h"

namespace isthmus::this_file {
namespace {
constexpr std::int64_t kShort = 5;  // tokens, since many steps are taken
int steps() { return testing_support::by_weight(12, 50); }

class CudaLoopMuon : public CudaModelsTest {
 protected:
  void SetUp() override {
    CudaModelsTest::SetUp();
    options_.model.layers = 1;
    options_.context = kShort;
    options_.inner.optimizer = "muon";
    options_.inner.momentum = 0.95;
    options_.inner.nesterov = true;
    batches_ = cpu_batches_ = RandomBatches(kVocab, kSequences, kShort);
  }
  /// Of losses; norms have ten times that. Flips of roundings to bfloat16 (muon_case.h) grow over
  /// 50 steps: five to ten times less was measured on the emulated device.
  [[nodiscard]] double curve_error() const { return options_.bf16 ? 2e-3 : 3e-4; }
  void expect_near(const Trajectory& found, const Trajectory& expected) const {
    double worst = 0, worst_norm = 0;
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      const double loss = expected.losses[i], norm = expected.norms[i];
      EXPECT_NEAR(found.losses[i], loss, curve_error() * loss) << "step " << i + 1;
      EXPECT_NEAR(found.norms[i], norm, 10 * curve_error() * norm) << "step " << i + 1;
      worst = std::max(worst, std::abs(found.losses[i] / loss - 1));
      worst_norm = std::max(worst_norm, std::abs(found.norms[i] / norm - 1));
    }
    std::printf("%s: losses differ by up to %.1e, norms by %.1e of themselves\n",
                options_.bf16 ? "bf16" : "fp32", worst, worst_norm);
  }
};

TEST_P(CudaLoopMuon, UpdatesAreThoseOfTheCpuOnTheSameGradients) {
  constexpr double kClip = 0.5, kNorm = 2;
  const ModelLayout layout(model_shape(options_.model, options_.context));
  const auto n = static_cast<std::size_t>(layout.elements());
  for (const char* const adjust_lr : {"original", "match_rms_adamw"}) {
    options_.inner.adjust_lr = adjust_lr;
    options_.inner.clip = kClip;
    options_.inner.weight_decay = 0.1;
    cuda::Stream stream;
    cuda::Blas blas;
    CudaOptimizer there(options_.inner, layout, stream);
    InnerOptimizer here(options_.inner, layout);
    kernels::ThreadTeam team(2);
    std::vector<float> expected = cuda::normal_floats(n, 1);
    const auto values = cuda::on_device(stream, expected);
    const auto squares = cuda::on_device(stream, std::vector<double>{kNorm * kNorm});
    const cuda::DeviceArray<kernels::Bf16> working(n);
    double lr = 0, sum_of_rates = 0;
    for (std::uint32_t step = 1; step <= 3; ++step) {
      lr = 0.01 / step;
      sum_of_rates += lr;
      const std::vector<float> g = cuda::normal_floats(n, 10 + step);
      const auto gradients = cuda::on_device(stream, g);
      here.update(team, lr, kernels::clip_coefficient(kClip, kNorm), expected, g);
      there.prepare(stream, lr);
      there.queue(stream, blas, values.data(), gradients.data(), working.data(), squares.data());
      stream.synchronize();
      there.count();
    }
    const std::vector<float> found = cuda::on_host(stream, values);
    const std::vector<kernels::Bf16> rounded = cuda::on_host(stream, working);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(rounded[i].bits, kernels::Bf16(found[i]).bits) << i;
    }
    for (const TensorInfo& tensor : layout.tensors()) {
      const auto of_tensor = [&](const std::vector<float>& all) {
        return std::span(all).subspan(static_cast<std::size_t>(tensor.elements.begin),
                                      static_cast<std::size_t>(tensor.elements.size()));
      };
      const double apart = kernels::distance(of_tensor(found), of_tensor(expected));
      double bound = 0;  // AdamW has the CPU's bits
      if (const auto matrix = muon_matrix(options_.inner, layout, tensor)) {
        bound = kernels::kFlipError * sum_of_rates * matrix->update_scale *
                std::sqrt(static_cast<double>(std::min(matrix->rows, matrix->cols)));
      }
      EXPECT_LE(apart, bound) << tensor.name << ", " << adjust_lr;
    }
    MemoryState of_device, of_cpu;
    there.save(stream, of_device);
    here.save(of_cpu);
    std::vector<float> second(here.moment(1).size()), second_of_cpu = second;
    static_cast<StateReader&>(of_device).tensor("moment2", std::span<float>(second));
    static_cast<StateReader&>(of_cpu).tensor("moment2", std::span<float>(second_of_cpu));
    EXPECT_EQ(second, second_of_cpu);
  }
}

TEST_P(CudaLoopMuon, FollowsTheCpusLosses) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    CudaLoop loop(options_, batches_.provider());
    LanguageModelLoop cpu(options_, cpu_batches_.provider());
    expect_near(train(loop, 1, steps()), train(cpu, 1, steps()));
  }
}

TEST_P(CudaLoopMuon, HasTheSameBitsAsGraphs) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    CudaLoop graphs(options_, batches_.provider());
    CudaLoop plain(options_, cpu_batches_.provider(), {.graphs = false});
    EXPECT_EQ(train(graphs, 1, 5), train(plain, 1, 5));
  }
}

TEST_P(CudaLoopMuon, OnRanksIsTheSameOnAllAndFollowsOneDevice) {
  constexpr int kRanks = 2;
  RandomBatches batches(kVocab, kMeshSequences, kShort), other_batches = batches;
  CudaMesh mesh(with_ranks(options_, kRanks), batches.provider(), on_devices(kRanks));
  LanguageModelOptions one = with_ranks(options_, 1);
  one.micro_batches = kRanks;
  CudaLoop device(one, other_batches.provider());
  expect_near(train(mesh, 1, 6), train(device, 1, 6));
  EXPECT_THAT(values_of_ranks(mesh, kRanks), testing::Each(values_now(mesh)));
  MemoryState state;
  device.save(state);
  mesh.load(state);
  set_values(mesh, values_now(device));
  expect_near(train(mesh, 7, 8), train(device, 7, 8));
  EXPECT_THAT(values_of_ranks(mesh, kRanks), testing::Each(values_now(mesh)));
}

INSTANTIATE_TEST_SUITE_P(Models, CudaLoopMuon, testing::Values("gpt2", "llama+"),
                         [](const auto& param) {
                           return std::string(param.index == 0 ? "gpt2" : "llama_grouped");
                         });

}  // namespace
}  // namespace isthmus::this_file
