// SPDX-License-Identifier: Apache-2.0
// Rows of DATA in one message of ZeroMQ: what fits into a row, what a socket refuses, and which
// memory the frames of a row keep.
#include "transport/links/zmq/zmq_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transport/links/zmq/zmq_messages.h"

namespace isthmus::testing_support::this_file {
namespace {

FrameBytes frame_of(std::size_t bytes, int value = 0) {
  return std::make_shared<const std::vector<std::byte>>(bytes, static_cast<std::byte>(value));
}
LinkHeader data(std::uint64_t number) { return {.kind = LinkKind::kData, .number = number}; }

/// A batch and two sockets within the process; the first socket takes nothing before `meet`.
class ZmqBatchTest : public ::testing::Test {
 protected:
  ZmqBatchTest() { from_.bind("inproc://row"); }
  void meet() {
    to_.connect("inproc://row");
    (void)from_.get(zmq::sockopt::events);  // lets the socket take in that there is another end
  }
  void add(std::uint64_t number, std::size_t bytes) {
    batch_.add(data(number), frame_of(bytes, static_cast<int>(number)));
  }
  /// Fills a row with such frames. RETURNS: how many fit.
  std::size_t fill(std::size_t bytes) {
    std::size_t count = 0;
    for (; batch_.fits(frame_of(bytes)); ++count) add(count, bytes);
    return count;
  }

  zmq::context_t context_;
  zmq::socket_t from_{context_, zmq::socket_type::dealer}, to_{context_, zmq::socket_type::dealer};
  ZmqBatch batch_;
};

TEST_F(ZmqBatchTest, WhatASocketRefusesIsSentWholeLater) {
  batch_.begin(ZmqBatch::kMostBytes);
  for (std::uint64_t number = 1; number <= 3; ++number) add(number, 20'000);
  EXPECT_FALSE(batch_.send(from_));
  EXPECT_FALSE(batch_.send(from_));
  EXPECT_FALSE(batch_.empty());
  EXPECT_FALSE(batch_.fits(frame_of(20'000))) << "the row that was refused is closed";
  meet();
  ASSERT_TRUE(batch_.send(from_));
  EXPECT_TRUE(batch_.empty());
  ASSERT_TRUE(batch_.send(from_)) << "nothing waits";
  const auto parts = next_message(to_);
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].size(), 0u);
  std::span<const std::byte> rest = message_bytes((*parts)[1]);
  for (std::uint64_t number = 1; number <= 3; ++number) {
    const auto piece = next_data(rest);
    ASSERT_TRUE(piece);
    const auto header = parse_link_message(piece->header, piece->body);
    ASSERT_TRUE(header);
    EXPECT_EQ(header->number, number);
    EXPECT_EQ(std::ranges::count(piece->body, static_cast<std::byte>(number)), 20'000);
  }
  EXPECT_TRUE(rest.empty());
  EXPECT_FALSE(next_message(to_));
}

TEST_F(ZmqBatchTest, OneFrameAloneIsAMessageWithItsHeader) {
  meet();
  batch_.begin(0);
  EXPECT_EQ(fill(100'000), 1u) << "the first frame goes, whatever the bound";
  ASSERT_TRUE(batch_.send(from_));
  const auto parts = next_message(to_);
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_TRUE(parse_link_message(message_bytes((*parts)[0]), message_bytes((*parts)[1])));
}

TEST_F(ZmqBatchTest, ARowEndsAtItsBounds) {
  constexpr double kUnbounded = 1e18;
  meet();
  const auto row = [this](double most_bytes, std::size_t frame_bytes) {
    batch_.begin(most_bytes);
    const std::size_t count = fill(frame_bytes);
    EXPECT_TRUE(batch_.send(from_));
    return count;
  };
  EXPECT_EQ(row(kUnbounded, ZmqBatch::kMostBytes / 4 - kLinkHeaderBytes), 4u);
  EXPECT_EQ(row(kUnbounded, ZmqBatch::kMostBytes / 4 - kLinkHeaderBytes + 1), 3u);
  EXPECT_EQ(row(kUnbounded, 1000), ZmqBatch::kMost);
  EXPECT_EQ(ZmqBatch::kMost, 32u);  // WIRE_FORMAT.md
  EXPECT_EQ(ZmqBatch::kMostBytes, 512u << 10);
  EXPECT_EQ(row(100'000, 20'000), 4u) << "what the connection delivers in time";
  EXPECT_EQ(row(10'000, 20'000), 1u);
}

TEST_F(ZmqBatchTest, OnlyDataOfSomeSizeSuitARow) {
  EXPECT_TRUE(ZmqBatch::suits(data(0), frame_of(ZmqBatch::kLeastBody)));
  EXPECT_FALSE(ZmqBatch::suits(data(0), frame_of(ZmqBatch::kLeastBody - 1)));
  EXPECT_FALSE(ZmqBatch::suits(data(0), nullptr));
  EXPECT_FALSE(ZmqBatch::suits({.kind = LinkKind::kHello}, frame_of(ZmqBatch::kLeastBody)));
}

// The window counts frames, so what a frame pins beside itself has a bound of its own.
TEST(KeptPiece, PinsAtMostEightTimesItsSize) {
  const auto message = std::make_shared<const zmq::message_t>(std::size_t{1} << 20);
  const std::span<const std::byte> bytes = message_bytes(*message);
  FrameBytes kept = kept_piece(message, bytes.first(bytes.size() / 8));
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->data(), bytes.data());
  EXPECT_EQ(message.use_count(), 2);
  EXPECT_EQ(kept_piece(message, bytes.first(bytes.size() / 8 - 1)), nullptr);
  EXPECT_EQ(message.use_count(), 2) << "what is copied keeps nothing";
  kept.reset();
  EXPECT_EQ(message.use_count(), 1);
  const auto small = std::make_shared<const zmq::message_t>(kCopyBelow - 1);
  EXPECT_EQ(kept_piece(small, message_bytes(*small)), nullptr);
}

}  // namespace
}  // namespace isthmus::testing_support::this_file
