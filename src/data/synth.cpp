// SPDX-License-Identifier: Apache-2.0
#include "data/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::string_view kKnown = "uniform, zipf, markov1, markov2, ... markov8";
constexpr std::int64_t kMaxVocab = 65536;  // ids are kept as u16
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 32;
constexpr int kMaxOrder = 8;

[[noreturn]] void bad(std::string_view spelling, const std::string& rule) {
  throw ConfigError(fmt::format("data.source = \"synth:{}\": {}", spelling, rule));
}

// A count with an optional decimal or binary suffix: 4096, 4k, 1M, 64Ki.
std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return {};
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  const std::pair<std::string_view, std::int64_t> kSuffixes[] = {
      {"", 1},         {"k", 1000},     {"M", 1'000'000}, {"G", 1'000'000'000},
      {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}};
  for (const auto& [name, factor] : kSuffixes) {
    if (suffix == name && !__builtin_mul_overflow(value, factor, &value)) return value;
  }
  return {};
}

void set_key(SynthSpec& spec, std::string_view key, std::string_view value,
             std::string_view spelling) {
  if (key == "exponent" && spec.kind == SynthSpec::Kind::kZipf) {
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), spec.exponent);
    if (error != std::errc() || end != value.data() + value.size() ||
        !(spec.exponent >= 0 && spec.exponent <= 16)) {
      bad(spelling, fmt::format("exponent = {}: must be a number from 0 to 16", value));
    }
    return;
  }
  const auto count = parse_count(value);
  if (!count)
    bad(spelling, fmt::format("{} = {}: must be a count (4096, 4k, 1M, 64Ki)", key, value));
  if (key == "vocab") {
    if (*count < 2 || *count > kMaxVocab) {
      bad(spelling, fmt::format("vocab = {}: must be from 2 to {}", *count, kMaxVocab));
    }
    spec.vocab = *count;
  } else if (key == "tokens") {
    if (*count < 1 || *count > kMaxTokens) {
      bad(spelling, fmt::format("tokens = {}: must be from 1 to {}", *count, kMaxTokens));
    }
    spec.tokens = *count;
  } else if (key == "seed") {
    spec.seed = static_cast<std::uint64_t>(*count);
  } else {
    bad(spelling, fmt::format("unknown key \"{}\"; keys are vocab, tokens, seed{}", key,
                              spec.kind == SynthSpec::Kind::kZipf ? ", exponent" : ""));
  }
}

struct Group {
  std::int64_t first = 0;
  std::int64_t size = 0;
  std::vector<double> rank;        // p(r)
  std::vector<double> cumulative;  // P(rank <= r)
};

std::vector<double> running_sum(const std::vector<double>& p) {
  std::vector<double> sum(p.size());
  double total = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum[i] = total += p[i];
  return sum;
}

std::int64_t draw(const std::vector<double>& cumulative, double u) {
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end() - 1, u);
  return found - cumulative.begin();
}

double entropy(const std::vector<double>& p) {
  double sum = 0;
  for (const double x : p) sum -= x > 0 ? x * std::log(x) : 0;
  return sum;
}

std::vector<double> normalised(std::vector<double> weights) {
  double sum = 0;
  for (const double w : weights) sum += w;
  for (double& w : weights) w /= sum;
  return weights;
}

std::vector<Group> markov_groups(std::int64_t vocab) {
  std::vector<Group> groups;
  for (std::int64_t first = 0, size = 1; first < vocab; size *= 2) {
    const std::int64_t left = vocab - first;
    // The last group takes all that is left once the next, of twice the size, would not be full.
    Group group{first, left < 3 * size ? left : size, {}, {}};
    std::vector<double> weights(static_cast<std::size_t>(group.size));
    for (std::size_t r = 0; r < weights.size(); ++r) {
      weights[r] = std::ldexp(1.0, -2 * static_cast<int>(std::min<std::size_t>(r, 600)));
    }
    group.rank = normalised(std::move(weights));
    group.cumulative = running_sum(group.rank);
    first += group.size;
    groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<double> zipf(const SynthSpec& spec) {
  std::vector<double> weights(static_cast<std::size_t>(spec.vocab));
  for (std::size_t x = 0; x < weights.size(); ++x) {
    weights[x] = std::pow(static_cast<double>(x + 1), -spec.exponent);
  }
  return normalised(std::move(weights));
}

// The context as one number: its tokens are the digits in base V, the latest the lowest.
std::uint64_t context_code(const SynthSpec& spec, std::span<const std::uint16_t> before) {
  std::uint64_t code = 0;
  const auto order = std::min<std::size_t>(static_cast<std::size_t>(spec.order), before.size());
  for (const std::uint16_t token : before.last(order)) {
    code = code * static_cast<std::uint64_t>(spec.vocab) + token;
  }
  return code;
}

std::int64_t shift(const Rng& rng, const Group& group, std::uint64_t context, std::size_t j) {
  // Draws of tokens use sub 0, shifts sub 1 + j: one seed, no overlap.
  return static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(group.size), context,
                                             static_cast<std::uint32_t>(1 + j)));
}

