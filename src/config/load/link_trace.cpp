// SPDX-License-Identifier: Apache-2.0
#include "config/load/link_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>

#include "core/base/hash.h"
#include "core/base/storage.h"
#include "core/base/units.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::string_view kHeading = "seconds,rate_up,rate_down";
constexpr std::string_view kRepeat = "repeat";
constexpr std::size_t kLargestFile = 16 << 20;
constexpr std::size_t kLongestShown = 40;
constexpr double kLatestSecond = 1e9;  // times are whole nanoseconds in 64 bits
constexpr double kHighestRate = 1e15;  // bit/s, as of link.rate
// Below these a transfer would take more pieces than a simulation can play.
constexpr double kLowestRate = 1e3;
constexpr Duration kShortestPiece = std::chrono::milliseconds(1);

/// A cell of the file and where it stands.
struct Cell {
  std::string_view text;
  std::size_t line = 0;
  std::size_t column = 0;  // of its first byte that is no space, from 1
};

bool is_space(char c) { return c == ' ' || c == '\t'; }

std::vector<Cell> cells_of(std::string_view text, std::size_t line) {
  std::vector<Cell> cells;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::size_t first = begin;
    std::size_t last = end;
    while (first < last && is_space(text[first])) ++first;
    while (last > first && is_space(text[last - 1])) --last;
    cells.push_back({text.substr(first, last - first), line, first + 1});
    if (end == text.size()) return cells;
    begin = end + 1;
  }
}

std::optional<double> plain_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

class TraceReader {
 public:
  explicit TraceReader(const std::string& label) : label_(label) {}

  LinkTrace read(std::string_view text) {
    std::size_t line = 0;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view row = text.substr(0, end);
      if (row.ends_with('\r')) row.remove_suffix(1);
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line;
      if (line == 1) {
        take_heading(row);
      } else {
        take(cells_of(row, line));
      }
    }
    if (trace_.steps.empty()) {
      throw ConfigError(
          fmt::format("{}:{}: no rates; the first line is '{}', the second for "
                      "example '0,100Mbit/s,20Mbit/s'",
                      label_, line + 1, kHeading));
    }
    return std::move(trace_);
  }

 private:
  [[noreturn]] void refuse(const Cell& cell, std::string_view rule) const {
    const bool cut = cell.text.size() > kLongestShown;
    throw ConfigError(fmt::format("{}:{}:{}: '{}{}': {}", label_, cell.line, cell.column,
                                  cell.text.substr(0, kLongestShown), cut ? "..." : "", rule));
  }

  void take_heading(std::string_view row) const {
    std::string words;
    for (const Cell& cell : cells_of(row, 1)) {
      words += words.empty() ? "" : ",";
      words += cell.text;
    }
    if (words != kHeading) refuse({row, 1, 1}, fmt::format("the heading must be '{}'", kHeading));
  }

  void take(const std::vector<Cell>& cells) {
    const Cell& first = cells.front();
    if (trace_.period > Duration{0}) {
      refuse(first, "nothing may follow the line that says when the file repeats");
    }
    if (cells.size() == 1 && first.text.empty()) {
      refuse(first, "an empty line; leave it out");
    }
    const Duration time = time_of(first);
    if (cells.size() == 2 && cells[1].text == kRepeat) {
      if (trace_.steps.empty()) refuse(first, "a file cannot repeat before its first rates");
      trace_.period = time;
      return;
    }
    if (cells.size() != 3) {
      refuse(cells.back(),
             "a line has three values (seconds, rate up, rate down), or is "
             "'TIME,repeat'");
    }
    trace_.steps.push_back({time, rate_of(cells[1]), rate_of(cells[2])});
  }

  Duration time_of(const Cell& cell) const {
    const std::optional<double> seconds = plain_number(cell.text);
    if (!seconds || *seconds < 0 || *seconds > kLatestSecond) {
      refuse(cell, "a time must be a number of seconds in [0, 1e9], without a unit");
    }
    const Duration time(std::llround(*seconds * 1e9));
    if (trace_.steps.empty()) {
      if (time != Duration{0}) refuse(cell, "the first time must be 0");
    } else if (time <= trace_.steps.back().from) {
      refuse(cell, "times must ascend, and this one is not above the one before");
    } else if (time - trace_.steps.back().from < kShortestPiece) {
      refuse(cell, "less than 1 ms after the time before; rates must hold for 1 ms at least");
    }
    return time;
  }

  double rate_of(const Cell& cell) const {
    double rate = 0;
    if (const std::optional<double> plain = plain_number(cell.text)) {
      rate = *plain;
    } else if (const auto quantity = parse_quantity(cell.text, Dimension::kRate)) {
      rate = quantity->value;
    } else {
      refuse(cell, fmt::format("not a rate: {}; {}, or plain bit/s", quantity.error().text,
                               quantity.error().hint));
    }
    if (!(rate >= kLowestRate && rate <= kHighestRate)) {
      refuse(cell,
             "a rate must be in [1e3, 1e15] bit/s; a link that carries nothing for a time is a "
             "[[fault]] of kind \"cut\"");
    }
    return rate;
  }

  const std::string& label_;
  LinkTrace trace_;
};

double mean_of(const LinkTrace& trace, double LinkTrace::Step::*rate) {
  if (trace.period == Duration{0}) return trace.steps.back().*rate;
  double bits = 0;
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const Duration end = i + 1 < trace.steps.size() ? trace.steps[i + 1].from : trace.period;
    bits += trace.steps[i].*rate * in_seconds(end - trace.steps[i].from);
  }
  return bits / in_seconds(trace.period);
}

}  // namespace

double LinkTrace::mean_up() const { return mean_of(*this, &Step::bits_per_s_up); }
double LinkTrace::mean_down() const { return mean_of(*this, &Step::bits_per_s_down); }

std::string LinkTrace::digest() const {
  std::string text = fmt::format("{}\n", period.count());
  for (const Step& step : steps) {
    text += fmt::format("{},{},{}\n", step.from.count(), step.bits_per_s_up, step.bits_per_s_down);
  }
  return xxh3_128(as_bytes(text)).hex();
}

LinkTrace parse_link_trace(std::string_view text, const std::string& label) {
  return TraceReader(label).read(text);
}

LinkTrace read_link_trace(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (status.type() != std::filesystem::file_type::regular) {
    throw SystemError(fmt::format("{}: {}", file.string(),
                                  std::filesystem::exists(status)
                                      ? "is no file; name a CSV file of rates"
                                      : "no such file; name a CSV file of rates"));
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(kLargestFile + 1, '\0');
  if (stream) stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!stream.is_open() || stream.bad()) {
    throw SystemError(fmt::format("{}: cannot be read: {}", file.string(), std::strerror(errno)));
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kLargestFile) {
    throw ConfigError(
        fmt::format("{}: larger than 16 MiB; a trace has a line for each time at "
                    "which a rate changes",
                    file.string()));
  }
  return parse_link_trace(text, file.string());
}

}  // namespace isthmus
