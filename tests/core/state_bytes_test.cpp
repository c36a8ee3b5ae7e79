// SPDX-License-Identifier: Apache-2.0
#include "core/state/state_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/hash.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

constexpr std::size_t kDigestBytes = 16;
constexpr std::size_t kHeadAndDigest = 24 + kDigestBytes;

StateSnapshot some_state() {
  StateSnapshot state;
  state.tensor("anchor/0", std::vector<float>{1.5f, -0.0f, std::nanf("7")});
  state.tensor("empty", std::vector<float>{});
  state.bytes("encoded", std::vector<std::byte>{std::byte{1}, std::byte{0xff}, std::byte{2}});
  state.integer("step", std::numeric_limits<std::int64_t>::min());
  state.real("norm", -std::numeric_limits<double>::infinity());
  state.text("method", "diloco \"é\"");
  return state;
}

/// As somebody writes it who can compute a digest.
std::vector<std::byte> sealed(std::vector<std::byte> body) {
  const std::uint64_t whole = body.size() + kDigestBytes;
  std::memcpy(body.data() + 16, &whole, sizeof whole);
  const Digest128 digest = xxh3_128(body);
  const auto bytes = std::as_bytes(std::span(digest.bytes));
  body.insert(body.end(), bytes.begin(), bytes.end());
  return body;
}

std::vector<std::byte> body_of(std::vector<std::byte> bytes) {
  bytes.resize(bytes.size() - kDigestBytes);
  return bytes;
}

TEST(StateBytes, GiveBackEveryEntry) {
  const auto reader = read_state(write_state(some_state()));
  ASSERT_TRUE(reader) << reader.error();
  std::vector<float> anchor(3);
  (*reader)->tensor("anchor/0", anchor);
  EXPECT_EQ(anchor[0], 1.5f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(anchor[1]), 0x80000000u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(anchor[2]), std::bit_cast<std::uint32_t>(std::nanf("7")));
  (*reader)->tensor("empty", {});
  EXPECT_EQ((*reader)->bytes("encoded"),
            (std::vector<std::byte>{std::byte{1}, std::byte{0xff}, std::byte{2}}));
  EXPECT_EQ((*reader)->integer("step"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ((*reader)->real("norm"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ((*reader)->text("method"), "diloco \"é\"");
  EXPECT_FALSE((*reader)->contains("absent"));
  EXPECT_THROW((void)(*reader)->integer("absent"), RunError);
}

TEST(StateBytes, HoldNothingOfAnEmptyState) {
  const auto reader = read_state(write_state(StateSnapshot()));
  ASSERT_TRUE(reader) << reader.error();
  EXPECT_FALSE((*reader)->contains(""));
}

TEST(StateBytes, AreRefusedWhenCutLongerOrChangedAnywhere) {
  const std::vector<std::byte> good = write_state(some_state());
  for (std::size_t size = 0; size < good.size(); ++size) {
    const auto cut = read_state({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)});
    ASSERT_FALSE(cut) << size;
    EXPECT_THAT(cut.error(),
                ::testing::HasSubstr(size < kHeadAndDigest ? "bytes are too few" : "have come"));
  }
  std::vector<std::byte> longer = good;
  longer.push_back({});
  EXPECT_FALSE(read_state(longer));
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> changed = good;
    changed[i] ^= std::byte{0x10};
    EXPECT_FALSE(read_state(changed)) << i;
  }
}

TEST(StateBytes, AreRefusedWhenADigestHoldsButTheRestDoesNot) {
  const std::vector<std::byte> body = body_of(write_state(some_state()));
  ASSERT_TRUE(read_state(sealed(body)));
  std::vector<std::byte> scalars = body;
  scalars[12] = scalars[13] = scalars[14] = scalars[15] = std::byte{0xff};
  EXPECT_THAT(read_state(sealed(scalars)).error(), ::testing::HasSubstr("bytes of scalars"));
  std::vector<std::byte> json = body;
  json[24] = std::byte{'['};
  EXPECT_THAT(read_state(sealed(json)).error(), ::testing::HasSubstr("state of a peer"));
  EXPECT_THAT(read_state(sealed({body.begin(), body.end() - 1})).error(),
              ::testing::HasSubstr("safetensors"));
}

}  // namespace
}  // namespace isthmus::this_file
