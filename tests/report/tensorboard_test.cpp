// SPDX-License-Identifier: Apache-2.0
// Event files against bytes worked out by hand from the protobuf encoding and from TFRecord's
// framing; their checksums by a bit-by-bit CRC of its own.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "record/tensorboard_event.h"
#include "record/tensorboard_scalars.h"

namespace isthmus::report::this_file {
namespace {

/// CRC-32C one bit at a time: reflected polynomial 0x82F63B78.
std::uint32_t slow_crc32c(const std::string& bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
    }
  }
  return ~crc;
}

std::string from_hex(std::string_view hex) {
  std::string bytes;
  std::string digits;
  for (const char c : hex) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() == 2) {
      bytes += static_cast<char>(std::stoi(digits, nullptr, 16));
      digits.clear();
    }
  }
  return bytes;
}

/// The payloads of a file, each with both checksums verified.
std::vector<std::string> payloads(const std::string& file) {
  const auto little = [&](std::size_t at, int bytes) {
    std::uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; --i) {
      value = value << 8 | static_cast<unsigned char>(file[at + static_cast<std::size_t>(i)]);
    }
    return value;
  };
  const auto masked = [](std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; };
  std::vector<std::string> found;
  for (std::size_t at = 0; at < file.size();) {
    EXPECT_GE(file.size(), at + 16);
    const std::size_t length = little(at, 8);
    EXPECT_EQ(little(at + 8, 4), masked(slow_crc32c(file.substr(at, 8))));
    found.push_back(file.substr(at + 12, length));
    EXPECT_EQ(little(at + 12 + length, 4), masked(slow_crc32c(found.back())));
    at += 16 + length;
  }
  return found;
}

TEST(TensorBoardEvent, ChecksumIsTheMaskedCastagnoliOne) {
  ASSERT_EQ(slow_crc32c("123456789"), 0xE3069283U);
  // (0xE3069283 >> 15 | 0xE3069283 << 17) = 0x2507C60D; plus 0xA282EAD8.
  EXPECT_EQ(masked_crc32c("123456789"), 0xC78AB0E5U);
}

TEST(TensorBoardEvent, FileVersionRecordIsAsWorkedOutByHand) {
  // wall_time 1.5 = 0x3FF8000000000000; field 1 fixed64, field 3 of 13 bytes.
  const std::string payload = from_hex("09 00 00 00 00 00 00 F8 3F 1A 0D") + "brain.Event:2";
  const std::string record = file_version_record(1.5);
  EXPECT_EQ(record.substr(0, 8), from_hex("18 00 00 00 00 00 00 00"));
  EXPECT_EQ(payloads(record), std::vector<std::string>{payload});
}

TEST(TensorBoardEvent, ScalarRecordIsAsWorkedOutByHand) {
  // step 300 = varint AC 02; value {tag "a/b", simple_value 0.5 = 0x3F000000}: 10 bytes.
  const std::vector<Scalar> scalars = {{"a/b", 0.5F}};
  EXPECT_EQ(payloads(scalars_record(1.5, 300, scalars)),
            std::vector<std::string>{from_hex("09 00 00 00 00 00 00 F8 3F 10 AC 02 2A 0C "
                                              "0A 0A 0A 03 61 2F 62 15 00 00 00 3F")});
}

TEST(TensorBoardEvent, SessionStartCarriesItsStep) {
  EXPECT_EQ(payloads(session_start_record(0, 21)),
            std::vector<std::string>{from_hex("09 00 00 00 00 00 00 00 00 10 15 3A 02 08 01")});
}

TEST(TensorBoardEvent, TextRecordIsATensorOfOneString) {
  const std::string expected = from_hex("09 00 00 00 00 00 00 00 00 2A 2A 0A 28 0A 0E") +
                               "x/text_summary" + from_hex("42 0C 08 07 12 04 12 02 08 01 42 02") +
                               "hi" + from_hex("4A 08 0A 06 0A 04") + "text";
  EXPECT_EQ(payloads(text_record(0, 0, "x", "hi")), std::vector<std::string>{expected});
}

TEST(TensorBoardEvent, FileNamesSortByTimeAndSayIt) {
  EXPECT_LT(event_file_name(999), event_file_name(1000));
  EXPECT_EQ(event_file_time(event_file_name(1700000000)), 1700000000);
  EXPECT_EQ(event_file_time("metrics.jsonl"), -1);
}

TEST(TensorBoardScalars, RoundsOfOneStepBecomeOnePoint) {
  TensorBoardScalars scalars(true);
  std::string records;
  ASSERT_TRUE(scalars.take(R"({"k":"train","step":8,"loss":2.5,"t":1e9,"ts":4.0})", records));
  const std::size_t one = records.size();
  const char* kRound =
      R"({"k":"round","step":8,"frag":%,"bytes_payload":10,"bytes_wire":12,"members":2,"delta_norm":#,"wait_s":0.5,"err":null,"cos":0.#})";
  for (const auto& [fragment, norm] : {std::pair{'0', '3'}, std::pair{'1', '4'}}) {
    std::string line = kRound;
    line[line.find('%')] = fragment;
    line[line.find('#')] = norm;
    line[line.find('#')] = norm == '3' ? '5' : '7';
    ASSERT_TRUE(scalars.take(line, records));
    EXPECT_EQ(records.size(), one) << "a round was written before its step was over";
  }
  ASSERT_TRUE(scalars.take(R"({"k":"end","status":"ok"})", records));
  const std::vector<Scalar> expected = {
      {"round/bytes_payload", 20}, {"round/bytes_wire", 24},    {"round/wait_s", 1},
      {"round/delta_norm", 5},     {"round/fragments", 2},      {"round/members", 2},
      {"round/cos", 0.6F},         {"fragment-0/cos", 0.5F},    {"fragment-0/delta_norm", 3},
      {"fragment-1/cos", 0.7F},    {"fragment-1/delta_norm", 4}};
  EXPECT_EQ(records, scalars_record(4.0, 8, std::vector<Scalar>{{"train/loss", 2.5F}}) +
                         scalars_record(4.0, 8, expected));
}

TEST(TensorBoardScalars, RealRunsUseRealTimeAndNonFiniteNumbersStay) {
  TensorBoardScalars scalars(false);
  std::string records;
  ASSERT_TRUE(scalars.take(R"({"k":"eval","step":1,"loss":"inf","t":7.5,"ts":null})", records));
  EXPECT_EQ(
      records,
      scalars_record(7.5, 1,
                     std::vector<Scalar>{{"eval/loss", std::numeric_limits<float>::infinity()}}));
  EXPECT_FALSE(scalars.take("{\"k\":\"ev", records));
}

}  // namespace
}  // namespace isthmus::report::this_file
