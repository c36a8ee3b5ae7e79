// SPDX-License-Identifier: Apache-2.0
// The bytes around frames: their layout, and that nothing else is taken for them.
#include "transport/links/link_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/base/rng.h"
#include "transport/links/link_flow.h"

namespace isthmus::this_file {
namespace {

using ::testing::HasSubstr;

Hello hello() {
  Hello hello{.protocol = 1, .members = 3, .from = WorkerId(2), .to = WorkerId(1), .streams = 4};
  hello.configuration = sha256_hex({});
  hello.run.bytes.fill(0x11);
  hello.layout.bytes.fill(0x22);
  hello.incarnation.bytes.fill(0x33);
  hello.name = "west";
  return hello;
}

// Byte for byte as WIRE_FORMAT.md has it.
TEST(LinkMessage, HeaderIsLaidOutAsDrawn) {
  const std::vector<std::byte> body(3, std::byte{'x'});
  const LinkHeaderBytes bytes = write_link_header(
      {.kind = LinkKind::kRefuse, .stream = 5, .number = 0x0102030405060708, .amount = 9}, body);
  const auto at = [&](std::size_t i) { return std::to_integer<int>(bytes[i]); };
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 4), "ISLK");
  EXPECT_EQ(at(4), 2);
  EXPECT_EQ(at(6), 3);
  EXPECT_EQ(at(8), 3);
  EXPECT_EQ(at(12), 5);
  EXPECT_EQ(at(16), 8);
  EXPECT_EQ(at(23), 1);
  EXPECT_EQ(at(24), 9);
  const std::uint32_t body_sum = crc32c(body);
  const std::uint32_t sum = crc32c(std::span(bytes).first(36));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(at(32 + i), static_cast<int>(body_sum >> (8 * i) & 0xff));
    EXPECT_EQ(at(36 + i), static_cast<int>(sum >> (8 * i) & 0xff));
  }
}

TEST(LinkMessage, EveryFlippedBitIsNoticed) {
  const std::vector<std::byte> body = write_hello(hello());
  const LinkHeaderBytes header =
      write_link_header({.kind = LinkKind::kHello, .stream = 1, .number = 2}, body);
  ASSERT_TRUE(parse_link_message(header, body));
  for (std::size_t bit = 0; bit < 8 * header.size(); ++bit) {
    LinkHeaderBytes bad = header;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(parse_link_message(bad, body)) << "bit " << bit;
  }
  for (std::size_t bit = 0; bit < 8 * body.size(); ++bit) {
    std::vector<std::byte> bad = body;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(parse_link_message(header, bad)) << "bit " << bit;
  }
}

TEST(LinkMessage, DataInARowAreTakenOneByOneAndWhole) {
  std::vector<std::byte> row;
  const auto append = [&row](LinkKind kind, std::size_t bytes) {
    const std::vector<std::byte> body(bytes, static_cast<std::byte>(bytes));
    const LinkHeaderBytes header = write_link_header({.kind = kind, .number = bytes}, body);
    row.insert(row.end(), header.begin(), header.end());
    row.insert(row.end(), body.begin(), body.end());
  };
  for (const std::size_t bytes : {3u, 0u, 70u}) append(LinkKind::kData, bytes);
  std::span<const std::byte> rest = row;
  for (const std::size_t bytes : {3u, 0u, 70u}) {
    const auto piece = next_data(rest);
    ASSERT_TRUE(piece);
    const auto header = parse_link_message(piece->header, piece->body);
    ASSERT_TRUE(header);
    EXPECT_EQ(header->number, bytes);
    EXPECT_EQ(std::ranges::count(piece->body, static_cast<std::byte>(bytes)),
              static_cast<std::ptrdiff_t>(bytes));
  }
  EXPECT_TRUE(rest.empty());
  EXPECT_FALSE(next_data(rest));
  for (std::size_t size = 0; size < row.size(); ++size) {
    std::span<const std::byte> cut = std::span(row).first(size);
    while (next_data(cut)) {
    }
    const bool between = size == 0 || size == 43 || size == 83;
    EXPECT_EQ(cut.empty(), between) << "cut at " << size;
  }
  row.clear();
  append(LinkKind::kHello, 5);
  rest = row;
  EXPECT_FALSE(next_data(rest));
  EXPECT_EQ(rest.size(), row.size());
}

