// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>

namespace isthmus::this_file {
namespace {

std::vector<std::byte> bytes_of(const char* text) {
  std::vector<std::byte> bytes(std::strlen(text));
  std::memcpy(bytes.data(), text, bytes.size());
  return bytes;
}

FrameHeader some_header() {
  return {.kind = FrameKind::kContribution,
          .epoch = 7,
          .id = {FragmentId(3), StepIndex(0x0102030405060708)},
          .part = 5,
          .parts = 9,
          .offset = 0x1122334455667788,
          .layout = 0xcafef00d,
          .weight = 2.5,
          .closed_before = 42};
}

TEST(Frame, KeepsEveryFieldAndThePayload) {
  const std::vector<std::byte> payload = bytes_of("a payload");
  const FrameBytes bytes = make_frame(some_header(), payload);
  EXPECT_EQ(bytes->size(), payload.size() + kFrameOverheadBytes);
  const auto frame = parse_frame(*bytes);
  ASSERT_TRUE(frame.has_value());
  const FrameHeader& head = frame->header;
  const FrameHeader sent = some_header();
  EXPECT_EQ(head.kind, sent.kind);
  EXPECT_EQ(head.epoch, sent.epoch);
  EXPECT_EQ(head.id, sent.id);
  EXPECT_EQ(head.part, sent.part);
  EXPECT_EQ(head.parts, sent.parts);
  EXPECT_EQ(head.offset, sent.offset);
  EXPECT_EQ(head.layout, sent.layout);
  EXPECT_EQ(head.weight, sent.weight);
  EXPECT_EQ(head.closed_before, sent.closed_before);
  EXPECT_EQ(std::vector(frame->payload.begin(), frame->payload.end()), payload);
  EXPECT_EQ(payload_of(bytes).data(), frame->payload.data());
}

// The layout drawn in WIRE_FORMAT.md, byte for byte.
TEST(Frame, LiesOnTheWireAsDocumented) {
  const FrameBytes frame = make_frame(some_header(), bytes_of("xy"));
  constexpr std::array<unsigned char, kFrameHeaderBytes> kExpected = {
      'I',  'S',  'T',  'H',  2,    0,    1,    0,     // magic, version, kind
      2,    0,    0,    0,    0x0d, 0xf0, 0xfe, 0xca,  // payload bytes, layout
      7,    0,    0,    0,    3,    0,    0,    0,     // epoch, fragment
      8,    7,    6,    5,    4,    3,    2,    1,     // sent
      5,    0,    0,    0,    9,    0,    0,    0,     // part, parts
      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  // offset
      0,    0,    0,    0,    0,    0,    4,    0x40,  // weight 2.5
      42,   0,    0,    0,    0,    0,    0,    0};    // closed before
  for (std::size_t i = 0; i < kExpected.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>((*frame)[i]), kExpected[i]) << "byte " << i;
  }
  EXPECT_EQ(std::to_integer<char>((*frame)[64]), 'x');
  EXPECT_EQ(frame->size(), 70u);
}

class FrameAround : public ::testing::TestWithParam<std::size_t> {
 protected:
  std::shared_ptr<const std::vector<std::byte>> owner_ =
      std::make_shared<const std::vector<std::byte>>(GetParam(), std::byte{0x5a});
  const FrameBytes whole_ = make_frame(some_header(), *owner_);
  FrameBytes around_ = make_frame_around(some_header(), *owner_, owner_);
};

TEST_P(FrameAround, HasTheBytesOfOneInARow) {
  ASSERT_EQ(around_->size(), whole_->size());
  std::vector<std::byte> copy(around_->size());
  for (int time = 0; time < 2; ++time) {  // the checksum is known the second time
    std::ranges::fill(copy, std::byte{0xff});
    around_->copy_to(copy);
    EXPECT_TRUE(std::ranges::equal(copy, *whole_));
  }
  EXPECT_TRUE(std::ranges::equal(*around_, *whole_));
  EXPECT_EQ((*around_).data(), around_->data()) << "put together once";
}

TEST_P(FrameAround, IsReadWhereItLies) {
  if (GetParam() > 0) {
    EXPECT_EQ(payload_of(around_).data(), owner_->data());
  }
  EXPECT_EQ(payload_of(around_).size(), owner_->size());
  EXPECT_EQ(accepted_frame(around_).header.offset, some_header().offset);
  EXPECT_EQ(order_of(around_)->sent, some_header().id.sent);
  EXPECT_EQ(order_of(around_)->kind, some_header().kind);
  EXPECT_TRUE(
      std::ranges::equal(around_->range(60, GetParam() + 8), (*whole_).subspan(60, GetParam() + 8)))
      << "over its borders";
}

TEST_P(FrameAround, KeepsItsOwner) {
  const std::weak_ptr<const std::vector<std::byte>> watched = owner_;
  owner_.reset();
  EXPECT_FALSE(watched.expired());
  around_.reset();
  EXPECT_TRUE(watched.expired());
}

INSTANTIATE_TEST_SUITE_P(PayloadBytes, FrameAround, ::testing::Values(0, 1, 20'000));

TEST(Frame, EveryFlippedBitIsSeen) {
  const FrameBytes good = make_frame(some_header(), bytes_of("payload"));
  for (std::size_t bit = 0; bit < good->size() * 8; ++bit) {
    std::vector<std::byte> bad((*good).begin(), (*good).end());
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(parse_frame(bad).has_value()) << "bit " << bit;
  }
}

TEST(Frame, EveryTruncationIsSeen) {
  const FrameBytes good = make_frame(some_header(), bytes_of("payload"));
  for (std::size_t length = 0; length < good->size(); ++length) {
    EXPECT_FALSE(parse_frame(std::span(*good).first(length)).has_value()) << length;
  }
  std::vector<std::byte> longer((*good).begin(), (*good).end());
  longer.push_back(std::byte{0});
  EXPECT_FALSE(parse_frame(longer).has_value());
}

TEST(Frame, RefusesFieldsThatMeanNothing) {
  FrameHeader head = some_header();
  head.weight = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(parse_frame(*make_frame(head)).has_value());
  for (const double weight : {-1.0, 1e-31, 1e31, 1e300}) {
    head.weight = weight;
    EXPECT_FALSE(parse_frame(*make_frame(head)).has_value()) << weight;
  }
  for (const double weight : {0.0, 1e-30, 4096.0, 1e30}) {
    head.weight = weight;
    EXPECT_TRUE(parse_frame(*make_frame(head)).has_value()) << weight;
  }
  head.kind = FrameKind::kPartial;  // of a group: a sum
  for (const double weight : {0.0, 1e30, 1e36}) {
    head.weight = weight;
    EXPECT_TRUE(parse_frame(*make_frame(head)).has_value()) << weight;
  }
  for (const double weight : {-1.0, 1e-31, 1.1e36, 1e300}) {
    head.weight = weight;
    EXPECT_FALSE(parse_frame(*make_frame(head)).has_value()) << weight;
  }
  head = some_header();
  head.id.fragment = FragmentId(-1);
  EXPECT_FALSE(parse_frame(*make_frame(head)).has_value());
  head = some_header();
  head.kind = static_cast<FrameKind>(99);
  EXPECT_FALSE(parse_frame(*make_frame(head)).has_value());
}

TEST(Frame, RequestsKeepTheirEntries) {
  const std::vector<RequestEntry> entries = {{FrameKind::kContribution, 4, 1},
                                             {FrameKind::kResult, 9, 1000000}};
  const auto read = read_request(write_request(entries));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, entries);
}

TEST(Frame, RequestsThatAreNoListAreRefused) {
  std::vector<std::byte> payload = write_request(std::vector<RequestEntry>{{}});
  payload.pop_back();
  EXPECT_FALSE(read_request(payload).has_value());
  payload = write_request(std::vector<RequestEntry>{{FrameKind::kBye, 0, 1}});
  EXPECT_FALSE(read_request(payload).has_value());
  payload = write_request(std::vector<RequestEntry>(kMaxRequestEntries + 1));
  EXPECT_FALSE(read_request(payload).has_value());
}

}  // namespace
}  // namespace isthmus::this_file
