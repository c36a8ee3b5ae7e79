// SPDX-License-Identifier: Apache-2.0
#include "data/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/temporary_directory.h"
#include "isthmus/errors.h"

namespace isthmus::this_file {
namespace {

using testing::AllOf;
using testing::HasSubstr;

double entropy_of(const std::vector<double>& p) {
  double sum = 0;
  for (const double x : p) sum -= x > 0 ? x * std::log(x) : 0;
  return sum;
}

TEST(Synth, HasTheClosedFormEntropies) {
  EXPECT_DOUBLE_EQ(entropy_rate_nats(parse_synth("synth:uniform:vocab=32")), std::log(32.0));
  // p = 2/3, 1/3.
  EXPECT_NEAR(entropy_rate_nats(parse_synth("zipf:vocab=2")),
              std::log(3.0) - 2.0 / 3 * std::log(2.0), 1e-15);
  // Groups of 1 and 2: ln 2 for the group, half of H(4/5, 1/5) for the rank.
  EXPECT_NEAR(entropy_rate_nats(parse_synth("markov2:vocab=3")),
              std::log(2.0) + 0.5 * entropy_of({0.8, 0.2}), 1e-15);
}

TEST(Synth, EveryContextHasTheStatedEntropyAndSumsToOne) {
  for (const char* name : {"markov1:vocab=11", "markov2:vocab=32", "markov3:vocab=7,seed=5"}) {
    const SynthSpec spec = parse_synth(name);
    const auto v = static_cast<std::uint16_t>(spec.vocab);
    for (std::uint16_t a = 0; a < v; ++a) {
      const std::vector<std::uint16_t> context = {static_cast<std::uint16_t>(v - 1), 3, a};
      const std::vector<double> p = synth_distribution(spec, context);
      double sum = 0;
      for (const double x : p) sum += x;
      EXPECT_NEAR(sum, 1, 1e-12) << name;
      EXPECT_NEAR(entropy_of(p), entropy_rate_nats(spec), 1e-12) << name;
    }
  }
}

// The mean of -ln p(x_t | context) over N tokens has expectation H; its standard deviation is that
// of one token (< 2.5 nats here) over sqrt(N). Five of them are allowed.
TEST(Synth, GeneratedTextHasTheStatedEntropy) {
  for (const char* name : {"uniform:vocab=17", "zipf:vocab=50,exponent=1.2", "markov1:vocab=20",
                           "markov2:vocab=32", "markov3:vocab=32"}) {
    SynthSpec spec = parse_synth(name);
    spec.tokens = 40000;
    const std::vector<std::uint16_t> text = generate(spec);
    ASSERT_EQ(text.size(), 40000U);
    double sum = 0;
    const auto order = static_cast<std::size_t>(spec.order);
    for (std::size_t t = order; t < text.size(); ++t) {
      sum -= std::log(synth_distribution(spec, std::span(text).first(t))[text[t]]);
    }
    EXPECT_NEAR(sum / static_cast<double>(text.size() - order), entropy_rate_nats(spec),
                5 * 2.5 / std::sqrt(40000.0))
        << name;
  }
}

TEST(Synth, MarkovContextsMatterAndAreHeavyTailed) {
  const SynthSpec spec = parse_synth("markov2:vocab=32,tokens=200k");
  const std::vector<std::uint16_t> text = generate(spec);
  std::map<std::uint16_t, double> unigram;
  for (const std::uint16_t x : text) unigram[x] += 1.0 / static_cast<double>(text.size());
  std::vector<double> p;
  for (const auto& [id, share] : unigram) p.push_back(share);
  // A model without context is far from the floor; the commonest symbol has 1/5, the rarest little.
  EXPECT_GT(entropy_of(p), entropy_rate_nats(spec) + 0.5);
  EXPECT_NEAR(unigram[0], 0.2, 0.01);
  EXPECT_LT(unigram[31], 0.05);
}

TEST(Synth, IsAFunctionOfTheSpelling) {
  EXPECT_EQ(generate(parse_synth("markov2:tokens=100")),
            generate(parse_synth("markov2:tokens=100")));
  EXPECT_NE(generate(parse_synth("markov2:tokens=100")),
            generate(parse_synth("markov2:tokens=100,seed=1")));
  auto longer = generate(parse_synth("markov2:tokens=200"));
  longer.resize(100);
  EXPECT_EQ(longer, generate(parse_synth("markov2:tokens=100")));
}

TEST(Synth, NamesWhatIsWrongWithASpelling) {
  const auto error = [](const char* text) {
    return message_of<ConfigError>([&] { (void)parse_synth(text); });
  };
  EXPECT_THAT(error("synth:markov9"),
              AllOf(HasSubstr("synth:markov9"), HasSubstr("uniform, zipf")));
  EXPECT_THAT(error("synth:"), HasSubstr("no such source"));
  EXPECT_THAT(error("zipf:size=3"), HasSubstr("unknown key \"size\""));
  EXPECT_THAT(error("zipf:vocab"), HasSubstr("not of the form"));
  EXPECT_THAT(error("zipf:vocab=x"), HasSubstr("must be a count"));
  EXPECT_THAT(error("zipf:vocab=1"), HasSubstr("from 2 to 65536"));
  EXPECT_THAT(error("zipf:tokens=0"), HasSubstr("tokens = 0"));
  EXPECT_THAT(error("zipf:tokens=99999999G"), HasSubstr("tokens = "));
  EXPECT_THAT(error("zipf:exponent=nan"), HasSubstr("exponent"));
  EXPECT_THAT(error("uniform:exponent=1"), HasSubstr("exponent"));
  EXPECT_THAT(error("markov8:vocab=65536"), HasSubstr("2^63"));
  EXPECT_EQ(error("markov8:vocab=64,tokens=1Mi,seed=3"), "");
}

}  // namespace
}  // namespace isthmus::this_file
