// SPDX-License-Identifier: Apache-2.0
// The C interface against the C++ one that it stands on, and what it says of callers' mistakes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
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
  EXPECT_NE(failure(isthmus_kill_at("kill@nowhere:1")).text.find("points:"), std::string::npos);

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

/// As a later header would have it.
struct LaterKey {
  isthmus_encode_key known;
  std::uint64_t more;
};

TEST(CInterface, StructsOfOtherVersionsAreTakenAsFarAsTheyAreKnown) {
  isthmus_codec* codec = nullptr;
  ASSERT_EQ(failure(isthmus_codec_new("int4:64:rounding=stochastic", &codec)).text, "");
  const std::vector<float> values = waves(kTileValues + 9);
  using Bytes = std::vector<std::uint8_t>;
  Failure said;
  const auto encoded = [&](const isthmus_encode_key* key) {
    Bytes bytes(isthmus_codec_bytes(codec, values.size()));
    said = failure(
        isthmus_codec_encode(codec, values.data(), values.size(), key, bytes.data(), bytes.size()));
    return bytes;
  };
  const isthmus_encode_key none{
      .size = sizeof(isthmus_encode_key), .seed = 5, .tile = 3, .worker = 0};
  const isthmus_encode_key whole{
      .size = sizeof(isthmus_encode_key), .seed = 5, .tile = 3, .worker = 2};
  const Bytes without_worker = encoded(&none), with_worker = encoded(&whole);
  ASSERT_NE(without_worker, with_worker);
  isthmus_encode_key earlier = whole;  // of a header without `worker`, whose place is not read
  earlier.size = offsetof(isthmus_encode_key, worker);
  EXPECT_EQ(encoded(&earlier), without_worker);
  EXPECT_EQ(said.text, "");
  LaterKey later{.known = whole, .more = 0};
  later.known.size = sizeof later;
  EXPECT_EQ(encoded(&later.known), with_worker);
  EXPECT_EQ(said.text, "");
  later.more = 1;
  (void)encoded(&later.known);
  EXPECT_EQ(said.kind, "config");
  EXPECT_NE(said.text.find("isthmus_encode_key.size"), std::string::npos) << said.text;
  EXPECT_NE(said.text.find("one of them is set"), std::string::npos) << said.text;
  isthmus_encode_key no_size = whole;
  no_size.size = std::size_t{1} << 40;
  (void)encoded(&no_size);
  EXPECT_NE(said.text.find("must be sizeof"), std::string::npos) << said.text;
  isthmus_codec_free(codec);
}

/// As an earlier header would have it: without `layer`.
struct EarlierParameter {
  std::size_t size;
  const char* name;
  const std::int64_t* shape;
  std::size_t dimensions;
  float* values;
};
static_assert(sizeof(EarlierParameter) == offsetof(isthmus_parameter, layer));
struct LaterRequest {
  isthmus_request known;
  std::uint64_t more;
};

