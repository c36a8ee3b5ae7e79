// SPDX-License-Identifier: Apache-2.0
// Meshes of devices whose gradients are summed over NCCL: over a stand-in for it that knows the
// emulated devices' memory.
#include <fmt/format.h>

#include "cuda/emulated/faults.h"
#include "cuda/emulated/runtime.h"
#include "cuda/mesh_case.h"
#include "kernels/cuda/device_errors.h"
#include "transport/collectives/nccl_backend.h"
#include "transport/fake_cuda.h"
#include "transport/fake_nccl.h"

namespace isthmus::this_file {
namespace {
using std::chrono_literals::operator""ms;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 2;  // whose sums have one order

class NcclMesh : public CudaModelsTest {
 protected:
  void SetUp() override {
    testing_support::lend_fake_memory(cuda::emulated::device_of);
    testing_support::lend_fake_events(cuda::emulated::wait_for);
  }
  void TearDown() override {
    cuda::emulated::end_faults();
    cuda::emulated::set_streams_late();
    testing_support::expect_fake_nccl_clean();
  }
  [[nodiscard]] static CudaMeshOptions over_nccl(std::chrono::milliseconds deadline) {
    CudaMeshOptions mesh = on_devices(kRanks);
    mesh.loop.bucket_values = 1;
    mesh.sums = [deadline](std::unique_ptr<Communicator> ranks, int device) {
      return make_nccl_communicator_over(testing_support::fake_nccl(), std::move(ranks), device,
                                         deadline);
    };
    return mesh;
  }
  [[nodiscard]] std::string error_of_a_step(InnerLoop& mesh, int t) {
    try {
      static_cast<void>(mesh.train_step(StepIndex(t)));
    } catch (const RunError& error) {
      return error.what();
    }
    return "no error";
  }

