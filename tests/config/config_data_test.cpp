// SPDX-License-Identifier: Apache-2.0
// [data]: several sources in their shares, and windows whose documents stay apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "config_fixture.h"

namespace isthmus::this_file {
namespace {

constexpr std::string_view kMixed = R"([data]
mix = { web = 0.8, code = 0.2 }
[data.sources]
web = "tokens:web/*.bin:u32"
code = "text:code.txt:tokenizer=bpe"
[train]
steps = 100
global_batch = "1280 tok"
)";

/// Codes and words of what is wrong.
std::string wrong_with(std::string_view text, const std::vector<std::string>& overrides = {}) {
  std::string all;
  for (const Diagnostic& each : diagnostics_of(text, overrides)) {
    all += each.code + " " + each.message + " " + each.hint + "\n";
  }
  return all;
}

/// `text` with one line in the place of another.
std::string with(std::string_view text, std::string_view line, std::string_view other) {
  std::string changed(text);
  const std::size_t at = changed.find(line);
  EXPECT_NE(at, std::string::npos) << line;
  return changed.replace(at, line.size(), other);
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n in " << text;
  }
}

TEST(ConfigMix, NamesSourcesAndTheirShares) {
  const Config config = load(kMixed);
  EXPECT_EQ(config.data.sources,
            (NamedTexts{{"code", "text:code.txt:tokenizer=bpe"}, {"web", "tokens:web/*.bin:u32"}}));
  EXPECT_EQ(config.data.mix, (NamedReals{{"code", 0.2}, {"web", 0.8}}));
  const Config again = load(resolved_toml(config));
  EXPECT_EQ(again.data.mix, config.data.mix);
  EXPECT_EQ(again.located_sources(), config.located_sources());
  EXPECT_NE(again.data.sources, config.data.sources);  // paths are absolute
  EXPECT_EQ(config_digest(again), config_digest(config));
  EXPECT_EQ(load(with(kMixed, "web = 0.8", "web = 3")).data.mix.back().second, 3);
  const Config set = load(kMixed, {"data.mix={web=1,code=1}"});
  EXPECT_EQ(set.data.mix, (NamedReals{{"code", 1}, {"web", 1}}));
}

TEST(ConfigMix, SteersTheTrajectoryWhilePlacesOfFilesDoNot) {
  const Config config = load(kMixed);
  const Config other = load(kMixed, {"data.mix={web=1,code=1}"});
  EXPECT_NE(config_digest(other), config_digest(config));
  EXPECT_NE(outcome_digest(other), outcome_digest(config));
  const Config moved = load(with(kMixed, "web/", "elsewhere/"));
  EXPECT_EQ(config_digest(moved), config_digest(config));
  EXPECT_EQ(outcome_digest(moved), outcome_digest(config));
  EXPECT_EQ(common_values(moved), common_values(config));
  EXPECT_NE(common_values(other), common_values(config));
}

TEST(ConfigMix, RefusesSharesThatAreNone) {
  for (const char* share : {"0", "-0.2", "nan", "inf", "\"much\"", "true"}) {
    const std::string found =
        wrong_with(with(kMixed, "code = 0.2", std::string("code = ") + share));
    expect_words(found, {"data.mix.code", "E-"});
    EXPECT_EQ(std::count(found.begin(), found.end(), '\n'), 1) << found;
  }
}