// An array has the caller's distances between its elements, and nothing is written beyond them.
TEST(CInterface, ARunGoesThroughStructsOfOtherVersions) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "c_interface_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "run.toml").string(), out = (folder / "run").string();
  std::ofstream(file) << "[run]\nworkers = 1\n[train]\nsteps = 3\n[outer]\nmethod = "
                         "\"localsgd\"\nH = 2\n";
  isthmus_session_options options{};
  options.size = offsetof(isthmus_session_options, resume);
  options.config = file.c_str();
  options.out = out.c_str();
  options.resume = "no member of an earlier header";
  isthmus_session* session = nullptr;
  ASSERT_EQ(failure(isthmus_session_new(&options, &session)).text, "");
  float first[2] = {1, 2}, second[3] = {3, 4, 5};
  const std::int64_t shapes[2] = {2, 3};
  const EarlierParameter parameters[2] = {{.size = sizeof(EarlierParameter),
                                           .name = "a",
                                           .shape = &shapes[0],
                                           .dimensions = 1,
                                           .values = first},
                                          {.size = sizeof(EarlierParameter),
                                           .name = "b",
                                           .shape = &shapes[1],
                                           .dimensions = 1,
                                           .values = second}};
  ASSERT_EQ(failure(isthmus_session_worker(
                        session, 0, reinterpret_cast<const isthmus_parameter*>(parameters), 2))
                .text,
            "");
  ASSERT_EQ(failure(isthmus_session_start(session)).text, "");
  int steps = 0;
  for (bool over = false; !over;) {
    isthmus_request request{};
    request.size = offsetof(isthmus_request, wrote);
    request.wrote = 77;
    LaterRequest later{};
    later.known.size = sizeof later;
    isthmus_request* const asked = steps == 1 ? &later.known : &request;
    const Failure said = failure(isthmus_next(session, 0, 60'000'000'000, asked));
    ASSERT_EQ(said.text, "");
    EXPECT_EQ(request.wrote, 77) << "written beyond the caller's struct";
    ASSERT_NE(asked->kind, ISTHMUS_NOTHING);
    over = asked->kind == ISTHMUS_END;
    isthmus_step step{};
    step.size = offsetof(isthmus_step, learning_rate);
    step.loss = 1;
    step.tokens = 4;
    step.learning_rate = -5;
    step.skipped = 1;
    if (over) continue;
    const bool trains = asked->kind == ISTHMUS_TRAIN;
    steps += trains ? 1 : 0;
    if (trains) first[0] += 1;
    ASSERT_EQ(failure(isthmus_answer(session, 0, trains ? &step : nullptr)).text, "");
  }
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(first[0], 4);
  EXPECT_EQ(isthmus_session_free(session), 1);
}

// Syncs after every 20th step; between them the caller need not wait for the run's thread.
TEST(CInterface, StepsUpToTheNextSyncFollowAtOnce) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "c_interface_ahead";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "run.toml").string(), out = (folder / "run").string();
  std::ofstream(file) << "[run]\nworkers = 1\n[train]\nsteps = 60\n[outer]\nmethod = "
                         "\"localsgd\"\nH = 20\n";
  isthmus_session_options options{};
  options.size = sizeof options;
  options.config = file.c_str();
  options.out = out.c_str();
  isthmus_session* session = nullptr;
  ASSERT_EQ(failure(isthmus_session_new(&options, &session)).text, "");
  float values[2] = {1, 2};
  const std::int64_t shape = 2;
  const isthmus_parameter parameter{.size = sizeof(isthmus_parameter),
                                    .name = "a",
                                    .shape = &shape,
                                    .dimensions = 1,
                                    .values = values,
                                    .layer = -1};
  ASSERT_EQ(failure(isthmus_session_worker(session, 0, &parameter, 1)).text, "");
  ASSERT_EQ(failure(isthmus_session_start(session)).text, "");
  std::int64_t step = 0, until = 0;
  int followed = 0;
  isthmus_request request{};
  bool there = false;  // the next request came with the last answer
  for (;;) {
    const bool at_once = step < until;
    if (!std::exchange(there, false)) {
      request = {};
      request.size = sizeof request;
      ASSERT_EQ(failure(isthmus_next(session, 0, at_once ? 0 : 60'000'000'000, &request)).text, "");
    }
    if (request.kind == ISTHMUS_END) break;
    if (request.kind != ISTHMUS_TRAIN) {
      ASSERT_FALSE(at_once) << request.kind << " after step " << step;
      ASSERT_EQ(failure(isthmus_answer(session, 0, nullptr)).text, "");
      continue;
    }
    EXPECT_EQ(request.step, step + 1);
    step = request.step;
    if (at_once) {
      ++followed;
      EXPECT_EQ(request.until, until);
      EXPECT_EQ(request.wrote, 0);
    }
    until = request.until;
    EXPECT_GE(until, step);
    EXPECT_LE(until, (step + 19) / 20 * 20) << "step " << step;
    float outer[2] = {};
    ASSERT_EQ(failure(isthmus_outer_values(session, 0, 0, outer, 2)).text, "");
    const std::int64_t synced = (step - 1) / 20 * 20;
    EXPECT_EQ(outer[0], static_cast<float>(1 + synced)) << "step " << step;
    for (float& value : values) value += 1;
    isthmus_step said{};
    said.size = sizeof said;
    said.loss = static_cast<double>(step);
    said.tokens = 1;
    if (step % 2 == 0) {
      ASSERT_EQ(failure(isthmus_answer(session, 0, &said)).text, "");
      continue;
    }
    said.tokens = -1;  // refused, and the request stays open
    EXPECT_EQ(failure(isthmus_answer_next(session, 0, &said, 0, &request)).text,
              "isthmus_step.tokens = -1: must be >= 0");
    said.tokens = 1;
    EXPECT_EQ(failure(isthmus_answer_next(session, 0, &said, 0, nullptr)).text,
              "isthmus_answer_next: request is NULL: it must point to something");
    const std::int64_t wait = step < until ? 0 : 60'000'000'000;
    ASSERT_EQ(failure(isthmus_answer_next(session, 0, &said, wait, &request)).text, "");
    there = true;
  }
  EXPECT_EQ(step, 60);
  EXPECT_GT(followed, 30);
  EXPECT_EQ(values[0], 61);
  for (float& value : values) value = 7;  // the caller's own: the outer ones are the run's
  float outer[2] = {};
  EXPECT_EQ(failure(isthmus_outer_values(session, 0, 0, outer, 2)).text, "");
  EXPECT_EQ(outer[0], 61);
  EXPECT_EQ(outer[1], 62);
  EXPECT_EQ(failure(isthmus_outer_values(session, 0, 0, outer, 3)).text,
            "isthmus_outer_values: count = 3: must be 2, the values of parameter 'a'");
  EXPECT_EQ(failure(isthmus_outer_values(session, 0, 1, outer, 2)).text,
            "isthmus_outer_values: parameter = 1: must be below 1, the number of parameters");
  std::filesystem::remove_all(folder / "run/ckpt");
  EXPECT_EQ(failure(isthmus_outer_values(session, 0, 0, outer, 2)).text, "") << "read once";
  EXPECT_EQ(isthmus_session_free(session), 1);
  std::ifstream lines(folder / "run/metrics.jsonl");
  std::string line;
  std::int64_t seen = 0;
  while (std::getline(lines, line)) {
    const auto record = nlohmann::json::parse(line);
    if (record.value("k", "") != "train") continue;
    ++seen;
    EXPECT_EQ(record["loss"], seen) << line;
  }
  EXPECT_EQ(seen, 60);
}

TEST(CInterface, OptionsAndLossesThatAreNoneAreRefused) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "c_interface_losses";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "run.toml").string(), out = (folder / "run").string();
  std::ofstream(file) << "[run]\nworkers = 1\n[train]\nsteps = 4\n[eval]\nevery = 2\n[outer]\n"
                         "method = \"localsgd\"\nH = 2\n";
  isthmus_session_options options{};
  options.size = sizeof options;
  options.config = file.c_str();
  options.out = out.c_str();
  isthmus_session* session = nullptr;
  for (const std::int64_t parts : {std::int64_t{-2}, std::int64_t{1'000'001}, INT64_MAX}) {
    options.evaluation_parts = parts;
    EXPECT_EQ(failure(isthmus_session_new(&options, &session)).text,
              fmt::format("isthmus_session_options.evaluation_parts = {}: must be in -1 .. 1000000",
                          parts));
  }
  options.evaluation_parts = 2;
  options.resume = "";
  EXPECT_THAT(failure(isthmus_session_new(&options, &session)).text,
              testing::HasSubstr("resume = \"\": must be \"never\", \"auto\""));
  options.resume = nullptr;
  ASSERT_EQ(failure(isthmus_session_new(&options, &session)).text, "");
  float values[2] = {1, 2};
  const std::int64_t shape = 2;
  const isthmus_parameter parameter{.size = sizeof(isthmus_parameter),
                                    .name = "a",
                                    .shape = &shape,
                                    .dimensions = 1,
                                    .values = values,
                                    .layer = -1};
  ASSERT_EQ(failure(isthmus_session_worker(session, 0, &parameter, 1)).text, "");
  ASSERT_EQ(failure(isthmus_session_start(session)).text, "");
  int refused = 0;
  for (;;) {
    isthmus_request request{};
    request.size = sizeof request;
    ASSERT_EQ(failure(isthmus_next(session, 0, 60'000'000'000, &request)).text, "");
    if (request.kind == ISTHMUS_END) break;
    if (request.kind == ISTHMUS_EVALUATE) {
      const std::vector<double> sums(request.part_count, 3.0);
      std::vector<std::int64_t> tokens(request.part_count, 2);
      if (tokens.empty()) {
        ASSERT_EQ(failure(isthmus_answer_losses(session, 0, nullptr, nullptr, 0)).text, "");
        continue;
      }
      tokens.back() = -5;
      EXPECT_EQ(
          failure(isthmus_answer_losses(session, 0, sums.data(), tokens.data(), tokens.size()))
              .text,
          fmt::format("isthmus_answer_losses: tokens[{}] = -5: must be 0 or more",
                      tokens.size() - 1));
      ++refused;
      tokens.back() = 2;
      ASSERT_EQ(
          failure(isthmus_answer_losses(session, 0, sums.data(), tokens.data(), tokens.size()))
              .text,
          "");
      continue;
    }
    isthmus_step said{};
    said.size = sizeof said;
    said.loss = 1;
    said.tokens = 1;
    ASSERT_EQ(
        failure(isthmus_answer(session, 0, request.kind == ISTHMUS_TRAIN ? &said : nullptr)).text,
        "");
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(isthmus_session_free(session), 1);
}

TEST(CInterface, RanksOfASiteAreRefusedWhereTheyAreNone) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "c_interface_ranks";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "run.toml").string();
  std::ofstream(file) << "[train]\nsteps = 4\n[outer]\nmethod = \"diloco\"\nplacement = \"ranks\"\n"
                         "[net]\nplaintext = true\n[[site]]\nname = \"east\"\n"
                         "address = \"127.0.0.1:1\"\n";
  isthmus_session_options options{};
  options.size = sizeof options;
  options.config = file.c_str();
  const isthmus_ranks_call call = [](void*, std::int32_t, std::int32_t, void*, std::size_t) {
    return std::int32_t{1};
  };
  isthmus_session* session = nullptr;
  ASSERT_EQ(failure(isthmus_session_new(&options, &session)).text, "");
  EXPECT_STREQ(isthmus_session_placement(session), "ranks");
  EXPECT_EQ(failure(isthmus_session_ranks(session, 0, 2, call, nullptr)).text,
            "isthmus_session_ranks: the ranks of a site need isthmus_session_options.site");
  EXPECT_EQ(isthmus_session_free(session), 1);
  options.site = "east";
  ASSERT_EQ(failure(isthmus_session_new(&options, &session)).text, "");
  EXPECT_EQ(failure(isthmus_session_ranks(session, 2, 2, call, nullptr)).text,
            "isthmus_session_ranks: rank 2 of 2: must be in 0 .. ranks - 1, of 1 to 256 ranks");
  EXPECT_EQ(failure(isthmus_session_ranks(session, 0, 2, nullptr, nullptr)).text,
            "isthmus_session_ranks: call is null");
  EXPECT_EQ(failure(isthmus_ranks(session, 0)).text,
            "isthmus_ranks: this session has no isthmus_session_ranks");
  ASSERT_EQ(failure(isthmus_session_ranks(session, 1, 2, call, nullptr)).text, "");
  EXPECT_EQ(failure(isthmus_ranks(session, 0)).text,
            "isthmus_ranks: isthmus_session_worker comes first");
  const std::int64_t shape = 2;
  const isthmus_parameter parameter{.size = sizeof(isthmus_parameter),
                                    .name = "a",
                                    .shape = &shape,
                                    .dimensions = 1,
                                    .values = nullptr,
                                    .layer = -1};
  ASSERT_EQ(failure(isthmus_session_worker(session, 0, &parameter, 1)).text, "");
  EXPECT_EQ(failure(isthmus_session_start(session)).text,
            "isthmus_session_start: rank 0 of a site has its run");
  EXPECT_EQ(failure(isthmus_ranks(session, 0)).text,
            "a collective between the ranks of this site has failed (broadcast of 80 bytes): the "
            "caller says why");
  EXPECT_EQ(isthmus_session_free(session), 1);
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
