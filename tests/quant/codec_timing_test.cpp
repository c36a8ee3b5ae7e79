// SPDX-License-Identifier: Apache-2.0
#include "quant/codecs/codec_timing.h"

#include <gmock/gmock.h>

#include "quant/codec_values.h"

namespace isthmus::this_file {
namespace {

// Each reading is one millisecond after the last, so that every timed piece takes exactly that.
class StepClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const override {
    now_ += std::chrono::milliseconds(1);
    return now_;
  }

 private:
  mutable TimePoint now_{};
};

TEST(CodecTiming, FiguresFollowFromTheClock) {
  const std::vector<float> x = testing_support::normal_vector(10000);
  std::vector<float> y(x.size());
  const StepClock clock;
  const auto timing = time_codec(*make_codec("int8:64"), x, y, {.repetitions = 3}, clock);
  ASSERT_TRUE(timing);
  constexpr double kGbPerSecond = 4 * 10000 / 1e-3 / 1e9;
  EXPECT_DOUBLE_EQ(timing->encode_gb_s, kGbPerSecond);
  EXPECT_DOUBLE_EQ(timing->copy_gb_s, kGbPerSecond);
  EXPECT_DOUBLE_EQ(timing->encode_spread, 0);
  // Copying costs what reading does, so writing is free and the bound counts bytes read.
  EXPECT_DOUBLE_EQ(timing->encode_of_bound, 1);
  EXPECT_DOUBLE_EQ(timing->decode_of_bound, timing->bits_per_value / 32);
  EXPECT_EQ(timing->bytes, encoded_bytes(*make_codec("int8:64"), x.size()));
  EXPECT_GT(timing->nmse, 3e-5);
  EXPECT_LT(timing->nmse, 4e-5);
  EXPECT_THAT(to_json(*timing, "cache"), ::testing::HasSubstr(R"("codec":"int8:64")"));
}

TEST(CodecTiming, ValuesThatCannotBeEncodedAreReported) {
  std::vector<float> x = testing_support::normal_vector(100);
  x[5] = std::numeric_limits<float>::infinity();
  std::vector<float> y(x.size());
  const StepClock clock;
  const auto timing = time_codec(*make_codec("int8"), x, y, {}, clock);
  ASSERT_FALSE(timing);
  EXPECT_THAT(timing.error().what, ::testing::HasSubstr("not finite"));
}

}  // namespace
}  // namespace isthmus::this_file
