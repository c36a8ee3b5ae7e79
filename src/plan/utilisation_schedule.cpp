// SPDX-License-Identifier: Apache-2.0
#include "plan/utilisation_schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>

#include "core/base/suggest.h"
#include "core/base/units.h"
#include "isthmus/codec.h"
#include "isthmus/errors.h"
#include "outer/parts/schedule.h"
#include "outer/parts/settings.h"

namespace isthmus {
namespace {

// The settings of arXiv:2501.18512 Table 4.
constexpr std::int64_t kPublishedH = 100;
constexpr int kPublishedFragmentLayers = 3;
constexpr double kPublishedBits = 16;  // bf16

constexpr std::int64_t kMostH = 1'000'000;
constexpr double kMostBits = 64;

constexpr std::array<std::string_view, 6> kSettings = {
    "H", "fragment-layers", "pattern", "overlap", "bits", "embedding-turn"};
constexpr std::array<std::string_view, 9> kDefaultRows = {"ddp",
                                                          "diloco",
                                                          "streaming-diloco",
                                                          "streaming-diloco:overlap=1",
                                                          "streaming-diloco:overlap=1,bits=4",
                                                          "eager",
                                                          "co2",
                                                          "sparseloco",
                                                          "1bit-adam"};
constexpr std::array<std::pair<std::string_view, FragmentPattern>, 3> kPatterns = {
    {{"strided", FragmentPattern::kStrided},
     {"sequential", FragmentPattern::kSequential},
     {"balanced", FragmentPattern::kBalanced}}};

/// Why no schedule that repeats describes a method.
struct Exception {
  std::string_view method, reason;
};
constexpr std::array kExceptions = {
    Exception{"decoupled", "its workers wait for no exchange, so that they compute all the time"},
    Exception{"spsa", "it sends one byte a sample whatever the model, and has no backward pass"},
    Exception{"01-adam",
              "its syncs become rarer as it goes; for a stretch with a sync every J steps, ask for "
              "localsgd:H=J,bits=1"},
};

bool has_key(const MethodInfo& method, std::string_view key) {
  return std::ranges::find(method.keys, key) != method.keys.end();
}

MethodInfo method_named(std::string_view name) {
  const std::vector<MethodInfo> known = methods();
  std::vector<std::string> names;
  for (const MethodInfo& method : known) {
    const auto* exception = std::ranges::find(kExceptions, method.name, &Exception::method);
    if (method.name == name && exception != kExceptions.end()) {
      throw ConfigError(
          fmt::format("method {}: no utilisation to work out: {}", name, exception->reason));
    }
    if (method.name == name) {
      return method;
    }
    if (exception == kExceptions.end()) {
      names.push_back(method.name);
    }
  }
  const auto near = closest(std::string(name), names);
  throw ConfigError(fmt::format("method '{}': unknown; {}there are {}", name,
                                near ? fmt::format("did you mean '{}'? ", *near) : "",
                                join(names)));
}

bool uses(const MethodInfo& method, std::string_view setting) {
  if (setting == "bits") return true;
  if (setting == "H" || setting == "overlap") return has_key(method, setting);
  return has_key(method, "fragments");
}

double bits_of(const std::string& codec) {
  constexpr double kBitsOfByte = 8;
  return kBitsOfByte * static_cast<double>(make_codec(codec)->encoded_bytes(kTileValues)) /
         static_cast<double>(kTileValues);
}

template <typename Number>
Number number_of(std::string_view setting, std::string_view text) {
  constexpr double kMost = 1e9;  // what any Number holds; ranges are checked later
  const auto quantity = parse_quantity(text, Dimension::kFraction);
  const double value = quantity ? quantity->value : 0;
  if (!quantity || quantity->percent || std::abs(value) > kMost ||
      static_cast<double>(static_cast<Number>(value)) != value) {
    throw ConfigError(fmt::format("{} = {}: must be a {}number", setting, text,
                                  std::is_integral_v<Number> ? "whole " : ""));
  }
  return static_cast<Number>(value);
}

FragmentPattern pattern_of(std::string_view text) {
  for (const auto& [name, pattern] : kPatterns) {
    if (name == text) return pattern;
  }
  throw ConfigError(
      fmt::format("pattern = {}: must be one of strided, sequential, balanced", text));
}

bool flag_of(std::string_view setting, std::string_view text) {
  if (text != "on" && text != "off") {
    throw ConfigError(fmt::format("{} = {}: must be on or off", setting, text));
  }
  return text == "on";
}

void set(UtilisationChoice& choice, std::string_view setting, std::string_view text) {
  if (setting == "H") {
    choice.H = number_of<std::int64_t>(setting, text);
  } else if (setting == "fragment-layers") {
    choice.fragment_layers = number_of<int>(setting, text);
  } else if (setting == "pattern") {
    choice.pattern = pattern_of(text);
  } else if (setting == "overlap") {
    choice.overlap = number_of<std::int64_t>(setting, text);
  } else if (setting == "bits") {
    choice.bits = number_of<double>(setting, text);
  } else {
    choice.embedding_turn = flag_of(setting, text);
  }
}

/// Layer fragments that `fragment_layers` makes of a model. THROWS: ConfigError when it does not
/// divide the layers.
int fragment_count(int fragment_layers, int layers) {
  if (fragment_layers >= 1 && layers % fragment_layers == 0) {
    return layers / fragment_layers;
  }
  std::vector<int> divisors;
  for (int d = 1; d <= layers; ++d) {
    if (layers % d == 0) divisors.push_back(d);
  }
  throw ConfigError(fmt::format("fragment-layers = {}: must divide the {} layers; possible are {}",
                                fragment_layers, layers, fmt::join(divisors, ", ")));
}

/// Layers of equal size, as the tensors that `make_fragments` expects.
std::vector<Parameter> equal_layers(int layers) {
  std::vector<Parameter> parameters(static_cast<std::size_t>(layers));
  for (int l = 0; l < layers; ++l) {
    Parameter& parameter = parameters[static_cast<std::size_t>(l)];
    parameter.layer = l;
    parameter.elements = {l, l + 1};
  }
  return parameters;
}

/// By layer, last first: the share of all values that `fragment` holds.
std::vector<LayerShare> shares_of(const Fragment& fragment, std::span<const Parameter> parameters) {
  const auto total = static_cast<double>(parameters.back().elements.end);
  std::map<int, double, std::greater<>> by_layer;
  for (const std::size_t i : fragment.parameters) {
    by_layer[std::max(parameters[i].layer, 0)] +=
        static_cast<double>(parameters[i].elements.size()) / total;
  }
  std::vector<LayerShare> shares;
  for (const auto& [layer, share] : by_layer) {
    shares.push_back({.layer = layer, .share = share});
  }
  return shares;
}

/// Adds what is due in `step`; what is due there already is joined, layer by layer.
void add_send(UtilisationSchedule& schedule, std::int64_t step, std::vector<LayerShare> shares) {
  auto at = std::ranges::lower_bound(schedule.sends, step, {}, &UtilisationSchedule::Send::step);
  if (at == schedule.sends.end() || at->step != step) {
    at = schedule.sends.insert(at, {.step = step, .shares = {}});
  }
  at->shares.insert(at->shares.end(), shares.begin(), shares.end());
  std::ranges::stable_sort(at->shares, std::greater<>{}, &LayerShare::layer);
}

void check_range(std::string_view what, std::int64_t value, std::int64_t least, std::int64_t most,
                 std::string_view why) {
  if (value < least || value > most) {
    throw ConfigError(
        fmt::format("{} = {}: must be in {} .. {} ({})", what, value, least, most, why));
  }
}

void check_bits(double bits) {
  if (!(bits > 0) || bits > kMostBits) {
    throw ConfigError(
        fmt::format("bits = {:g}: must be above 0 and at most {:g} (of a value on "
                    "the wire)",
                    bits, kMostBits));
  }
}

}  // namespace

std::span<const std::string_view> default_utilisation_rows() { return kDefaultRows; }

bool method_uses(std::string_view method, std::string_view setting) {
  return uses(method_named(method), setting);
}

UtilisationChoice parse_utilisation_choice(std::string_view spelling) {
  const std::size_t colon = std::min(spelling.find(':'), spelling.size());
  UtilisationChoice choice{.method = std::string(spelling.substr(0, colon))};
  const MethodInfo method = method_named(choice.method);
  std::string_view rest = spelling.substr(std::min(colon + 1, spelling.size()));
  if (colon < spelling.size() && rest.empty()) {
    throw ConfigError(fmt::format(
        "'{}': settings are missing after the colon: write METHOD or METHOD:SETTING=VALUE,...",
        spelling));
  }
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const std::size_t equals = item.find('=');
    const std::string_view setting = item.substr(0, equals);
    if (equals == std::string_view::npos ||
        std::ranges::find(kSettings, setting) == kSettings.end()) {
      throw ConfigError(fmt::format("'{}': '{}' is no SETTING=VALUE; settings are {}", spelling,
                                    item, fmt::join(kSettings, ", ")));
    }
    if (!uses(method, setting)) {
      std::vector<std::string_view> own;
      std::ranges::copy_if(kSettings, std::back_inserter(own),
                           [&](std::string_view each) { return uses(method, each); });
      throw ConfigError(fmt::format("'{}': {} has no setting {}; it has {}", spelling, method.name,
                                    setting, fmt::join(own, ", ")));
    }
    set(choice, setting, item.substr(equals + 1));
  }
  return choice;
}

