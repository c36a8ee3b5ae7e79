// SPDX-License-Identifier: Apache-2.0
// What matmul.cpp asks of cuBLASLt and of the device, over a fake of the one and an emulated other.
#include "cuda/fake_cublas.h"

#include "core/base/log.h"
#include "cuda/device_test.h"
#include "cuda/emulated/faults.h"
#include "cuda/emulated/runtime.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/matmul_table.h"

namespace isthmus::cuda::this_file {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;

TEST(FakeCublas, IsFoundWithoutMemoryOfADevice) {
  emulated::set_device_memory(1 << 10);  // another process has the rest
  EXPECT_EQ(products_missing(), "");
  EXPECT_THROW(Blas(), OutOfDeviceMemory);
  emulated::set_device_memory(std::size_t{4} << 30);
}

TEST(FakeCublas, SaysItsVersion) { EXPECT_EQ(products_version(), "13.2.9"); }

/// c (kRows, n) = a b in float.
class ChosenProduct : public testing::Test {
 protected:
  static constexpr std::int64_t kRows = 4, kDepth = 8;

  [[nodiscard]] Matmul product(std::int64_t n) const {
    return {.m = kRows,
            .n = n,
            .k = kDepth,
            .a = static_cast<const float*>(a_.data()),
            .b = static_cast<const float*>(b_.data()),
            .lda = kDepth,
            .ldb = n,
            .ldc = n,
            .c = c_.data()};
  }
  [[nodiscard]] static std::shared_ptr<MatmulTable> table() {
    return std::make_shared<MatmulTable>("the device", "the library");
  }
  void SetUp() override { static_cast<void>(fake::take_used_algorithms()); }
  void TearDown() override {
    stream_.synchronize();
    fake::refuse_algorithm(-1);
  }

  Stream stream_;
  DeviceArray<float> a_ = on_device(stream_, normal_floats(kRows* kDepth, 0));
  DeviceArray<float> b_ = on_device(stream_, normal_floats(kDepth * 16, 1));
  DeviceArray<float> c_{kRows * 16};
};

TEST_F(ChosenProduct, TakesTheChoiceOfTheTableForItsShapeAlone) {
  const auto choices = table();
  choices->set(shape_of(product(8)), 2);
  Blas blas({.table = choices});
  for (const std::int64_t n : {8, 16, 8}) blas.matmul(stream_, product(n));
  EXPECT_THAT(fake::take_used_algorithms(), ElementsAre(2, 0, 2));
  EXPECT_THAT(blas.shapes(),
              testing::UnorderedElementsAre(shape_of(product(8)), shape_of(product(16))));
}

TEST_F(ChosenProduct, WithoutATableTakesTheFirstAnswer) {
  Blas blas;
  blas.matmul(stream_, product(8));
  EXPECT_THAT(fake::take_used_algorithms(), ElementsAre(0));
}

TEST_F(ChosenProduct, TakesTheTableInUseWhereNoChoiceIsAskedFor) {
  const auto choices = table();
  choices->set(shape_of(product(8)), 2);
  use_matmul_table(choices);
  Blas run, bench({.choice = 1});
  use_matmul_table(nullptr);
  for (Blas* const blas : {&run, &bench}) blas->matmul(stream_, product(8));
  EXPECT_THAT(fake::take_used_algorithms(), ElementsAre(2, 1));
}

TEST_F(ChosenProduct, AChoiceThatTheLibraryDoesNotNameIsTheFirstAnswer) {
  const auto choices = table();
  choices->set(shape_of(product(8)), fake::kAlgorithms);
  Blas blas({.table = choices});
  for (int i = 0; i < 2; ++i) blas.matmul(stream_, product(8));
  EXPECT_THAT(fake::take_used_algorithms(), ElementsAre(0, 0));
}

TEST_F(ChosenProduct, AChoiceThatTheLibraryRefusesToRunIsTheFirstAnswer) {
  const auto choices = table();
  choices->set_source("some.txt");
  for (const std::int64_t n : {8, 16}) choices->set(shape_of(product(n)), 3);
  fake::refuse_algorithm(3);
  testing::internal::CaptureStderr();
  Blas blas({.table = choices});
  for (const std::int64_t n : {8, 16, 8}) blas.matmul(stream_, product(n));
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(fake::take_used_algorithms(), ElementsAre(0, 0, 0));
  EXPECT_EQ(std::ranges::count(lines, '\n'), 1) << lines;
  EXPECT_THAT(lines, HasSubstr("some.txt: cuBLASLt 13.2.9 refuses its algorithm 3"));
}

TEST_F(ChosenProduct, OnALostDeviceIsAnErrorOfTheDevice) {
  Blas blas;
  emulated::lose_device(0, 0);
  blas.matmul(stream_, product(8));
  EXPECT_THROW(stream_.synchronize(), DeviceLost);
  EXPECT_THROW(blas.matmul(stream_, product(8)), DeviceLost);
  emulated::end_faults();
}

}  // namespace
}  // namespace isthmus::cuda::this_file
