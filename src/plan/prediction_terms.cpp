// SPDX-License-Identifier: Apache-2.0
#include "plan/prediction_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <optional>

#include "core/base/units.h"
#include "sim/link.h"

namespace isthmus {
namespace plan {
namespace {

bool alike(const DirectedLink& a, const DirectedLink& b) {
  return a.bits_per_s == b.bits_per_s && a.one_way == b.one_way && a.loss == b.loss &&
         a.streams == b.streams && a.congestion == b.congestion;
}

/// The one link that all pairs have, or nothing when they differ.
std::optional<DirectedLink> common_link(const PredictionInput& input) {
  const auto workers = static_cast<std::size_t>(input.workers);
  std::optional<DirectedLink> common;
  for (std::size_t i = 0; i < input.links.size(); ++i) {
    if (i / workers == i % workers) {
      continue;
    }
    const DirectedLink& link = input.links[i];
    if (common && !alike(*common, link)) {
      return std::nullopt;
    }
    common = link;
  }
  return common;
}

/// Step time when it is the same for all workers at the first and the last step, else nothing.
std::optional<Duration> common_step(const PredictionInput& input) {
  const Duration first = input.step_time(WorkerId(0), StepIndex(1));
  for (int w = 0; w < input.workers; ++w) {
    for (const std::int64_t t : {std::int64_t{1}, (input.steps + 1) / 2, input.steps}) {
      if (input.step_time(WorkerId(w), StepIndex(std::max<std::int64_t>(t, 1))) != first) {
        return std::nullopt;
      }
    }
  }
  return first;
}

std::string scale_text(const PredictionInput& input) {
  return input.link.byte_scale == 1
             ? std::string{}
             : fmt::format(" * {:.6g} (declared / trained parameters)", input.link.byte_scale);
}

std::string counted(double bytes) { return with_commas(std::llround(bytes)); }

std::string bytes_formula(const PredictionInput& input, const std::optional<DirectedLink>& link,
                          const char* what, const std::string& bytes) {
  if (!link) {
    return fmt::format("{} * 8 / rate of each link on the way; {} bytes in all{}", what, bytes,
                       scale_text(input));
  }
  if (link->bits_per_s <= 0) {
    return fmt::format("{}: no rate limit", what);
  }
  return fmt::format("{} * 8 / rate = {}{} * 8 / {}", what, bytes, scale_text(input),
                     human_rate(static_cast<double>(link->bits_per_s)));
}

/// "20 rounds * 3,299,328" where the path holds each round's bytes alike, else the plain sum.
std::string payload_count(const PathTime& end, std::int64_t rounds) {
  const double each = rounds > 0 ? end.payload_bytes / static_cast<double>(rounds) : 0;
  const bool whole = rounds > 1 && each == std::floor(each) && each > 0;
  return whole ? fmt::format("{} rounds * {} bytes", with_commas(rounds), counted(each))
               : counted(end.payload_bytes) + " bytes";
}

/// Why the data leaves slower than at the line's rate.
std::string below_line_formula(const PredictionInput& input,
                               const std::optional<DirectedLink>& link) {
  const bool tcp = input.link.model == LinkModel::kTcp;
  std::string causes = tcp ? "TCP/IP headers, congestion control and its start"
                           : "loss, and the start after idle time";
  if (!link) {
    return causes;
  }
  return fmt::format("{}: a long transfer gets {} of {}", causes,
                     human_rate(static_cast<double>(steady_goodput(*link, input.link.model))),
                     human_rate(static_cast<double>(link->bits_per_s)));
}

std::string hops_formula(const std::optional<DirectedLink>& link, std::int64_t hops,
                         const char* what) {
  if (!link) {
    return fmt::format("{} {} * rtt/2 of each link on the way", with_commas(hops), what);
  }
  return fmt::format("{} * rtt/2 = {} * {}", what, with_commas(hops),
                     human_time(in_seconds(link->one_way)));
}

}  // namespace

std::vector<PredictionTerm> terms_of(const PredictionInput& input, const PathTime& end,
                                     double computed, std::int64_t rounds) {
  const std::optional<DirectedLink> link = common_link(input);
  const std::optional<Duration> step = common_step(input);
  std::vector<PredictionTerm> terms;
  terms.push_back(
      {.name = "compute",
       .formula = step ? fmt::format("steps * step time = {} * {}", with_commas(input.steps),
                                     human_time(in_seconds(*step)))
                       : fmt::format("sum of {} step times, of the worker that ends last",
                                     with_commas(input.steps)),
       .seconds = computed});
  if (input.workers == 1) {
    return terms;
  }
  terms.push_back({.name = "payload on the link",
                   .formula = bytes_formula(input, link, "bytes", payload_count(end, rounds)),
                   .seconds = end.payload_s});
  terms.push_back(
      {.name = "frame headers",
       .formula = bytes_formula(input, link, "header bytes", counted(end.header_bytes) + " bytes"),
       .seconds = end.header_s});
  if (end.below_line_s > 0) {
    terms.push_back({.name = "below line rate",
                     .formula = below_line_formula(input, link),
                     .seconds = end.below_line_s});
  }
  if (end.processor_s > 0) {
    terms.push_back({.name = "processor",
                     .formula = fmt::format("values * 32 / rate of a site's processor, {}; slower "
                                            "than the links",
                                            human_rate(input.processor_bits_per_s)),
                     .seconds = end.processor_s});
  }
  terms.push_back({.name = "propagation",
                   .formula = hops_formula(link, end.hops, "one-way delays of data"),
                   .seconds = end.propagation_s});
  terms.push_back(
      {.name = "commit",
       .formula = hops_formula(link, end.commit_hops, "one-way delays of DONE and COMMIT") +
                  " + their bytes",
       .seconds = end.commit_s});
  // What the chain of causes holds of computing, against what the last worker computed in all.
  const double difference = end.compute_s - computed;
  constexpr double kRounding = 1e-9;
  if (difference < -kRounding * computed) {
    terms.push_back({.name = "hidden by overlap",
                     .formula = "- compute that went on while the exchange was under way",
                     .seconds = difference});
  } else if (difference > kRounding * computed) {
    terms.push_back({.name = "slower workers",
                     .formula = "+ compute of other workers on the critical path",
                     .seconds = difference});
  }
  return terms;
}

}  // namespace plan

std::string closing_text(const ClosingCost& closing) {
  if (closing.rounds == 0) return "";
  return fmt::format("the closing round: {:.6f} s and {} bytes by one worker, {} of values",
                     closing.seconds, with_commas(static_cast<std::int64_t>(closing.wire_bytes)),
                     with_commas(static_cast<std::int64_t>(closing.payload_bytes)));
}

std::string render_prediction(const Prediction& prediction, double measured_s,
                              std::string_view links_absent) {
  constexpr std::size_t kColumns = 100;
  std::size_t name_width = std::string_view{"predicted"}.size();
  for (const PredictionTerm& term : prediction.terms) {
    name_width = std::max(name_width, term.name.size());
  }
  std::string text;
  const auto line = [&](const std::string& name, double seconds, std::string_view note) {
    std::string row = fmt::format("  {:<{}}  {:>14.6f} s", name, name_width, seconds);
    const std::size_t column = row.size() + 3;  // where notes begin
    row.resize(note.empty() ? row.size() : column, ' ');
    // Words of the note, in lines of at most kColumns.
    std::size_t used = column;
    while (!note.empty()) {
      const std::string_view word = note.substr(0, note.find(' '));
      note.remove_prefix(std::min(word.size() + 1, note.size()));
      if (used > column && used + 1 + word.size() > kColumns) {
        row += "\n" + std::string(column, ' ');
        used = column;
      }
      if (used > column) row += ' ';
      used += (used > column ? 1 : 0) + word.size();
      row += word;
    }
    text += row + "\n";
  };
  for (const PredictionTerm& term : prediction.terms) {
    line(term.name, term.seconds, term.formula);
  }
  line("predicted", prediction.predicted_s, closing_text(prediction.closing));
  if (measured_s > 0) {
    line("measured", measured_s,
         links_absent.empty() ? fmt::format("prediction is off by {:+.3f} %",
                                            100 * (prediction.predicted_s / measured_s - 1))
                              : std::string(links_absent));
  }
  return text;
}

}  // namespace isthmus
