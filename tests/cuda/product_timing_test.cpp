// SPDX-License-Identifier: Apache-2.0
// The table of a step's products, on the emulated device, whose clock stands still and whose
// products all have one algorithm; and that loops and ranks hand it to their products.
#include "inner/cuda/product_timing.h"

#include <map>

#include "cuda/emulated/runtime.h"
#include "cuda/mesh_case.h"
#include "inner/cuda/device_timing.h"

namespace isthmus::this_file {
namespace {

Workload tiny_workload() {
  const LanguageModelOptions options = tiny_options("gpt2");
  return {.name = "tiny", .model = options.model, .context = kLength, .sequences = kSequences};
}

class ProductTiming : public CudaLoopTest {
 protected:
  void SetUp() override { cuda::use_device(0); }
  void TearDown() override { cuda::use_matmul_table(nullptr); }
};

TEST_F(ProductTiming, TimesEachProductOfAStepWithEachAlgorithmAndKeepsTheFirstOfEqualOnes) {
  const Workload workload = tiny_workload();
  for (const bool bf16 : {false, true}) {
    ModelTimingOptions options;
    options.bf16 = bf16;
    std::map<cuda::MatmulShape, int> times;
    const cuda::MatmulTable table =
        time_products(workload, options, cuda::devices().front(), 2,
                      [&](const ProductTime& time) { times[time.shape] += 1; });
    CudaLoop loop(timed_loop_options(workload, options), batches_.provider());
    static_cast<void>(train(loop, 1, 2));
    const std::vector<cuda::MatmulShape> shapes = loop.products().shapes();
    EXPECT_EQ(table.size(), shapes.size());
    EXPECT_GE(shapes.size(), 12u);  // of a layer and the head, forward and backward
    for (const cuda::MatmulShape& shape : shapes) {
      EXPECT_EQ(table.choice(shape), 0);
      EXPECT_EQ(times[shape], cuda::kMatmulChoices);
      EXPECT_EQ(shape.bf16_operands, bf16);
    }
    EXPECT_EQ(cuda::MatmulTable::parse(table.text(), "table").text(), table.text());
    EXPECT_EQ(table.obstacle(cuda::MatmulTable::device_of(cuda::devices().front()),
                             cuda::products_version()),
              "");
  }
}

TEST_F(ProductTiming, LoopsAndRanksHandTheTableToTheirProducts) {
  LanguageModelOptions options = tiny_options("gpt2");
  cuda::MatmulTable table("a device", "a version");
  {
    CudaLoop loop(options, batches_.provider());
    static_cast<void>(train(loop, 1, 1));
    for (const cuda::MatmulShape& shape : loop.products().shapes()) table.set(shape, 3);
  }
  static_cast<void>(cuda::emulated::take_products_of_table());
  {
    CudaLoop loop(options, batches_.provider());
    static_cast<void>(train(loop, 1, 1));
  }
  EXPECT_EQ(cuda::emulated::take_products_of_table(), 0);
  cuda::use_matmul_table(std::make_shared<const cuda::MatmulTable>(table));
  CudaLoop loop(options, batches_.provider());
  static_cast<void>(train(loop, 1, 1));
  const int of_a_loop = cuda::emulated::take_products_of_table();
  EXPECT_GE(of_a_loop, static_cast<int>(table.size()));
  RandomBatches batches(kVocab, kMeshSequences, kLength);
  CudaMesh mesh(with_ranks(options, 2), batches.provider(), on_devices(2));
  static_cast<void>(train(mesh, 1, 1));
  EXPECT_EQ(cuda::emulated::take_products_of_table(), 2 * of_a_loop);
  LanguageModelOptions stages = with_ranks(options, 1);
  stages.mesh.pp = 2;
  stages.micro_batches = 2;  // with the samples of a loop's step each
  RandomBatches others(kVocab, kMeshSequences, kLength);
  const auto shares = make_cuda_mesh(stages, others.provider(), on_devices(2));
  static_cast<void>(shares->train_step(StepIndex(1)));
  EXPECT_GT(cuda::emulated::take_products_of_table(), 0);
}

}  // namespace
}  // namespace isthmus::this_file
