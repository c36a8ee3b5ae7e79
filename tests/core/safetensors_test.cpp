// SPDX-License-Identifier: Apache-2.0
#include "core/state/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A file from its header (padded here) and its data.
std::vector<std::byte> file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  text += header + data;
  const auto bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

std::string error_of(const std::vector<std::byte>& file) {
  return message_of<SystemError>([&] { (void)Safetensors::parse(file, "f"); });
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// safetensors.torch.save of safetensors 0.6 (Python) of the tensors below, metadata
// {"format":"pt"}.
const std::string kReferenceHeader =
    R"({"__metadata__":{"format":"pt"},"c":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
    R"("a2":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
    R"("b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},)"
    R"("e":{"dtype":"F32","shape":[0,3],"data_offsets":[20,20]},)"
    R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[20,24]},)"
    R"("h":{"dtype":"F16","shape":[2],"data_offsets":[24,28]},)"
    R"("z":{"dtype":"U8","shape":[1],"data_offsets":[28,29]}}      )";
const std::string kReferenceData(
    "\x07\0\0\0\0\0\0\0\0\0\x80\x40\0\0\x80\x3f\0\0\0\x40\xc0\x3f\x20\xc0\0\x38\x02\x80\x03", 29);

TEST(SafetensorsWriter, GivesTheReferenceWritersBytes) {
  const auto c = bytes_of<std::int64_t>({7});
  const auto a2 = bytes_of<float>({4});
  const auto b = bytes_of<float>({1, 2});
  const auto a = bytes_of<std::uint16_t>({0x3fc0, 0xc020});
  const auto h = bytes_of<std::uint16_t>({0x3800, 0x8002});
  const auto z = bytes_of<std::uint8_t>({3});
  const TemporaryDirectory directory;
  SystemStorage storage;
  write_safetensors(storage, directory / "x",
                    {{"z", DType::kU8, {1}, z},
                     {"b", DType::kF32, {2}, b},
                     {"a", DType::kBF16, {1, 2}, a},
                     {"c", DType::kI64, {1}, c},
                     {"e", DType::kF32, {0, 3}, {}},
                     {"h", DType::kF16, {2}, h},
                     {"a2", DType::kF32, {}, a2}});
  EXPECT_EQ(as_text(storage.read(directory / "x")),
            as_text(file_of(kReferenceHeader, kReferenceData)));
}

TEST(SafetensorsReader, ReadsTheReferenceWritersBytes) {
  const auto file = file_of(kReferenceHeader, kReferenceData);
  const Safetensors tensors = Safetensors::parse(file, "f");
  EXPECT_EQ(tensors.entries().size(), 7U);
  EXPECT_EQ(tensors.metadata().at("format"), "pt");
  std::vector<float> pair(2);
  tensors.read_floats(*tensors.find("b"), pair);
  EXPECT_EQ(pair, (std::vector<float>{1, 2}));
  tensors.read_floats(*tensors.find("a"), pair);
  EXPECT_EQ(pair, (std::vector<float>{1.5F, -2.5F}));
  tensors.read_floats(*tensors.find("h"), pair);
  EXPECT_EQ(pair, (std::vector<float>{0.5F, -0x1p-23F}));
  std::vector<float> one(1);
  tensors.read_floats(*tensors.find("a2"), one);
  EXPECT_EQ(one[0], 4.0F);
  EXPECT_EQ(tensors.find("nothing"), nullptr);
  EXPECT_THAT(message_of<SystemError>([&] { tensors.read_floats(*tensors.find("c"), one); }),
              AllOf(HasSubstr("\"c\""), HasSubstr("I64"), HasSubstr("is needed")));
}

TEST(SafetensorsReader, ConvertsEveryHalfExactly) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  const auto bytes = bytes_of(halves);
  const TemporaryDirectory directory;
  SystemStorage storage;
  write_safetensors(storage, directory / "x", {{"h", DType::kF16, {65536}, bytes}});
  const Safetensors tensors = Safetensors::open(storage, directory / "x");
  std::vector<float> got(65536);
  tensors.read_floats(*tensors.find("h"), got);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const double sign = i >= 32768 ? -1 : 1;
    const int exponent = static_cast<int>(i >> 10 & 31);
    const auto fraction = static_cast<double>(i & 1023);
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(got[i]), fraction != 0) << i;
      if (fraction == 0) {
        ASSERT_EQ(got[i], sign * INFINITY) << i;
      }
      continue;
    }
    const double want = exponent == 0 ? sign * std::ldexp(fraction, -24)
                                      : sign * std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(static_cast<double>(got[i]), want) << i;
    ASSERT_EQ(std::signbit(got[i]), sign < 0) << i;
  }
}

