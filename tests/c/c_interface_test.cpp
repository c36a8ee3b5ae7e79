// SPDX-License-Identifier: Apache-2.0
// The C interface against the C++ one that it stands on, and what it says of callers' mistakes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "isthmus/c.h"
#include "isthmus/codec.h"
#include "isthmus/outer.h"

namespace isthmus::this_file {
namespace {

/// Frees what the library gave.
struct Text {
  ~Text() { isthmus_text_free(text); }
  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(text); }
  char* text = nullptr;
};

struct Failure {
  std::string text, kind, diagnostics;
  int exit_code = 0;
};

/// What went wrong, freed; of a success all empty.
Failure failure(isthmus_error* error) {
  if (error == nullptr) return {};
  Failure said{.text = isthmus_error_text(error),
               .kind = isthmus_error_kind(error),
               .diagnostics = isthmus_error_diagnostics(error),
               .exit_code = isthmus_error_exit_code(error)};
  isthmus_error_free(error);
  return said;
}

std::vector<float> waves(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::sin(0.37f * static_cast<float>(i)) * static_cast<float>(i % 7);
  return values;
}

TEST(CInterface, TablesAreThoseOfTheLibrary) {
  Text listed_methods, listed_codecs, listed_keys;
  ASSERT_EQ(failure(isthmus_methods(&listed_methods.text)).text, "");
  ASSERT_EQ(failure(isthmus_codecs(&listed_codecs.text)).text, "");
  ASSERT_EQ(failure(isthmus_keys(&listed_keys.text)).text, "");
  EXPECT_EQ(listed_methods.json().size(), methods().size());
  EXPECT_EQ(listed_methods.json().front()["name"], methods().front().name);
  EXPECT_EQ(listed_codecs.json().back()["bits_per_value"], codecs().back().bits_per_value);
  EXPECT_GT(listed_keys.json().size(), 100u);
  EXPECT_EQ(isthmus_abi(), ISTHMUS_ABI);
}

TEST(CInterface, EveryCodecGivesTheBytesOfTheCppOne) {
  const std::vector<float> values = waves(kTileValues * 2 + 77);
  for (const CodecInfo& info : codecs()) {
    isthmus_codec* made = nullptr;
    ASSERT_EQ(failure(isthmus_codec_new(info.name.c_str(), &made)).text, "");
    const auto codec = make_codec(info.name);
    EXPECT_EQ(isthmus_codec_name(made), codec->name());
    EXPECT_EQ(isthmus_codec_lossless(made), codec->lossless()) << info.name;
    EXPECT_EQ(isthmus_codec_sparse(made), codec->sparse()) << info.name;
    const isthmus_encode_key key{
        .size = sizeof(isthmus_encode_key), .seed = 9, .tile = 3, .worker = 2};
    std::vector<std::uint8_t> bytes(isthmus_codec_bytes(made, values.size()));
    ASSERT_EQ(failure(isthmus_codec_encode(made, values.data(), values.size(), &key, bytes.data(),
                                           bytes.size()))
                  .text,
              "");
    const Encoded expected = encode(*codec, values, {.seed = 9, .worker = 2, .tile = 3});
    ASSERT_EQ(bytes.size(), expected.bytes.size()) << info.name;
    EXPECT_EQ(0, std::memcmp(bytes.data(), expected.bytes.data(), bytes.size())) << info.name;
    std::vector<float> decoded(values.size()), wanted(values.size()), sum(values.size(), 1);
    ASSERT_EQ(failure(isthmus_codec_decode(made, bytes.data(), bytes.size(), decoded.data(),
                                           decoded.size()))
                  .text,
              "");
    ASSERT_TRUE(decode(*codec, expected.bytes, wanted));
    EXPECT_EQ(decoded, wanted) << info.name;
    ASSERT_EQ(
        failure(isthmus_codec_decode_add(made, bytes.data(), bytes.size(), sum.data(), sum.size()))
            .text,
        "");
    EXPECT_EQ(sum[5], 1 + wanted[5]) << info.name;
    isthmus_codec_free(made);
  }
}

TEST(CInterface, MistakesAreErrorsThatNameTheThing) {
  isthmus_codec* made = nullptr;
  const Failure unknown = failure(isthmus_codec_new("int9", &made));
  EXPECT_EQ(unknown.kind, "config");
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_NE(unknown.text.find("int9"), std::string::npos) << unknown.text;
  EXPECT_EQ(made, nullptr) << "an output was written by a failure";
  EXPECT_NE(failure(isthmus_codec_new(nullptr, &made)).text.find("spelling is NULL"),
            std::string::npos);
  EXPECT_NE(failure(isthmus_methods(nullptr)).text.find("json is NULL"), std::string::npos);

  ASSERT_EQ(failure(isthmus_codec_new("int8", &made)).text, "");
  const std::vector<float> values = waves(10);
  std::vector<std::uint8_t> bytes(isthmus_codec_bytes(made, 10));
  EXPECT_NE(failure(isthmus_codec_encode(made, values.data(), 10, nullptr, bytes.data(), 3))
                .text.find("out_bytes = 3"),
            std::string::npos);
  const isthmus_encode_key no_size{.size = 0, .seed = 0, .tile = 0, .worker = 0};
  EXPECT_NE(
      failure(isthmus_codec_encode(made, values.data(), 10, &no_size, bytes.data(), bytes.size()))
          .text.find("size = 0"),
      std::string::npos);
  const isthmus_encode_key far{
      .size = sizeof(isthmus_encode_key), .seed = 0, .tile = 0, .worker = 1u << 22};
  EXPECT_NE(failure(isthmus_codec_encode(made, values.data(), 10, &far, bytes.data(), bytes.size()))
                .text.find("worker = 4194304"),
            std::string::npos);
  std::vector<float> out(10);
  EXPECT_EQ(
      failure(isthmus_codec_decode(made, bytes.data(), bytes.size() - 1, out.data(), 10)).kind,
      "run");
  EXPECT_EQ(failure(isthmus_codec_decode(made, nullptr, 0, nullptr, 0)).text, "") << "of nothing";
  isthmus_codec_free(made);
  isthmus_codec_free(nullptr);
  isthmus_text_free(nullptr);
  isthmus_error_free(nullptr);
}

TEST(CInterface, ConfigurationsComeWithAllTheirDiagnostics) {
  Text json;
  const Failure missing = failure(isthmus_config_load("no/such.toml", nullptr, 0, &json.text));
  EXPECT_EQ(missing.kind, "environment");
  EXPECT_EQ(failure(isthmus_toml_to_json("a = [1, 2.5]\nb.c = 'x'", "here", &json.text)).text, "");
  EXPECT_EQ(json.json(), (nlohmann::json{{"a", {1, 2.5}}, {"b", {{"c", "x"}}}}));
  Text none;
  const Failure broken = failure(isthmus_toml_to_json("a = \n", "here.toml", &none.text));
  EXPECT_EQ(broken.kind, "config");
  EXPECT_NE(broken.text.find("here.toml:1"), std::string::npos) << broken.text;
}

}  // namespace
}  // namespace isthmus::this_file
