// SPDX-License-Identifier: Apache-2.0
// One round at its members, without a protocol around it.
#include "transport/exchange/exchange_round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "transport/naive_mean.h"

namespace isthmus::this_file {
namespace {

using testing_support::test_vector;

constexpr SyncId kId{FragmentId(0), StepIndex(3)};
constexpr std::size_t kValues = 300'001;  // several parts of each owner

/// A round of `members` whose frames are handed over in an order that a test chooses.
class RoundNet {
 public:
  RoundNet(const std::vector<std::vector<float>>& vectors, ReductionKind kind,
           const char* codec = "fp32")
      : codec_(make_codec(codec)), echoes_(vectors.size()) {
    for (std::size_t m = 0; m < vectors.size(); ++m) {
      const WorkerId self(static_cast<int>(m));
      rounds_.emplace_back(
          Contribution{.id = kId,
                       .encoded = encode(*codec_, vectors[m],
                                         encode_key(kId, static_cast<std::uint32_t>(m))),
                       .codec = codec_,
                       .kind = kind},
          RoundPlace{
              .self = self, .members = static_cast<int>(vectors.size()), .echoes = &echoes_});
    }
  }

  /// `order` arranges what is under way, before each frame.
  void run(const std::function<void(std::vector<std::pair<WorkerId, Outgoing>>&)>& order) {
    std::vector<std::pair<WorkerId, Outgoing>> under_way;
    Outbox out;
    const auto take_out = [&](std::size_t from) {
      for (Outgoing& each : out) under_way.emplace_back(WorkerId(static_cast<int>(from)), each);
      out.clear();
    };
    for (std::size_t m = 0; m < rounds_.size(); ++m) {
      ASSERT_TRUE(rounds_[m].launch(out).has_value());
      take_out(m);
    }
    while (!under_way.empty()) {
      order(under_way);
      const auto [from, next] = under_way.back();
      under_way.pop_back();
      const auto frame = parse_frame(*next.frame);
      ASSERT_TRUE(frame.has_value());
      bool fresh = false;
      const auto to = static_cast<std::size_t>(next.to.value());
      ASSERT_TRUE(rounds_[to].receive(from, *frame, next.frame, fresh, out).has_value());
      take_out(to);
    }
  }

  [[nodiscard]] Round& round(std::size_t m) { return rounds_[m]; }

 private:
  std::shared_ptr<const Codec> codec_;
  std::vector<std::uint32_t> echoes_;
  std::vector<Round> rounds_;
};

/// As WIRE_FORMAT.md has it, in one go.
Digest128 digest_of(const Reduced& result, std::byte contributors) {
  std::vector<std::byte> all{contributors};
  const auto bytes = std::as_bytes(std::span(result.values));
  all.insert(all.end(), bytes.begin(), bytes.end());
  for (const Encoded& each : result.contributions) {
    all.insert(all.end(), each.bytes.begin(), each.bytes.end());
  }
  return xxh3_128(all);
}

class DigestOfARound : public ::testing::TestWithParam<ReductionKind> {};

TEST_P(DigestOfARound, IsOfTheWholeResultWhateverCameFirst) {
  std::vector<std::vector<float>> vectors;
  for (int m = 0; m < 3; ++m) vectors.push_back(test_vector(WorkerId(m), kValues));
  for (const int seed : {0, 1, 2}) {
    RoundNet net(vectors, GetParam());
    const Rng rng{static_cast<std::uint64_t>(seed), Stream::kTestData};
    std::uint64_t turn = 0;
    net.run([&](auto& under_way) {
      const std::size_t last = under_way.size() - 1;
      if (seed > 0) std::swap(under_way[rng.words(turn++)[0] % (last + 1)], under_way[last]);
    });
    for (std::size_t m = 0; m < vectors.size(); ++m) {
      ASSERT_TRUE(net.round(m).complete());
      const Digest128 digest = net.round(m).digest();
      EXPECT_EQ(digest, digest_of(net.round(m).take(), std::byte{7}))
          << "member " << m << " seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DigestOfARound,
                         ::testing::Values(ReductionKind::kReduce, ReductionKind::kGather,
                                           ReductionKind::kCollect));

// An owner of fp32 parts keeps the mean it has computed instead of decoding what it sends.
// In pieces a frame is put together for each connection that it goes over.
TEST(Round, WhatGoesToSeveralLiesInARowAndWhatGoesToOneInPieces) {
  const auto in_pieces = [](int members, ReductionKind kind) {
    std::vector<std::vector<float>> vectors;
    for (int m = 0; m < members; ++m) vectors.push_back(test_vector(WorkerId(m), kValues));
    RoundNet net(vectors, kind);
    Outbox out;
    EXPECT_TRUE(net.round(0).launch(out).has_value());
    EXPECT_FALSE(out.empty());
    const auto count =
        std::ranges::count_if(out, [](const Outgoing& each) { return each.frame->in_pieces(); });
    EXPECT_TRUE(count == 0 || count == std::ssize(out)) << count << " of " << out.size();
    return count != 0;
  };
  EXPECT_TRUE(in_pieces(3, ReductionKind::kReduce));
  EXPECT_TRUE(in_pieces(2, ReductionKind::kGather));
  EXPECT_FALSE(in_pieces(3, ReductionKind::kGather));
  EXPECT_FALSE(in_pieces(3, ReductionKind::kCollect));
}

TEST(Round, ResultsAreTheSameBitsWhateverTheValuesAre) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> hard = {std::bit_cast<float>(0x7fc12345u),
                                   std::bit_cast<float>(0xff812345u),
                                   -0.0f,
                                   0.0f,
                                   kInfinity,
                                   -kInfinity,
                                   std::numeric_limits<float>::denorm_min(),
                                   std::numeric_limits<float>::max(),
                                   1.0f};
  for (const char* codec : {"fp32", "bf16"}) {
    std::vector<std::vector<float>> vectors(2, std::vector<float>(kValues));
    for (std::size_t i = 0; i < kValues; ++i) {
      vectors[0][i] = hard[i % hard.size()];
      vectors[1][i] = hard[i / hard.size() % hard.size()];
    }
    RoundNet net(vectors, ReductionKind::kReduce, codec);
    net.run([](auto&) {});
    ASSERT_TRUE(net.round(0).complete());
    ASSERT_TRUE(net.round(1).complete());
    EXPECT_EQ(net.round(0).digest(), net.round(1).digest()) << codec;
    const Reduced first = net.round(0).take();
    const Reduced second = net.round(1).take();
    ASSERT_EQ(first.values.size(), kValues);
    const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
    EXPECT_TRUE(std::ranges::equal(first.values, second.values, {}, bits, bits)) << codec;
  }
}

}  // namespace
}  // namespace isthmus::this_file
