// SPDX-License-Identifier: Apache-2.0
#include "core/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>

#include "core/base/trimmed.h"

namespace isthmus {
namespace {

struct Unit {
  std::string_view name;
  double factor = 1;
};

constexpr std::array<Unit, 6> kDecimal = {
    {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {"P", 1e15}}};
constexpr std::array<Unit, 5> kBinary = {
    {{"Ki", 1024.}, {"Mi", 1048576.}, {"Gi", 1073741824.}, {"Ti", 1099511627776.}, {"Pi", 0x1p50}}};
constexpr std::array<Unit, 8> kTime = {{{"ns", 1e-9},
                                        {"us", 1e-6},
                                        {"µs", 1e-6},
                                        {"ms", 1e-3},
                                        {"s", 1},
                                        {"min", 60},
                                        {"h", 3600},
                                        {"d", 86400}}};
/// As people spell them: b is a bit and B a byte, as in IEEE 1541; tc says 1Gbit, iperf Mbits/sec.
constexpr std::array<Unit, 26> kRate = {
    {{"bit", 1},       {"bit/s", 1},    {"bit/sec", 1},  {"bits", 1},     {"bits/s", 1},
     {"bits/sec", 1},  {"Bit", 1},      {"Bit/s", 1},    {"Bit/sec", 1},  {"Bits", 1},
     {"Bits/s", 1},    {"Bits/sec", 1}, {"bps", 1},      {"b/s", 1},      {"b/sec", 1},
     {"B/s", 8},       {"B/sec", 8},    {"Byte/s", 8},   {"Byte/sec", 8}, {"Bytes/s", 8},
     {"Bytes/sec", 8}, {"byte/s", 8},   {"byte/sec", 8}, {"bytes/s", 8},  {"bytes/sec", 8},
     {"Bps", 8}}};
/// Before bits these have one meaning, as in "100mbit" and "64Kbps".
constexpr std::array<Unit, 4> kBitPrefixes = {{{"K", 1e3}, {"m", 1e6}, {"g", 1e9}, {"t", 1e12}}};
constexpr std::array<Unit, 1> kBytes = {{{"B", 1}}};
constexpr std::array<Unit, 3> kTokens = {{{"tokens", 1}, {"token", 1}, {"tok", 1}}};
constexpr std::array<Unit, 2> kSteps = {{{"steps", 1}, {"step", 1}}};
constexpr std::array<Unit, 2> kFlops = {{{"FLOPS", 1}, {"FLOP/s", 1}}};
constexpr std::array<Unit, 7> kParameters = {
    {{"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"G", 1e9}, {"T", 1e12}}};

std::optional<double> find(std::span<const Unit> units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) {
      return unit.factor;
    }
  }
  return std::nullopt;
}

std::optional<double> prefix_factor(std::string_view prefix) {
  const auto decimal = find(kDecimal, prefix);
  return decimal ? decimal : find(kBinary, prefix);
}

/// Factor of a prefixed unit ("Mbit/s"), tokens and steps with a space between ("16k tok").
std::optional<double> prefixed(std::span<const Unit> bases, std::string_view unit) {
  for (const Unit& base : bases) {
    if (unit.size() >= base.name.size() && unit.ends_with(base.name)) {
      const auto prefix = trimmed(unit.substr(0, unit.size() - base.name.size()), " ");
      if (const auto factor = prefix_factor(prefix)) {
        return *factor * base.factor;
      }
    }
  }
  return std::nullopt;
}

/// A hundredth of the decimal `number`, correctly rounded: 99.9% is the double nearest to 0.999,
/// which 99.9 / 100 is not.
double hundredth(std::string_view number, double value) {
  if (number.find_first_of("eE") != std::string_view::npos) {
    return value / 100;
  }
  const std::string shifted = fmt::format("{}e-2", number);
  double result = value / 100;
  std::from_chars(shifted.data(), shifted.data() + shifted.size(), result);
  return result;
}

/// "100mbit", "64Kbps": prefixes in the other case. Not "mbps" and "mb/s", which tc and many people
/// mean as bytes.
std::optional<double> bit_rate_in_other_case(std::string_view unit) {
  for (const Unit& base : kRate) {
    if (base.factor != 1 || !unit.ends_with(base.name)) continue;
    const std::string_view prefix = unit.substr(0, unit.size() - base.name.size());
    const std::optional<double> factor = find(kBitPrefixes, prefix);
    const bool named = base.name.starts_with("bit") || base.name.starts_with("Bit");
    if (factor && (prefix == "K" || named)) return factor;
  }
  return std::nullopt;
}

std::span<const Unit> bases_of(Dimension dimension) {
  switch (dimension) {
    case Dimension::kRate:
      return kRate;
    case Dimension::kBytes:
      return kBytes;
    case Dimension::kTokens:
      return kTokens;
    case Dimension::kSteps:
      return kSteps;
    case Dimension::kFlops:
      return kFlops;
    default:
      return {};
  }
}

bool unit_may_be_left_out(Dimension dimension) {
  return dimension == Dimension::kTokens || dimension == Dimension::kSteps ||
         dimension == Dimension::kFraction || dimension == Dimension::kParameters;
}

std::optional<double> unit_factor(std::string_view unit, Dimension dimension) {
  if (dimension == Dimension::kTime) {
    return find(kTime, unit);
  }
  if (dimension == Dimension::kParameters) {
    return find(kParameters, unit);
  }
  if (const auto factor = prefixed(bases_of(dimension), unit)) {
    return factor;
  }
  if (dimension == Dimension::kRate) return bit_rate_in_other_case(unit);
  if (dimension == Dimension::kTokens || dimension == Dimension::kSteps) {
    return prefix_factor(unit);  // "3M" alone
  }
  return std::nullopt;
}

/// The possible meanings of a rate with a known prefix and an unclear rest; otherwise examples.
std::string rate_hint(std::string_view unit) {
  constexpr std::string_view kPrefixes = "kKmMgGtT";
  constexpr std::array<std::string_view, 8> kUnclear = {"",    "b",   "b/s",   "b/sec",
                                                        "bps", "B/s", "B/sec", "Bps"};
  const std::string examples = fmt::format("write {}", unit_examples(Dimension::kRate));
  const std::size_t place = unit.empty() ? std::string_view::npos : kPrefixes.find(unit.front());
  if (place == std::string_view::npos) return examples;
  const char prefix = "kkMMGGTT"[place];
  const std::string_view rest = unit.substr(1);
  if (rest == "B") {
    return fmt::format("a rate is per second: write \"{}B/s\" for bytes, \"{}bit/s\" for bits",
                       prefix, prefix);
  }
  if (unit.starts_with("KB")) return "\"k\" is 1000, \"Ki\" is 1024";
  if (std::ranges::find(kUnclear, rest) == kUnclear.end()) return examples;
  return fmt::format(
      "it may mean bits or bytes: write \"{}bit/s\" (or \"{}bps\") for bits, "
      "\"{}B/s\" for bytes",
      prefix, prefix, prefix);
}

/// The reason for a common misspelling, and the right spelling.
std::string spelling_hint(std::string_view unit, Dimension dimension) {
  if (dimension == Dimension::kRate) return rate_hint(unit);
  if (dimension == Dimension::kTime && unit == "m") {
    return "\"min\" for minutes, \"ms\" for milliseconds";
  }
  if (unit.starts_with("K") && !unit.starts_with("Ki")) {
    return "\"k\" is 1000, \"Ki\" is 1024";
  }
  return std::string("write ") + std::string(unit_examples(dimension));
}

}  // namespace

std::string_view unit_examples(Dimension dimension) {
  switch (dimension) {
    case Dimension::kTime:
      return "\"80ms\", \"10s\" or \"10min\"";
    case Dimension::kRate:
      return "\"100Mbit/s\" or \"100MiB/s\"";
    case Dimension::kBytes:
      return "\"4MiB\" or \"4MB\"";
    case Dimension::kTokens:
      return "\"192 tok\" or \"16k tok\"";
    case Dimension::kSteps:
      return "100, \"100 steps\" or \"5%\"";
    case Dimension::kFraction:
      return "0.1 or \"10%\"";
    case Dimension::kFlops:
      return "\"40TFLOPS\"";
    case Dimension::kParameters:
      return "\"1B\" or \"350M\"";
  }
  return "";
}

Expected<Quantity, UnitError> parse_quantity(std::string_view text, Dimension dimension) {
  const auto fail = [](UnitError::Kind kind, std::string what, std::string hint) {
    return Unexpected<UnitError>(UnitError{kind, std::move(what), std::move(hint)});
  };
  const std::string examples = fmt::format("write {}", unit_examples(dimension));
  std::string_view rest = trimmed(text, " ");
  if (rest.starts_with('+')) {
    rest.remove_prefix(1);
  }
  Quantity quantity;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), quantity.value);
  if (error == std::errc::result_out_of_range) {
    return fail(UnitError::Kind::kRange, "number too large or too small to hold", examples);
  }
  const bool number = error == std::errc{} && std::isfinite(quantity.value);
  if (!number) {
    return fail(UnitError::Kind::kNumber, fmt::format("'{}' does not begin with a number", text),
                examples);
  }
  const std::string_view unit =
      trimmed(rest.substr(static_cast<std::size_t>(end - rest.data())), " ");
  if (unit.empty()) {
    if (!unit_may_be_left_out(dimension)) {
      return fail(UnitError::Kind::kMissing, "needs a unit", examples);
    }
    return quantity;
  }
  if (unit == "%" && (dimension == Dimension::kFraction || dimension == Dimension::kSteps)) {
    quantity.percent = quantity.unit = true;
    quantity.value =
        hundredth(rest.substr(0, static_cast<std::size_t>(end - rest.data())), quantity.value);
    return quantity;
  }
  const auto factor = unit_factor(unit, dimension);
  if (!factor) {
    return fail(UnitError::Kind::kWrong, fmt::format("unknown unit '{}'", unit),
                spelling_hint(unit, dimension));
  }
  quantity.value *= *factor;
  quantity.unit = !prefix_factor(unit).has_value();
  if (!std::isfinite(quantity.value)) {
    return fail(UnitError::Kind::kRange, "number too large to hold", examples);
  }
  return quantity;
}