TEST(SafetensorsReader, RefusesDefectsByName) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return "{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}}";
  };
  const std::string four(4, '\0');
  EXPECT_EQ(error_of(file_of(entry("F32", "[1]", "[0,4]"), four)), "");
  EXPECT_THAT(error_of({}), HasSubstr("0 bytes, fewer than the 8"));
  EXPECT_THAT(error_of(std::vector<std::byte>(16, std::byte{0xff})), HasSubstr("over the limit"));
  EXPECT_THAT(error_of(file_of("", "")), HasSubstr("does not begin with {"));
  EXPECT_THAT(error_of(file_of(entry("F32", "[1]", "[0,4]"), "")), HasSubstr("truncated"));
  EXPECT_THAT(error_of(file_of(entry("F32", "[1]", "[0,4]"), four + "x")),
              HasSubstr("trailing bytes"));
  EXPECT_THAT(error_of(file_of(entry("F32", "[2]", "[0,4]"), four)), HasSubstr("need 8"));
  EXPECT_THAT(error_of(file_of(entry("F32", "[1]", "[4,0]"), four)), HasSubstr("lies at bytes"));
  EXPECT_THAT(error_of(file_of(entry("F31", "[1]", "[0,4]"), four)), HasSubstr("unknown dtype"));
  EXPECT_THAT(error_of(file_of(entry("F32", "[-1]", "[0,4]"), four)),
              HasSubstr("unsigned integer"));
  EXPECT_THAT(error_of(file_of(entry("F32", "[1.0]", "[0,4]"), four)),
              HasSubstr("unsigned integer"));
  EXPECT_THAT(error_of(file_of(entry("F32", "[4611686018427387904,4]", "[0,4]"), four)),
              HasSubstr("more than fits"));
  EXPECT_THAT(error_of(file_of(entry("F32", "[18446744073709551616]", "[0,4]"), four)),
              HasSubstr("unsigned integer"));
  EXPECT_THAT(error_of(file_of(entry("F32", "1", "[0,4]"), four)), HasSubstr("not a list"));
  EXPECT_THAT(error_of(file_of(entry("F32", "[1]", "[0]"), four)), HasSubstr("not a pair"));
  EXPECT_THAT(error_of(file_of("{\"a\":1}", "")), HasSubstr("not described"));
  EXPECT_THAT(error_of(file_of("{\"a\":{}}", "")), HasSubstr("lacks one of"));
  EXPECT_THAT(error_of(file_of("{\"a\":", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(file_of("{\"__metadata__\":{\"x\":1}}", "")), HasSubstr("not a string"));
}

TEST(SafetensorsReader, RefusesOverlapHolesAndDuplicates) {
  const std::string eight(8, '\0');
  const auto two = [](const std::string& first, const std::string& second) {
    return "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + first +
           "},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" + second + "}}";
  };
  EXPECT_EQ(error_of(file_of(two("[4,8]", "[0,4]"), eight)), "");
  EXPECT_THAT(error_of(file_of(two("[0,4]", "[2,6]"), eight)), HasSubstr("overlap"));
  EXPECT_THAT(error_of(file_of(two("[0,4]", "[6,10]"), eight + "xx")), HasSubstr("hole"));
  std::string twice = two("[0,4]", "[4,8]");
  twice.replace(twice.find("\"b\""), 3, "\"a\"");
  EXPECT_THAT(error_of(file_of(twice, eight)), HasSubstr("\"a\" appears twice"));
}

TEST(SafetensorsReader, RefusesDeepNestingWithoutRunningOutOfStack) {
  EXPECT_THAT(error_of(file_of("{\"a\":" + std::string(100000, '['), "")),
              HasSubstr("nested deeper"));
}

TEST(SafetensorsModel, JoinsShardsAndNamesWhatIsMissing) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  const auto bytes = bytes_of<float>({1});
  write_safetensors(storage, directory / "s1", {{"a", DType::kF32, {1}, bytes}});
  write_safetensors(storage, directory / "s2", {{"b", DType::kF32, {1}, bytes}});
  const auto with_map = [&](const std::string& map) {
    write_atomically(storage, directory / "model.safetensors.index.json",
                     "{\"metadata\":{\"total_size\":8},\"weight_map\":" + map + "}");
    return message_of<SystemError>(
        [&] { EXPECT_EQ(SafetensorsModel::open(storage, directory.path()).tensors().size(), 2U); });
  };
  EXPECT_EQ(with_map(R"({"a":"s1","b":"s2"})"), "");
  EXPECT_THAT(with_map(R"({"a":"s1","c":"s2"})"), HasSubstr("lacks tensor \"c\""));
  EXPECT_THAT(with_map(R"({"a":"s1","c":"s2"})"), HasSubstr("copy the model's files again"));
  EXPECT_THAT(with_map(R"({"a":"../s1"})"), HasSubstr("no file name in this folder"));
  EXPECT_THAT(with_map(R"({"a":"s3"})"), HasSubstr("No such file"));
  EXPECT_THAT(with_map(R"({"a":3})"), HasSubstr("not a string"));
  EXPECT_THAT(with_map("[]"), HasSubstr("weight_map"));
  EXPECT_THAT(message_of<SystemError>(
                  [&] { (void)SafetensorsModel::open(storage, directory.path() / "."); }),
              HasSubstr("weight_map"));
}

TEST(SafetensorsModel, RefusesATensorThatTwoShardsHoldWithOtherValues) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  const auto one = bytes_of<float>({1});
  const auto two = bytes_of<float>({2});
  write_safetensors(storage, directory / "s1",
                    {{"a", DType::kF32, {1}, one}, {"c", DType::kF32, {1}, one}});
  write_atomically(storage, directory / "model.safetensors.index.json",
                   R"({"weight_map":{"a":"s1","b":"s2"}})");
  const auto with = [&](const std::vector<std::byte>& other) {
    write_safetensors(storage, directory / "s2",
                      {{"a", DType::kF32, {1}, other}, {"b", DType::kF32, {1}, two}});
    return message_of<SystemError>(
        [&] { EXPECT_EQ(SafetensorsModel::open(storage, directory.path()).tensors().size(), 3U); });
  };
  EXPECT_EQ(with(one), "");  // equal values say nothing else
  EXPECT_THAT(with(two), AllOf(HasSubstr("s1 and "), HasSubstr("s2: both hold tensor \"a\"")));
}

TEST(SafetensorsModel, SaysWhatAFolderWithoutWeightsLacks) {
  const TemporaryDirectory directory;
  SystemStorage storage;
  EXPECT_THAT(
      message_of<SystemError>([&] { (void)SafetensorsModel::open(storage, directory.path()); }),
      HasSubstr("neither model.safetensors nor"));
}

}  // namespace
}  // namespace isthmus::this_file