TEST(LinkMessage, WrongLengthsAreRefused) {
  const std::vector<std::byte> body(10);
  const LinkHeaderBytes header = write_link_header({.kind = LinkKind::kData}, body);
  EXPECT_FALSE(parse_link_message(std::span(header).first(39), body));
  EXPECT_FALSE(parse_link_message({}, body));
  EXPECT_FALSE(parse_link_message(header, std::span(body).first(9)));
  EXPECT_FALSE(parse_link_message(header, {}));
}

TEST(LinkMessage, AnotherVersionIsNamed) {
  LinkHeaderBytes header = write_link_header({}, {});
  header[4] = std::byte{1};
  const auto parsed = parse_link_message(header, {});
  ASSERT_FALSE(parsed);
  EXPECT_TRUE(parsed.error().other_version);
  EXPECT_EQ(parsed.error().what, "link version 1; this build speaks 2");
}

TEST(LinkMessage, AHelloComesBackAsItWent) {
  const auto back = read_hello(write_hello(hello()));
  ASSERT_TRUE(back);
  EXPECT_EQ(write_hello(*back), write_hello(hello()));
  EXPECT_EQ(back->name, "west");
  EXPECT_EQ(write_hello(hello()).size(), 124u + 4u);
  Hello grows = hello();
  grows.most_streams = 24;
  EXPECT_EQ(write_hello(grows)[8], std::byte{4});
  EXPECT_EQ(write_hello(grows)[9], std::byte{24});
  EXPECT_EQ(read_hello(write_hello(grows))->most_streams, 24);
}

TEST(LinkMessage, RandomBodiesNeverCrashAReader) {
  const Rng rng{1, Stream::kTestData};
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto words = rng.words(i);
    std::vector<std::byte> body(words[0] % 200);
    for (std::size_t k = 0; k < body.size(); ++k) {
      body[k] = static_cast<std::byte>(rng.words(i * 200 + k)[1]);
    }
    (void)read_hello(body);
    (void)read_refusal(body);
  }
}

TEST(LinkMessage, ControlCharactersOfStrangersDoNotReachATerminal) {
  const auto refusal = read_refusal(write_refusal({RefusedField::kRun, "a\x1b[2Jb\n"}));
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->what, "a?[2Jb?");
}

TEST(Accept, TakesOnlyThePeerThatMeantThisMember) {
  Hello mine = hello();
  mine.from = mine.to = WorkerId(1);
  EXPECT_TRUE(accept(mine, hello()));
  mine.from = WorkerId(0);
  const auto fits = accept(mine, hello());
  ASSERT_FALSE(fits);
  EXPECT_EQ(fits.error().field, RefusedField::kPlace);
  EXPECT_THAT(fits.error().what, HasSubstr("meant to reach member 1 here, but this is member 0"));
  Hello self = hello();
  self.from = self.to = WorkerId(1);
  mine.from = WorkerId(1);
  EXPECT_FALSE(accept(mine, self));
  Hello beyond = hello();
  beyond.from = WorkerId(3);
  EXPECT_FALSE(accept(mine, beyond));
  Hello older = hello();
  older.protocol = 7;
  EXPECT_EQ(accept(mine, older).error().what, "protocol version: member 1 has 1, member 2 has 7");
}

TEST(LinkReceiver, HoldsBackWhatCameEarlyAndTakesNothingTwice) {
  const auto frame = [](std::size_t n) {
    return std::make_shared<const std::vector<std::byte>>(n);
  };
  LinkReceiver receiver(10000);
  std::vector<FrameBytes> out;
  EXPECT_EQ(receiver.receive(1, frame(1), out), LinkReceiver::Verdict::kTaken);
  EXPECT_EQ(receiver.receive(2, frame(2), out), LinkReceiver::Verdict::kTaken);
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(receiver.receive(1, frame(1), out), LinkReceiver::Verdict::kRepeated);
  EXPECT_EQ(receiver.receive(0, frame(0), out), LinkReceiver::Verdict::kTaken);
  ASSERT_EQ(out.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(out[i]->size(), i);
  EXPECT_EQ(receiver.receive(0, frame(0), out), LinkReceiver::Verdict::kRepeated);
  EXPECT_EQ(receiver.receive(3, frame(8900), out), LinkReceiver::Verdict::kTaken);
  EXPECT_EQ(receiver.receive(4, frame(1), out), LinkReceiver::Verdict::kBeyondWindow);
}

}  // namespace
}  // namespace isthmus::this_file
