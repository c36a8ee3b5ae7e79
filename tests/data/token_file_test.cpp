// SPDX-License-Identifier: Apache-2.0
#include "data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::string packed(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::string text = packed({magic, version, count});
  text.resize(1024, '\0');
  return text;
}

std::vector<std::int32_t> ids(const TokenSpan& tokens) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(tokens.count));
  EXPECT_EQ(tokens.read(0, values), -1);
  return values;
}

class TokenFiles : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) {
    write_atomically(storage_, directory_ / name, bytes);
  }
  TokenFile open(const std::string& name) { return open_token_file(storage_, directory_ / name); }
  std::string error(const std::string& name) {
    return message_of<SystemError>([&] { (void)open(name); });
  }
  TemporaryDirectory directory_;
  SystemStorage storage_;
};

TEST_F(TokenFiles, ReadsBothLlmcForms) {
  put("gpt2.bin", llmc_header(20240520, 1, 3) + packed<std::uint16_t>({1, 2, 50256}));
  put("llama3.bin", llmc_header(20240801, 7, 2) + packed<std::uint32_t>({128000, 5}));
  EXPECT_EQ(open("gpt2.bin").format, "llm.c");
  EXPECT_THAT(ids(open("gpt2.bin").tokens), ElementsAre(1, 2, 50256));
  EXPECT_THAT(ids(open("llama3.bin").tokens), ElementsAre(128000, 5));
}

TEST_F(TokenFiles, ReadsRawU16AsNanoGpt) {
  put("train.bin", packed<std::uint16_t>({7, 65535}));
  EXPECT_EQ(open("train.bin").format, "nanoGPT");
  EXPECT_THAT(ids(open("train.bin").tokens), ElementsAre(7, 65535));
}

std::string megatron_index(std::uint8_t code, std::int64_t second_position) {
  return std::string("MMIDIDX\0\0", 9) + packed<std::uint64_t>({1}) + packed({code}) +
         packed<std::uint64_t>({2, 3}) + packed<std::int32_t>({2, 1}) +
         packed<std::int64_t>({0, second_position}) + packed<std::int64_t>({0, 1, 2});
}

TEST_F(TokenFiles, ReadsAMegatronPairByEitherName) {
  put("x.bin", packed<std::int32_t>({9, 100000, 3}));
  put("x.idx", megatron_index(4, 8));
  for (const char* name : {"x.bin", "x.idx"}) {
    const TokenFile file = open(name);
    EXPECT_EQ(file.format, "Megatron");
    EXPECT_EQ(file.path.filename(), "x.bin");
    EXPECT_THAT(ids(file.tokens), ElementsAre(9, 100000, 3));
  }
  put("x.idx", megatron_index(4, 8) + "mm");  // one mode byte a sequence
  EXPECT_THAT(ids(open("x.bin").tokens), ElementsAre(9, 100000, 3));
}

TEST_F(TokenFiles, RefusesAnIndexThatDoesNotFitItsPair) {
  put("x.bin", packed<std::int32_t>({9, 100000, 3}));
  const auto with_index = [&](const std::string& index) {
    put("x.idx", index);
    return error("x.bin");
  };
  EXPECT_THAT(with_index("MMIDIDX"), HasSubstr("does not begin with"));
  EXPECT_THAT(with_index(megatron_index(4, 8).substr(0, 60)), HasSubstr("do not fit"));
  EXPECT_THAT(with_index(megatron_index(4, 8) + "m"), HasSubstr("bytes follow"));
  EXPECT_THAT(with_index(megatron_index(7, 8)), HasSubstr("type code 7"));
  EXPECT_THAT(with_index(megatron_index(8, 4)), HasSubstr("it has 12 bytes, its index covers 6"));
  EXPECT_THAT(with_index(megatron_index(4, -8)), HasSubstr("sequence 1 begins at byte -8"));
  std::string negative = megatron_index(4, 8);
  const std::int32_t length = -1;
  std::memcpy(negative.data() + 38, &length, 4);  // of sequence 1
  EXPECT_THAT(with_index(negative), HasSubstr("sequence 1 has length -1"));
  std::string huge = megatron_index(4, 8);
  const std::uint64_t count = std::uint64_t{1} << 62;
  std::memcpy(huge.data() + 18, &count, 8);
  EXPECT_THAT(with_index(huge), HasSubstr("do not fit"));
}

TEST_F(TokenFiles, NamesDefectsOfLlmcHeaders) {
  put("short.bin", llmc_header(20240520, 1, 3).substr(0, 100));
  EXPECT_THAT(error("short.bin"), AllOf(HasSubstr("short.bin"), HasSubstr("100 of 1024")));
  put("version.bin", llmc_header(20240520, 2, 0));
  EXPECT_THAT(error("version.bin"), HasSubstr("version 2; 1 is needed"));
  put("count.bin", llmc_header(20240520, 1, 3) + packed<std::uint16_t>({1, 2}));
  EXPECT_THAT(error("count.bin"), AllOf(HasSubstr("counts 3 tokens"), HasSubstr("4 bytes follow")));
  put("negative.bin", llmc_header(20240520, 1, -1));
  EXPECT_THAT(error("negative.bin"), HasSubstr("counts -1"));
  put("model.bin", llmc_header(20240326, 3, 0));
  EXPECT_THAT(error("model.bin"), HasSubstr("model checkpoint"));
  put("eval.bin", llmc_header(20240522, 1, 0));
  EXPECT_THAT(error("eval.bin"), HasSubstr("HellaSwag"));
  put("odd.bin", "abc");
  EXPECT_THAT(error("odd.bin"), HasSubstr("3 bytes are no whole number"));
  put("lone.dat", std::string("MMIDIDX\0\0", 9));
  EXPECT_THAT(error("lone.dat"), HasSubstr("name its .bin"));
  EXPECT_THAT(error("missing.bin"), HasSubstr("No such file"));
}

TEST_F(TokenFiles, WritesWhatItReads) {
  const std::vector<std::uint16_t> tokens = {3, 1, 4, 1, 5};
  write_llmc_tokens(storage_, directory_ / "pi.bin", tokens);
  EXPECT_THAT(ids(open("pi.bin").tokens), ElementsAre(3, 1, 4, 1, 5));
}

TEST(TokenSpan, FindsIdsThatAreNone) {
  const std::vector<std::int64_t> values = {1, std::int64_t{1} << 31, -1};
  const TokenSpan span{std::as_bytes(std::span(values)).data(), TokenType::kI64, 3};
  std::vector<std::int32_t> out(3);
  EXPECT_EQ(span.read(0, out), 1);
  EXPECT_EQ(span.read(2, std::span(out).first(1)), 0);
  EXPECT_EQ(span.at(1), std::int64_t{1} << 31);
}

}  // namespace
}  // namespace isthmus::this_file