Expected<Duration, UnitError> to_duration(double seconds) {
  constexpr double kCenturySeconds = 100 * 365.25 * 86400;
  if (!(std::abs(seconds) <= kCenturySeconds)) {
    return Unexpected<UnitError>(
        UnitError{UnitError::Kind::kRange, "more than 100 years", "a shorter time"});
  }
  return Duration(static_cast<Duration::rep>(std::llround(seconds * 1e9)));
}

std::string real_text(double value) { return fmt::format("{}", value); }

std::string duration_text(Duration duration) {
  struct Step {
    std::string_view name;
    Duration::rep ns;
  };
  constexpr std::array<Step, 6> kSteps6 = {{{"h", 3'600'000'000'000},
                                            {"min", 60'000'000'000},
                                            {"s", 1'000'000'000},
                                            {"ms", 1'000'000},
                                            {"us", 1'000},
                                            {"ns", 1}}};
  for (const Step& step : kSteps6) {
    if (duration.count() % step.ns == 0 && (duration.count() != 0 || step.name == "s")) {
      return fmt::format("{}{}", duration.count() / step.ns, step.name);
    }
  }
  return fmt::format("{}ns", duration.count());
}

namespace {

/// Largest prefix that leaves at least one unit, as long as the product is exact.
std::string with_prefix(double value, std::span<const Unit> units, std::string_view base) {
  for (std::size_t i = units.size(); i-- > 0;) {
    const double scaled = value / units[i].factor;
    if (std::abs(scaled) >= 1 && scaled * units[i].factor == value &&
        fmt::format("{}", scaled).size() <= 8) {
      return fmt::format("{}{}{}", scaled, units[i].name, base);
    }
  }
  return fmt::format("{}{}", value, base);
}

}  // namespace

std::string rate_text(double bits_per_s) { return with_prefix(bits_per_s, kDecimal, "bit/s"); }
std::string flops_text(double flops) { return with_prefix(flops, kDecimal, "FLOPS"); }
std::string parameters_text(double parameters) {
  constexpr std::array<Unit, 5> kUnits = {
      {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}}};
  return with_prefix(parameters, kUnits, "");
}

std::string percent_text(double fraction) {
  // The shortest decimal of the share with its point moved: multiplying by 100 would round.
  std::array<char, 400> buffer{};  // 1e-308 written out
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), fraction,
                                 std::chars_format::fixed)
                       .ptr;
  std::string whole(buffer.data(), end);
  const std::size_t point = std::min(whole.find('.'), whole.size());
  std::string rest = point < whole.size() ? whole.substr(point + 1) : "";
  whole.resize(point);
  rest.resize(std::max<std::size_t>(rest.size(), 2), '0');
  whole += rest.substr(0, 2);
  rest.erase(0, 2);
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size() - 1));
  return rest.empty() ? fmt::format("{}%", whole) : fmt::format("{}.{}%", whole, rest);
}