  RandomBatches batches_{kVocab, kMeshSequences, kLength};
  RandomBatches other_batches_{kVocab, kMeshSequences, kLength};
};

TEST_P(NcclMesh, HasTheBitsOfSumsOverTheHostAndCopiesNothingThere) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    CudaMesh nccl(with_ranks(options_, kRanks), batches_.provider(), over_nccl(60'000ms));
    CudaMesh host(with_ranks(options_, kRanks), other_batches_.provider(), on_devices(kRanks));
    static_cast<void>(testing_support::take_fake_copies());
    EXPECT_EQ(train(nccl, 1, 4), train(host, 1, 4));
    EXPECT_EQ(testing_support::take_fake_copies(), 0);
    EXPECT_THAT(values_of_ranks(nccl, kRanks), testing::Each(values_now(host)));
  }
}

// A rank's streams are late at first: a sum that did not wait for its bucket would add zeros.
TEST_P(NcclMesh, HasTheSameBitsWhereDevicesAreEarly) {
  CudaMesh late(with_ranks(options_, kRanks), batches_.provider(), over_nccl(60'000ms));
  const Trajectory expected = train(late, 1, 4);
  cuda::emulated::set_streams_early();
  CudaMesh early(with_ranks(options_, kRanks), other_batches_.provider(), over_nccl(60'000ms));
  EXPECT_EQ(train(early, 1, 4), expected);
}

TEST_P(NcclMesh, QueuesAllBucketsOfAStepBeforeItWaits) {
  CudaMesh mesh(with_ranks(options_, kRanks), batches_.provider(), over_nccl(60'000ms));
  for (int t = 1; t <= 3; ++t) {
    static_cast<void>(testing_support::take_fake_queue_length());
    static_cast<void>(mesh.train_step(StepIndex(t)));
    // Behind the layers, each layer, before them: a wait and a sum each, and the end.
    const auto buckets = static_cast<std::size_t>(options_.model.layers + 2);
    EXPECT_EQ(testing_support::take_fake_queue_length(), 2 * buckets + 1) << t;
  }
}

TEST_P(NcclMesh, ALostDeviceIsTheErrorOfAllRanks) {
  for (const bool nccl_sees_it : {false, true}) {
    auto mesh = std::make_unique<CudaMesh>(with_ranks(options_, kRanks), batches_.provider(),
                                           over_nccl(60'000ms));
    static_cast<void>(mesh->train_step(StepIndex(1)));
    cuda::emulated::lose_device(1, 20);
    if (nccl_sees_it) testing_support::break_fake_device(1);
    EXPECT_THAT([&] { static_cast<void>(mesh->train_step(StepIndex(2))); },
                testing::ThrowsMessage<cuda::DeviceLost>(HasSubstr("cuda:1 is lost")));
    mesh.reset();
    cuda::emulated::end_faults();
    cuda::use_device(0);
  }
}

TEST_P(NcclMesh, SharesOfLayersHaveTheBitsOfSumsOverTheHostToo) {
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    LanguageModelOptions shares = with_ranks(options_, 1);
    shares.mesh.tp = kRanks;
    const auto nccl = make_cuda_mesh(shares, batches_.provider(), over_nccl(60'000ms));
    const auto host = make_cuda_mesh(shares, other_batches_.provider(), on_devices(kRanks));
    static_cast<void>(testing_support::take_fake_copies());
    EXPECT_EQ(train(*nccl, 1, 4), train(*host, 1, 4));
    EXPECT_EQ(testing_support::take_fake_copies(), 0);
  }
}

TEST_P(NcclMesh, ADeviceThatStandsStillEndsAMeshOfSharesAtTheDeadline) {
  LanguageModelOptions shares = with_ranks(options_, 1);
  shares.mesh.tp = kRanks;
  const auto mesh = make_cuda_mesh(shares, batches_.provider(), over_nccl(500ms));
  static_cast<void>(mesh->train_step(StepIndex(1)));
  testing_support::stall_fake_device(1, true);
  EXPECT_THAT(error_of_a_step(*mesh, 2),
              AllOf(HasSubstr("rank "), HasSubstr("all_reduce (sum) of "),
                    HasSubstr("waited 500 ms for device ")));
  testing_support::stall_fake_device(1, false);
}

TEST_P(NcclMesh, AnErrorOfNcclEndsTheMeshNamingRankAndOperation) {
  CudaMesh mesh(with_ranks(options_, kRanks), batches_.provider(), over_nccl(60'000ms));
  static_cast<void>(mesh.train_step(StepIndex(1)));
  testing_support::break_fake_device(1);
  EXPECT_THAT(error_of_a_step(mesh, 2),
              AllOf(HasSubstr("rank 1, all_reduce (sum) of "), HasSubstr("the cable is out")));
  EXPECT_THAT(error_of_a_step(mesh, 3), HasSubstr("the cable is out"));
}

TEST_P(NcclMesh, ADeviceThatStandsStillEndsTheMeshAtTheDeadline) {
  CudaMesh mesh(with_ranks(options_, kRanks), batches_.provider(), over_nccl(500ms));
  static_cast<void>(mesh.train_step(StepIndex(1)));
  testing_support::stall_fake_device(1, true);
  EXPECT_THAT(error_of_a_step(mesh, 2), AllOf(HasSubstr("rank "), HasSubstr("all_reduce (sum) of "),
                                              HasSubstr("waited 500 ms for device ")));
  testing_support::stall_fake_device(1, false);
}

TEST_P(NcclMesh, ADeviceThatCannotBeJoinedIsAnErrorOfTheStart) {
  CudaMeshOptions options = over_nccl(60'000ms);
  options.sums = [sums = options.sums](std::unique_ptr<Communicator> ranks, int device) {
    return sums(std::move(ranks), device == 1 ? 99 : device);
  };
  EXPECT_THAT(
      [&] { const CudaMesh mesh(with_ranks(options_, kRanks), batches_.provider(), options); },
      testing::ThrowsMessage<RunError>(HasSubstr("there is no device 99")));
}

INSTANTIATE_TEST_SUITE_P(Models, NcclMesh, testing::Values("gpt2"));

}  // namespace
}  // namespace isthmus::this_file
