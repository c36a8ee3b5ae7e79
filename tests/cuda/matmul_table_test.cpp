// SPDX-License-Identifier: Apache-2.0
// The table of algorithms for products, as text: what is written is read, and what cannot be read
// is named with its line.
#include "kernels/cuda/matmul_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace isthmus::cuda::this_file {
namespace {
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kDevice = "NVIDIA H100 80GB HBM3, compute capability 9.0";
constexpr const char* kLibrary = "13.1.0";

MatmulShape forward() {
  return {.m = 32768,
          .n = 3072,
          .k = 768,
          .lda = 768,
          .ldb = 3072,
          .ldc = 3072,
          .bf16_operands = true,
          .bf16_result = true,
          .epilogue = Epilogue::kGeluBias};
}
MatmulShape weight_gradient() {
  return {.m = 768,
          .n = 3072,
          .k = 32768,
          .lda = 768,
          .ldb = 3072,
          .ldc = 3072,
          .a_transposed = true,
          .bf16_operands = true,
          .accumulate = true,
          .alignment = 4};
}

MatmulTable parse(const std::string& text) { return MatmulTable::parse(text, "h100.txt"); }

std::string with_row(const std::string& row) {
  return MatmulTable(kDevice, kLibrary).text() + row + "\n";
}

TEST(MatmulTable, ReadsWhatItHasWritten) {
  MatmulTable table(kDevice, kLibrary);
  table.set(forward(), 2);
  table.set(weight_gradient(), 7);
  const MatmulTable again = parse(table.text());
  EXPECT_EQ(again.text(), table.text());
  EXPECT_EQ(again.size(), 2u);
  EXPECT_EQ(again.choice(forward()), 2);
  EXPECT_EQ(again.choice(weight_gradient()), 7);
  EXPECT_THAT(table.text(),
              AllOf(HasSubstr("\n32768 3072 768 768 3072 3072 0 0 bf16 bf16 0 gelu_bias 16 2\n"),
                    HasSubstr("\n768 3072 32768 768 3072 3072 1 0 bf16 fp32 1 none 4 7\n")));
}

TEST(MatmulTable, HasEachProductByAllThatDecidesIt) {
  MatmulTable table(kDevice, kLibrary);
  table.set(forward(), 2);
  const auto differs = [&](auto change) {
    MatmulShape other = forward();
    change(other);
    EXPECT_EQ(table.choice(other), std::nullopt);
  };
  differs([](MatmulShape& s) { s.m = 1; });
  differs([](MatmulShape& s) { s.lda = 776; });
  differs([](MatmulShape& s) { s.b_transposed = true; });
  differs([](MatmulShape& s) { s.bf16_result = false; });
  differs([](MatmulShape& s) { s.accumulate = true; });
  differs([](MatmulShape& s) { s.epilogue = Epilogue::kBias; });
  differs([](MatmulShape& s) { s.alignment = 8; });
}

TEST(MatmulTable, OfAnotherDeviceOrVersionSaysSo) {
  const MatmulTable table(kDevice, kLibrary);
  EXPECT_EQ(table.obstacle(kDevice, kLibrary), "");
  EXPECT_THAT(table.obstacle("NVIDIA A100, compute capability 8.0", kLibrary),
              AllOf(HasSubstr(kDevice), HasSubstr("this is NVIDIA A100")));
  EXPECT_THAT(table.obstacle(kDevice, "13.2.0"),
              AllOf(HasSubstr("cuBLASLt 13.1.0"), HasSubstr("this is 13.2.0")));
}

TEST(MatmulTable, WhatIsNoTableIsNamedWithItsLine) {
  const std::string good = "1 2 3 3 2 2 0 0 bf16 bf16 0 none 16 1";
  EXPECT_EQ(parse(with_row(good)).size(), 1u);
  const auto refused = [](const std::string& text, const std::string& where,
                          const std::string& why) {
    EXPECT_THAT([&] { static_cast<void>(parse(text)); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("h100.txt" + where), HasSubstr(why),
                                                 HasSubstr("bench_cuda_matmul_table"))))
        << text;
  };
  refused("", "", "\"device ...\"");
  refused("words\n", ":1", "does not begin");
  refused("isthmus matmul table 1\ndevice x\n", "", "\"cublaslt ...\"");
  refused(with_row("1 2 3"), ":5", "the line ends before");
  refused(with_row("1 2 x 3 2 2 0 0 bf16 bf16 0 none 16 1"), ":5", "\"x\" is no number");
  refused(with_row("1 2 3 3 2 2 0 2 bf16 bf16 0 none 16 1"), ":5",
          "\"2\" is no number from 0 to 1");
  refused(with_row("1 2 3 3 2 2 0 0 fp64 bf16 0 none 16 1"), ":5", "\"fp64\"");
  refused(with_row("1 2 3 3 2 2 0 0 bf16 bf16 0 relu 16 1"), ":5", "gelu_gradient");
  refused(with_row("1 2 3 3 2 2 0 0 bf16 bf16 0 none 16 8"), ":5", "from 0 to 7");
  refused(with_row(good + " 9"), ":5", "after the last column");
  refused(with_row(good + "\n" + good), ":6", "comes twice");
}

}  // namespace
}  // namespace isthmus::cuda::this_file