std::string human_bytes(double bytes) {
  if (!std::isfinite(bytes)) {
    return "–";
  }
  constexpr std::array<std::string_view, 7> kNames = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t i = 0;
  while (bytes >= 999.5 && i + 1 < kNames.size()) {  // values that would print as 1000
    bytes /= 1000;
    ++i;
  }
  return i == 0 ? fmt::format("{:.0f} B", bytes)
                : fmt::format("{:.{}f} {}", bytes,
                              bytes < 9.995   ? 2
                              : bytes < 99.95 ? 1
                                              : 0,
                              kNames[i]);
}

std::string human_rate(double bits_per_s) {
  constexpr std::array<std::string_view, 5> kNames = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s",
                                                      "Tbit/s"};
  std::size_t i = 0;
  while (bits_per_s >= 1000 && i + 1 < kNames.size()) {
    bits_per_s /= 1000;
    ++i;
  }
  return fmt::format("{:.3g} {}", bits_per_s, kNames[i]);
}

std::string human_time(double seconds) {
  if (!std::isfinite(seconds)) {
    return "?";
  }
  if (seconds < 1e-3) {
    return fmt::format("{:.0f} us", seconds * 1e6);
  }
  if (seconds < 1) {
    return fmt::format("{:.0f} ms", seconds * 1e3);
  }
  if (seconds < 60) {
    return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 1 : 0);
  }
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 3600) {
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  }
  if (whole < 86400) {
    return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  }
  return fmt::format("{} d {} h", whole / 86400, whole / 3600 % 24);
}

std::string human_count(double count) {
  constexpr std::array<std::string_view, 5> kNames = {"", "k", "M", "G", "T"};
  std::size_t i = 0;
  while (count >= 1000 && i + 1 < kNames.size()) {
    count /= 1000;
    ++i;
  }
  return fmt::format("{:.3g}{}", count, kNames[i]);
}

std::string with_commas(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::size_t sign = value < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > sign + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

}  // namespace isthmus