std::vector<std::uint16_t> generate_markov(const SynthSpec& spec) {
  const Rng rng{spec.seed, Stream::kSynth};
  const std::vector<Group> groups = markov_groups(spec.vocab);
  std::vector<std::uint16_t> tokens(static_cast<std::size_t>(spec.tokens));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const auto words = rng.words(t);
    const std::size_t j = static_cast<std::size_t>(std::uint64_t{words[0]} * groups.size() >> 32);
    const Group& group = groups[j];
    const std::uint64_t bits = std::uint64_t{words[3]} << 32 | words[2];
    const std::int64_t rank = draw(group.cumulative, static_cast<double>(bits >> 11) * 0x1p-53);
    const std::uint64_t context = context_code(spec, std::span(tokens).first(t));
    tokens[t] = static_cast<std::uint16_t>(group.first +
                                           (rank + shift(rng, group, context, j)) % group.size);
  }
  return tokens;
}

}  // namespace

SynthSpec parse_synth(std::string_view spelling) {
  constexpr std::string_view kPrefix = "synth:";
  if (spelling.substr(0, kPrefix.size()) == kPrefix) spelling.remove_prefix(kPrefix.size());
  const auto colon = spelling.find(':');
  const std::string_view name = spelling.substr(0, colon);
  SynthSpec spec;
  if (name == "uniform") {
    spec.kind = SynthSpec::Kind::kUniform;
  } else if (name == "zipf") {
    spec.kind = SynthSpec::Kind::kZipf;
  } else if (name.size() == 7 && name.substr(0, 6) == "markov" && name[6] >= '1' &&
             name[6] <= '0' + kMaxOrder) {
    spec.kind = SynthSpec::Kind::kMarkov;
    spec.order = name[6] - '0';
  } else {
    bad(spelling, fmt::format("there is no such source; there are {}", kKnown));
  }
  std::string_view options =
      colon == std::string_view::npos ? std::string_view() : spelling.substr(colon + 1);
  while (!options.empty()) {
    const auto comma = options.find(',');
    const std::string_view option = options.substr(0, comma);
    const auto equals = option.find('=');
    if (equals == std::string_view::npos) {
      bad(spelling, fmt::format("option \"{}\" is not of the form key=value", option));
    }
    set_key(spec, option.substr(0, equals), option.substr(equals + 1), spelling);
    options = comma == std::string_view::npos ? std::string_view() : options.substr(comma + 1);
  }
  // Contexts are numbered with 63 bits.
  if (spec.order * std::log2(static_cast<double>(spec.vocab)) > 63) {
    bad(spelling, fmt::format("vocab^order = {}^{} contexts are more than 2^63; lower vocab",
                              spec.vocab, spec.order));
  }
  return spec;
}

double entropy_rate_nats(const SynthSpec& spec) {
  switch (spec.kind) {
    case SynthSpec::Kind::kUniform:
      return std::log(static_cast<double>(spec.vocab));
    case SynthSpec::Kind::kZipf:
      return entropy(zipf(spec));
    case SynthSpec::Kind::kMarkov:
      break;
  }
  const std::vector<Group> groups = markov_groups(spec.vocab);
  const auto count = static_cast<double>(groups.size());
  double sum = std::log(count);
  for (const Group& group : groups) sum += entropy(group.rank) / count;
  return sum;
}

std::vector<double> synth_distribution(const SynthSpec& spec,
                                       std::span<const std::uint16_t> context) {
  if (spec.kind == SynthSpec::Kind::kZipf) return zipf(spec);
  const auto vocab = static_cast<std::size_t>(spec.vocab);
  if (spec.kind == SynthSpec::Kind::kUniform) {
    return std::vector<double>(vocab, 1.0 / static_cast<double>(vocab));
  }
  ISTHMUS_CHECK(context.size() >= static_cast<std::size_t>(spec.order), context.size());
  const Rng rng{spec.seed, Stream::kSynth};
  const std::uint64_t code = context_code(spec, context);
  const std::vector<Group> groups = markov_groups(spec.vocab);
  std::vector<double> p(vocab);
  for (std::size_t j = 0; j < groups.size(); ++j) {
    const std::int64_t turn = shift(rng, groups[j], code, j);
    for (std::int64_t r = 0; r < groups[j].size; ++r) {
      const std::int64_t x = groups[j].first + (r + turn) % groups[j].size;
      p[static_cast<std::size_t>(x)] =
          groups[j].rank[static_cast<std::size_t>(r)] / static_cast<double>(groups.size());
    }
  }
  return p;
}

std::vector<std::uint16_t> generate(const SynthSpec& spec) {
  if (spec.kind == SynthSpec::Kind::kMarkov) return generate_markov(spec);
  const Rng rng{spec.seed, Stream::kSynth};
  const std::vector<double> cumulative = running_sum(synth_distribution(spec, {}));
  std::vector<std::uint16_t> tokens(static_cast<std::size_t>(spec.tokens));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    tokens[t] =
        spec.kind == SynthSpec::Kind::kUniform
            ? static_cast<std::uint16_t>(rng.below(static_cast<std::uint64_t>(spec.vocab), t))
            : static_cast<std::uint16_t>(draw(cumulative, rng.uniform(t)));
  }
  return tokens;
}

}  // namespace isthmus