UtilisationChoice completed(UtilisationChoice choice, const UtilisationChoice& common) {
  const MethodInfo method = method_named(choice.method);
  const auto take = [&method](auto& mine, const auto& theirs, std::string_view setting) {
    if (!mine && uses(method, setting)) mine = theirs;
  };
  take(choice.H, common.H, "H");
  take(choice.fragment_layers, common.fragment_layers, "fragment-layers");
  take(choice.pattern, common.pattern, "pattern");
  take(choice.overlap, common.overlap, "overlap");
  take(choice.bits, common.bits, "bits");
  take(choice.embedding_turn, common.embedding_turn, "embedding-turn");
  return choice;
}

UtilisationRow utilisation_row(const UtilisationChoice& choice, int layers) {
  const MethodInfo method = method_named(choice.method);
  UtilisationRow row{.method = choice.method};
  if (uses(method, "H")) {
    row.H = choice.H.value_or(method.default_H > 1 ? method.default_H : kPublishedH);
    check_range("H", row.H, 1, kMostH, "inner steps between two syncs of a fragment");
  }
  if (uses(method, "fragment-layers")) {
    int fragment_layers = choice.fragment_layers.value_or(kPublishedFragmentLayers);
    while (!choice.fragment_layers && layers % fragment_layers != 0) --fragment_layers;
    row.fragments = fragment_count(fragment_layers, layers);
  }
  const std::int64_t turns = row.fragments + (choice.embedding_turn.value_or(false) ? 1 : 0);
  check_range("H", row.H, turns, kMostH, "a step at least for the turn of each fragment");
  UtilisationSchedule& schedule = row.schedule;
  const std::int64_t interval = row.H / turns;
  schedule.period = turns * interval;
  row.overlap = method.round_behind ? row.H : choice.overlap.value_or(0);
  check_range("overlap", row.overlap, 0,
              method.round_behind ? row.H : std::min(row.H, schedule.period) - 1,
              fmt::format("below H = {}; a fragment is sent every {} steps and applied before it "
                          "is sent again",
                          row.H, schedule.period));
  schedule.overlap = row.overlap;
  schedule.bits = choice.bits.value_or(
      method.default_codec == "fp32" ? kPublishedBits : bits_of(method.default_codec));
  check_bits(schedule.bits);
  const std::vector<Parameter> parameters = equal_layers(layers);
  const std::vector<Fragment> fragments =
      make_fragments(parameters, row.fragments, choice.pattern.value_or(FragmentPattern::kStrided),
                     /*embeddings_own=*/false);
  for (std::size_t p = 0; p < fragments.size(); ++p) {
    add_send(schedule, (static_cast<std::int64_t>(p) + 1) * interval - 1,
             shares_of(fragments[p], parameters));
  }
  return row;
}

UtilisationRow utilisation_row(std::string_view name, const OuterOptions& options,
                               std::span<const Parameter> parameters) {
  const MethodInfo method = method_named(name);
  outer::validate(method, options);
  UtilisationRow row{.method = method.name};
  row.schedule.bits = bits_of(outer::codec_of(method, options));
  if (uses(method, "H")) {
    row.H = options.H;
  }
  row.overlap = method.round_behind ? row.H : options.overlap;
  row.schedule.period = row.H;
  row.schedule.overlap = row.overlap;
  const std::vector<Fragment> fragments =
      make_fragments(parameters, options.fragments, options.pattern, options.embeddings_own);
  row.fragments = static_cast<int>(fragments.size());
  const std::vector<std::int64_t> offsets =
      outer::resolve_offsets(options.offsets, row.H, row.fragments);
  for (std::size_t p = 0; p < fragments.size(); ++p) {
    // Sent after step t = offset (mod H), t from 1.
    add_send(row.schedule, (offsets[p] + row.H - 1) % row.H, shares_of(fragments[p], parameters));
  }
  return row;
}

}  // namespace isthmus