TEST(ConfigMix, RefusesNamesThatDoNotFit) {
  expect_words(
      wrong_with(with(kMixed, "code = 0.2", "cod = 0.2")),
      {"names 'cod', which is no source", "did you mean 'code'?", "no share of source 'code'"});
  expect_words(wrong_with(with(kMixed, ", code = 0.2", "")), {"no share of source 'code'"});
  expect_words(wrong_with(with(kMixed, "mix = { web = 0.8, code = 0.2 }", "")),
               {"'data.mix' is missing", "code = 1, web = 1"});
  expect_words(wrong_with(with(kMixed, "web = \"tokens", "\"w b\" = \"tokens")),
               {"letters, digits"});
  expect_words(wrong_with(with(kMixed, "text:code", "txt:code")),
               {"data.sources.code", "did you mean \"text:...\"?"});
  expect_words(wrong_with(with(kMixed, "mix = {", "source = \"text:a.txt\"\nmix = {")),
               {"E-CONFLICT", "'data.sources' together with 'data.source'"});
  expect_words(wrong_with(kMinimal, {"data.mix={a=1}"}), {"'data.mix' without 'data.sources'"});
  expect_words(wrong_with(R"([data]
sources = { web = "text:a.txt" }
mix = { web = 1 }
[train]
steps = 100
global_batch = "1280 tok"
)"),
               {"names one source, 'web'", "write source = \"text:a.txt\""});
  expect_words(wrong_with(with(kMixed, "[data.sources]\n", "[data.sources]\nx = 3\n")),
               {"data.sources.x"});
}

TEST(ConfigPack, KeepsDocumentsApartWhereItIsAskedTo) {
  const Config plain = load_minimal();
  EXPECT_EQ(plain.data.pack, "stream");
  const Config packed = load_minimal({"data.pack=documents", "data.eos=10"});
  EXPECT_EQ(packed.data.pack, "documents");
  EXPECT_EQ(packed.data.eos, 10);
  EXPECT_NE(config_digest(packed), config_digest(plain));
  EXPECT_NE(config_digest(packed), config_digest(load_minimal({"data.pack=documents"})));
  // Runs from before the key have the digests of those that do not use it.
  EXPECT_EQ(config_digest(load_minimal({"data.pack=stream"})), config_digest(plain));
  const Config again = load(resolved_toml(packed));
  EXPECT_EQ(again.data.pack, "documents");
  EXPECT_EQ(again.data.eos, 10);
}

TEST(ConfigPack, RefusesWhatHasNoEffectOrNoSense) {
  expect_words(wrong_with(kMinimal, {"data.eos=10"}), {"E-KEY-UNUSED", "data.pack = documents"});
  expect_words(wrong_with(kMinimal, {"data.pack=docs"}), {"stream, documents"});
  expect_words(wrong_with(kMinimal, {"data.pack=documents", "data.eos=256"}),
               {"data.eos = 256", "model.vocab = 256"});
  expect_words(wrong_with(kMinimal, {"data.pack=documents", "data.eos=-1"}), {"data.eos = -1"});
}

TEST(ConfigPack, IsRefusedOnDevicesByName) {
  expect_words(
      wrong_with(kMinimal, {"data.pack=documents", "data.eos=10", "train.device=cuda"}),
      {"E-CONFLICT", "train.device", "data.pack = \"documents\"", "train.device = \"cpu\""});
  EXPECT_EQ(wrong_with(kMinimal, {"data.pack=documents", "data.eos=10", "train.device=auto"}), "");
}

TEST(ConfigObjective, PacksConversationsWhole) {
  const Config plain = load_minimal();
  EXPECT_EQ(plain.train.objective, "text");
  const Config text = load_minimal({"train.objective=text"});
  EXPECT_EQ(config_digest(text), config_digest(plain));
  expect_words(wrong_with(kMinimal, {"train.objective=sft"}), {"E-CONFLICT", "'model.init'"});
  expect_words(wrong_with(kMinimal, {"train.objective=sft", "data.pack=stream"}),
               {"E-CONFLICT", "data.pack", "leave data.pack out"});
  expect_words(wrong_with(kMinimal, {"train.objective=dpo"}), {"text, sft"});
  expect_words(wrong_with(kMinimal, {"data.over_long=drop"}),
               {"E-KEY-UNUSED", "train.objective = sft"});
  expect_words(wrong_with(kMinimal, {"data.skip_bad=true"}), {"E-KEY-UNUSED"});
  expect_words(wrong_with(kMinimal, {"train.objective=sft", "data.eos=3"}), {"data.eos"});
  expect_words(wrong_with(kMinimal, {"train.objective=sft", "train.device=cuda"}),
               {"train.objective = \"sft\"", "train.device = \"cpu\""});
}

}  // namespace
}  // namespace isthmus::this_file
