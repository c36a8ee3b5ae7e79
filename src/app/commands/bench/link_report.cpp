// SPDX-License-Identifier: Apache-2.0
#include "app/commands/bench/link_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "app/common/text_table.h"
#include "core/base/units.h"
#include "record/json_line.h"
#include "sim/topology.h"

namespace isthmus::app {
namespace {

constexpr double kMega = 1e6;
constexpr double kDigits = 4;  // that a rate is known to, at best

double ms(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

const std::string& name_of(const Survey& survey, WorkerId member) {
  return survey.names.at(static_cast<std::size_t>(member.value()));
}

std::string number(double value) {
  return value >= 1000 ? fmt::format("{:.0f}", value)
         : value >= 10 ? fmt::format("{:.1f}", value)
                       : fmt::format("{:.2f}", value);
}

/// The time as a link of the configuration has it: to the microsecond.
Duration rounded(Duration duration) {
  return std::chrono::round<std::chrono::microseconds>(std::max(duration, Duration{0}));
}

double significant(double value) {
  if (!(value > 0)) return value;
  const double unit = std::pow(10, std::floor(std::log10(value)) - (kDigits - 1));
  return std::round(value / unit) * unit;
}

/// The round trip without jitter: the median less the jitter, and at least the shortest one.
Duration base_rtt(const EchoSummary& echo) { return std::max(echo.least, echo.p50 - echo.jitter); }

/// The rate of a line on which a long transfer without losses gets `goodput` in a simulation:
/// steady_goodput undone, which is proportional to the rate.
double line_rate(double goodput, DirectedLink link) {
  constexpr std::int64_t kAnyRate = 1'000'000'000'000;
  link.bits_per_s = kAnyRate;
  link.loss = 0;
  return goodput * static_cast<double>(kAnyRate) /
         static_cast<double>(steady_goodput(link, LinkModel::kTcp));
}

std::string share_text(const std::optional<Retransmits>& retransmits) {
  return retransmits ? fmt::format("{:.2f}%", 100 * retransmits->share()) : "-";
}

std::string scan_text(const DirectionMeasurement& direction) {
  std::string text;
  for (const StreamRate& each : direction.scan) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", each.streams,
                        number(each.bits_per_s / kMega));
  }
  return text.empty() ? "-" : text;
}

std::string note_of(const std::string& from, const std::string& to,
                    const DirectionMeasurement& direction) {
  std::string text =
      fmt::format("{} -> {}: {} Mbit/s of payload", from, to, number(direction.bits_per_s / kMega));
  if (direction.streams > 0) text += fmt::format(" with {} connections", direction.streams);
  if (direction.loaded_rtt) {
    text += fmt::format(", round trip {} ms under load", number(ms(*direction.loaded_rtt)));
  }
  text += direction.retransmits
              ? fmt::format(", {} of {} segments sent again", direction.retransmits->repeated,
                            direction.retransmits->segments)
              : ", losses not measured";
  return text;
}

bool is_own(const PairMeasurement& pair, WorkerId self) { return pair.a == self || pair.b == self; }

}  // namespace

std::optional<double> CarryingCost::bits_a_core() const {
  constexpr double kFewestSeconds = 0.02;  // of a clock that ticks in hundredths
  constexpr std::uint64_t kFewestBytes = 1 << 20;
  if (bytes < kFewestBytes || processor_s < kFewestSeconds) return std::nullopt;
  return 8 * static_cast<double>(bytes) / processor_s;
}

bool CarryingCost::bounds(double bits_per_s) const {
  constexpr double kBusy = 0.5;  // several threads share the work, and the busiest has half of it
  const std::optional<double> core = bits_a_core();
  return core && bits_per_s >= kBusy * *core;
}

CarryingCost carrying_cost(const Survey& survey, WorkerId self, double processor_s) {
  CarryingCost cost{.self = self, .processor_s = processor_s};
  for (const PairMeasurement& pair : survey.pairs) {
    if (is_own(pair, self)) cost.bytes += pair.up.bytes + pair.down.bytes;
  }
  return cost;
}

std::string carrying_words(const Survey& survey, const CarryingCost& cost) {
  const std::optional<double> core = cost.bits_a_core();
  if (!core) return {};
  double fastest = 0;
  for (const PairMeasurement& pair : survey.pairs) {
    if (is_own(pair, cost.self)) {
      fastest = std::max({fastest, pair.up.bits_per_s, pair.down.bits_per_s});
    }
  }
  return fmt::format(
      "{} sent and received {} for {:.2f} s of processor time: {} a core. Its fastest direction, "
      "{}, takes {:.0f} % of a core, so this site's processor {} it.",
      name_of(survey, cost.self), human_bytes(static_cast<double>(cost.bytes)), cost.processor_s,
      human_rate(*core), human_rate(fastest), 100 * fastest / *core,
      cost.bounds(fastest) ? "bounds" : "does not bound");
}

