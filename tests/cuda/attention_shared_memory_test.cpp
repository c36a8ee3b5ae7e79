// SPDX-License-Identifier: Apache-2.0
// Attention on (emulated) devices whose blocks have 99 KiB of shared memory: compute
// capability 8.6, 8.9 and 12.0.
#include "cuda/emulated/runtime.h"
#include "cuda/training_case.h"
#include "kernels/cuda/attention.h"

namespace isthmus::cuda::this_file {
namespace {
using kernels::Bf16;
using testing::HasSubstr;

constexpr std::size_t kSmall = 99 << 10;

class SmallSharedMemory : public testing::Test {
 protected:
  SmallSharedMemory() { emulated::set_shared_bytes(kSmall); }
  ~SmallSharedMemory() override { emulated::set_shared_bytes(kMostSharedBytes); }

  /// Gradients of a step of a Llama with such heads.
  [[nodiscard]] static std::vector<float> gradients_of(std::int64_t head_dim, bool bf16) {
    LanguageModelOptions options = tiny_options("llama");
    options.model.head_dim = head_dim;
    options.context = options.model.context = 80;  // more than a tile of queries
    options.bf16 = bf16;
    RandomBatches batches(kVocab, kSequences, options.context);
    CudaLoop loop(options, batches.provider());
    static_cast<void>(loop.gradients(StepIndex(1), {}));
    return all_gradients(loop);
  }
};

TEST_F(SmallSharedMemory, TakesHeadsTo128InBothPrecisions) {
  for (const std::int64_t head_dim : {32, 96, 128}) {
    for (const bool bf16 : {false, true}) {
      const std::vector<float> small = gradients_of(head_dim, bf16);
      emulated::set_shared_bytes(kMostSharedBytes);
      const std::vector<float> large = gradients_of(head_dim, bf16);
      emulated::set_shared_bytes(kSmall);
      // Tiles are cut otherwise, and with them sums.
      EXPECT_LE(relative_error(small, large), bf16 ? 1e-3 : 0) << head_dim << " " << bf16;
    }
  }
}

TEST_F(SmallSharedMemory, RefusesLargerHeadsByNameBeforeTheFirstStep) {
  for (const bool bf16 : {false, true}) {
    try {
      static_cast<void>(gradients_of(160, bf16));
      ADD_FAILURE() << "taken";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("model.head_dim = 160"));
      EXPECT_THAT(error.what(), HasSubstr("141312 bytes of shared memory, this device has 101376"));
    }
  }
}

TEST_F(SmallSharedMemory, IsWhatALaunchIsHeldTo) {
  emulated::set_shared_bytes(48 << 10);
  const AttentionShape shape{1, 64, 1, 1, 128, 0.1};
  EXPECT_THAT(attention_refusal<Bf16>(shape, 48 << 10), HasSubstr("head dimension 128"));
  EXPECT_THAT(attention_refusal<float>(shape, 48 << 10), HasSubstr("head dimension 128"));
  Stream stream;
  const DeviceArray<float> x(64 * 128), lse(64);
  const auto view = kernels::heads_in_rows<float>(x.data(), 64, 128, 128);
  const auto read = kernels::heads_in_rows<const float>(x.data(), 64, 128, 128);
  EXPECT_THROW(attention_forward<float>(stream, shape, read, read, read, view, lse.data()),
               SystemError);
}

}  // namespace
}  // namespace isthmus::cuda::this_file
