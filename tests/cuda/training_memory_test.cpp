// SPDX-License-Identifier: Apache-2.0
// Memory of training on the (emulated) device: as much as was said, and words where it ends.
#include "cuda/emulated/runtime.h"
#include "cuda/mesh_case.h"

namespace isthmus::this_file {
namespace {
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kAll = std::size_t{4} << 30;

class CudaLoopMemory : public CudaLoopTest {
 protected:
  void TearDown() override {
    cuda::emulated::set_device_memory(kAll);
    cuda::emulated::set_largest_pinned(kAll);
  }
  [[nodiscard]] static std::size_t held() {
    const cuda::DeviceMemory memory = cuda::device_memory();
    return memory.total_bytes - memory.free_bytes;
  }
  [[nodiscard]] static std::int64_t estimate(const LanguageModelOptions& options, int rank = 0) {
    return cuda_loop_memory(ModelLayout(model_shape(options.model, options.context)), options, {},
                            rank)
        .total();
  }
  /// Of both devices.
  [[nodiscard]] static std::vector<std::size_t> held_on_each() {
    std::vector<std::size_t> bytes(2);
    for (const int ordinal : {1, 0}) {
      cuda::use_device(ordinal);
      bytes[static_cast<std::size_t>(ordinal)] = held();
    }
    return bytes;
  }
};

TEST_F(CudaLoopMemory, IsWhatTheEstimateSays) {
  for (const char* const model : {"gpt2", "llama", "llama+"}) {
    for (const bool bf16 : {false, true}) {
      for (const char* const optimizer : {"adamw", "sgd", "muon"}) {
        LanguageModelOptions options = tiny_options(model);
        options.bf16 = bf16;
        options.inner.optimizer = optimizer;
        for (int kind = 0; kind < 3; ++kind) {
          options.recompute = kind == 1 ? Recompute::kFull : Recompute::kNone;
          options.forward_only = kind == 2;
          options.micro_batches = kind == 1 ? 2 : 1;
          const std::size_t before = held();
          CudaLoop loop(options, batches_.provider());
          EXPECT_EQ(static_cast<std::int64_t>(held() - before), estimate(options))
              << model << (bf16 ? " bf16 " : " fp32 ") << optimizer << " " << kind;
        }
      }
    }
  }
}

TEST_F(CudaLoopMemory, OfAMeshIsOnEachDeviceWhatTheEstimateSays) {
  const LanguageModelOptions options = with_ranks(tiny_options("llama+"), 2);
  const std::vector<std::size_t> before = held_on_each();
  RandomBatches batches(kVocab, kMeshSequences, kLength);
  CudaMesh mesh(options, batches.provider(), on_devices(2));
  static_cast<void>(train(mesh, 1, 3));
  const std::vector<std::size_t> after = held_on_each();
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(static_cast<std::int64_t>(after[i] - before[i]), estimate(options)) << i;
  }
}

/// Two ranks that share the layers, tensor-parallel ones or stages.
[[nodiscard]] LanguageModelOptions with_shares(const std::string& model, const MeshShape& mesh) {
  LanguageModelOptions options = with_ranks(tiny_options(model), 1);
  options.mesh = mesh;
  options.micro_batches = 4;
  return options;
}
constexpr MeshShape kTensors{.tp = 2}, kStages{.pp = 2};

TEST_F(CudaLoopMemory, OfSharesOfTheLayersIsOnEachDeviceWhatTheEstimateSays) {
  RandomBatches batches(kVocab, kMeshSequences, kLength);
  for (const char* const model : {"gpt2", "llama+"}) {
    for (const MeshShape& mesh : {kTensors, kStages}) {
      for (const bool bf16 : {false, true}) {
        LanguageModelOptions options = with_shares(model, mesh);
        options.bf16 = bf16;
        options.schedule = bf16 ? PipelineKind::kGpipe : PipelineKind::k1F1B;
        const std::vector<std::size_t> before = held_on_each();
        const auto loop = make_cuda_mesh(options, batches.provider(), on_devices(2));
        static_cast<void>(train(*loop, 1, 2));
        const std::vector<std::size_t> after = held_on_each();
        for (std::size_t i = 0; i < after.size(); ++i) {
          EXPECT_EQ(static_cast<std::int64_t>(after[i] - before[i]),
                    estimate(options, static_cast<int>(i)))
              << model << " " << mesh.tp << " x " << mesh.pp << ", rank " << i;
        }
      }
    }
  }
}

// However far the making of a rank has come.
TEST_F(CudaLoopMemory, OfSharesThatEndsSaysOnWhichDeviceAndWhatLowersIt) {
  RandomBatches batches(kVocab, kMeshSequences, kLength);
  const LanguageModelOptions options = with_shares("gpt2", kStages);
  const auto most = static_cast<std::size_t>(std::max(estimate(options, 0), estimate(options, 1)));
  for (std::size_t part = 1; part <= 8; ++part) {
    cuda::emulated::set_device_memory(held() + most * part / 8 - 1);
    try {
      static_cast<void>(make_cuda_mesh(options, batches.provider(), on_devices(2)));
      ADD_FAILURE() << part << ": a mesh had room where there was none";
    } catch (const SystemError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("a worker needs"), HasSubstr("(cuda:"),
                                      HasSubstr("make parallel.tp or pp larger")));
    }
  }
}