std::string link_table(const Survey& survey, const Terminal& terminal) {
  TextTable table({"link", "Mbit/s", "streams", "rtt ms", "p99", "jitter", "loaded", "resent",
                   "Mbit/s by number of streams"});
  const char* arrow = terminal.unicode() ? "→" : "->";
  bool unmeasured = false;
  for (const PairMeasurement& pair : survey.pairs) {
    for (const bool up : {true, false}) {
      const DirectionMeasurement& direction = up ? pair.up : pair.down;
      unmeasured = unmeasured || !direction.retransmits || !direction.loaded_rtt;
      table.add({fmt::format("{} {} {}", name_of(survey, up ? pair.a : pair.b), arrow,
                             name_of(survey, up ? pair.b : pair.a)),
                 number(direction.bits_per_s / kMega),
                 direction.streams == 0 ? "-" : std::to_string(direction.streams),
                 number(ms(pair.echo.p50)), number(ms(pair.echo.p99)), number(ms(pair.echo.jitter)),
                 direction.loaded_rtt ? number(ms(*direction.loaded_rtt)) : "-",
                 share_text(direction.retransmits), scan_text(direction)});
    }
  }
  std::string words =
      "Mbit/s: steady payload with that many streams, the fewest that reach 90 % of the best rate, "
      "in frames of 20 ms at that rate, but 4 to 512 KiB. rtt: median of small echoes on the idle "
      "link; loaded: TCP's, while the "
      "link is full; resent: segments that TCP sent again, full queues included.";
  if (unmeasured) words += " -: not measured on this system.";
  return table.text(terminal) + "\n" + wrapped(words, 0, terminal.width());
}

std::string link_json(const Survey& survey, const PairMeasurement& pair, bool up) {
  const DirectionMeasurement& direction = up ? pair.up : pair.down;
  JsonLine line;
  line.add("bench", "link")
      .add("from", name_of(survey, up ? pair.a : pair.b))
      .add("to", name_of(survey, up ? pair.b : pair.a))
      .add("bits_per_s", std::round(direction.bits_per_s))
      .add("bytes", direction.bytes)
      .add("rtt_p50_ms", ms(pair.echo.p50))
      .add("rtt_p99_ms", ms(pair.echo.p99))
      .add("rtt_least_ms", ms(pair.echo.least))
      .add("echoes", pair.echo.samples)
      .add("jitter_ms", ms(pair.echo.jitter));
  direction.streams > 0 ? line.add("streams", direction.streams) : line.add_null("streams");
  line.add_list("scan", direction.scan, [](const StreamRate& each) {
    return JsonLine().add("streams", each.streams).add("bits_per_s", std::round(each.bits_per_s));
  });
  direction.loaded_rtt ? line.add("rtt_loaded_ms", ms(*direction.loaded_rtt))
                       : line.add_null("rtt_loaded_ms");
  if (direction.retransmits) {
    line.add("segments", direction.retransmits->segments)
        .add("segments_resent", direction.retransmits->repeated);
  } else {
    line.add_null("segments").add_null("segments_resent");
  }
  return line.add_or_null("congestion", direction.congestion).str();
}

NotedLink noted_link(const Survey& survey, const PairMeasurement& pair) {
  NotedLink noted;
  LinkConfig& link = noted.link;
  link.a = name_of(survey, pair.a);
  link.b = name_of(survey, pair.b);
  link.rtt = rounded(base_rtt(pair.echo));
  link.jitter = rounded(pair.echo.jitter);
  link.streams = static_cast<int>(std::max({1u, pair.up.streams, pair.down.streams}));
  // If the two senders differ, the answer for the one that starts slowly after each pause.
  for (const DirectionMeasurement* direction : {&pair.up, &pair.down}) {
    const bool bbr = direction->congestion.empty() || direction->congestion.starts_with("bbr");
    if (!bbr) link.congestion = "cubic";  // Reno, too, starts slowly
  }
  const DirectedLink model = directed_link(link, true);
  link.bits_per_s_up = significant(line_rate(pair.up.bits_per_s, model));
  link.bits_per_s_down = significant(line_rate(pair.down.bits_per_s, model));
  noted.notes = {note_of(link.a, link.b, pair.up), note_of(link.b, link.a, pair.down),
                 fmt::format("{} echoes: median {} ms, 99 of 100 within {} ms", pair.echo.samples,
                             number(ms(pair.echo.p50)), number(ms(pair.echo.p99)))};
  return noted;
}

}  // namespace isthmus::app
