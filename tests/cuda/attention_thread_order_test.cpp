// SPDX-License-Identifier: Apache-2.0
// The order in which a block's threads run between two barriers changes no bit of attention.
#include "cuda/attention_device_case.h"
#include "kernels/cuda/simt.h"

namespace isthmus::cuda::this_file {
namespace {

using kernels::Bf16;

template <typename T>
void expect_same_bits_in_any_order(const AttentionCase& c) {
  const AttentionInputs<T> inputs(c);
  emulated::set_thread_order(0);
  const AttentionResult<T> expected = attention_on_device(c, inputs);
  for (const std::uint64_t seed : {1, 2, 3}) {
    emulated::set_thread_order(seed);
    EXPECT_TRUE(attention_on_device(c, inputs).same_bits_as(expected))
        << c.name() << ", order " << seed;
  }
  emulated::set_thread_order(0);
}

constexpr AttentionCase kCases[] = {{1, 97, 2, 1, 64, true}, {1, 65, 2, 1, 128, true}};

TEST(AttentionThreadOrder, ChangesNoBitOfFloat) {
  for (const AttentionCase& c : kCases) expect_same_bits_in_any_order<float>(c);
}
TEST(AttentionThreadOrder, ChangesNoBitOfBf16) {
  for (const AttentionCase& c : kCases) expect_same_bits_in_any_order<Bf16>(c);
}

}  // namespace
}  // namespace isthmus::cuda::this_file