TEST_F(CudaLoopMemory, DoesNotGrowInStepsAndEvaluations) {
  CudaLoop loop(tiny_options("gpt2"), batches_.provider());
  const std::size_t before = held();
  static_cast<void>(train(loop, 1, 3));
  static_cast<void>(loop.loss(cpu_batches_.at(StepIndex(1)), CopiedParameters(loop.parameters())));
  static_cast<void>(loop.gradients(StepIndex(4), {}));
  EXPECT_EQ(held(), before);
}

TEST_F(CudaLoopMemory, RecomputationAndMicroBatchesLowerIt) {
  const LanguageModelOptions options = tiny_options("llama+");
  const auto less = [&](const auto& change) {
    LanguageModelOptions changed = options;
    change(changed);
    EXPECT_LT(estimate(changed), estimate(options));
  };
  less([](LanguageModelOptions& o) { o.recompute = Recompute::kFull; });
  less([](LanguageModelOptions& o) { o.micro_batches = 2; });
  less([](LanguageModelOptions& o) { o.forward_only = true; });
}

TEST_F(CudaLoopMemory, ThatEndsSaysWhatWasNeededAndWhatLowersIt) {
  LanguageModelOptions options = tiny_options("gpt2");
  cuda::emulated::set_device_memory(held() + 200'000);
  try {
    const CudaLoop loop(options, batches_.provider());
    FAIL() << "a model had room where there was none";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("a worker needs"), HasSubstr("activations"), HasSubstr("logits"),
                      HasSubstr("are free: set train.recompute = true, make "
                                "parallel.micro_batches larger (1 of at most 2), set "
                                "train.precision = \"bf16\""),
                      HasSubstr("--device cpu")));
  }
  options.recompute = Recompute::kFull;
  options.bf16 = true;
  options.micro_batches = options.sequences;
  cuda::emulated::set_device_memory(held() + 100'000);
  try {
    const CudaLoop loop(options, batches_.provider());
    FAIL() << "a model had room where there was none";
  } catch (const SystemError& error) {
    EXPECT_THAT(error.what(), AllOf(Not(HasSubstr("train.recompute")), Not(HasSubstr("precision")),
                                    Not(HasSubstr("micro_batches")), HasSubstr("smaller")));
  }
}

TEST_F(CudaLoopMemory, OfAdamsMomentsThatCannotBePinnedSaysWhoNeedsItAndWhatHelps) {
  CudaLoop loop(tiny_options("gpt2"), batches_.provider());
  const auto refused = [&](const auto& ask) {
    try {
      ask();
      FAIL() << "moments were pinned";
    } catch (const SystemError& error) {
      const std::string bytes = std::to_string(8 * all_elements(loop).size()) + " bytes";
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("outer.method"), HasSubstr("Adam's moments on the host"),
                        HasSubstr(bytes), HasSubstr("train.device = \"cpu\"")));
    }
  };
  const auto ask = [&] { static_cast<void>(loop.adam_moments(0)); };
  cuda::emulated::set_largest_pinned(1000);
  refused(ask);
  refused([&] { loop.read_moments(all_elements(loop)); });
  cuda::emulated::set_largest_pinned(kAll);
  ask();
}

TEST_F(CudaLoopMemory, ASelectiveRecomputationIsRefusedByName) {
  LanguageModelOptions options = tiny_options("llama");
  options.recompute = Recompute::kSelective;
  try {
    const CudaLoop loop(options, batches_.provider());
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("train.recompute = \"selective\""),
                                    HasSubstr("\"full\" or \"none\""), HasSubstr("--device cpu")));
  }
}

}  // namespace
}  // namespace isthmus::this_file
