// SPDX-License-Identifier: Apache-2.0
#include "app/observe/status_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "app/common/text_table.h"
#include "core/base/units.h"

namespace isthmus::app {
namespace {

constexpr std::size_t kBarColumns = 24;
constexpr std::size_t kSparkColumns = 28;
constexpr std::size_t kMostSites = 12;
constexpr std::size_t kMostDrops = 3;

/// "part   part   part" of the parts that are not empty.
class Line {
 public:
  explicit Line(std::string start) : text_(std::move(start)) {}
  Line& add(const std::string& part) {
    if (!part.empty()) {
      text_ += (empty_ ? "" : "   ") + part;
      empty_ = false;
    }
    return *this;
  }
  [[nodiscard]] bool empty() const { return empty_; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool empty_ = true;
};

std::string head(const RunStatus& status, const Terminal& terminal) {
  const Style style = !status.healthy             ? Style::kBad
                      : status.state == "running" ? Style::kGood
                      : status.state == "ok"      ? Style::kGood
                                                  : Style::kWarn;
  const std::string state =
      !status.healthy && status.state == "running" ? "not well" : status.state;
  std::string what = status.method;
  if (!what.empty()) what += ", ";
  if (status.members < status.workers) what += fmt::format("{} of ", status.members);
  what += fmt::format("{} worker{}", status.workers, status.workers == 1 ? "" : "s");
  if (status.parameters > 0) {
    what += fmt::format(", {} parameters", human_count(static_cast<double>(status.parameters)));
  }
  if (!status.device.empty() && status.device != "cpu") what += ", on " + status.device;
  return fmt::format(" {}  {}  {}", terminal.paint(Style::kBold, status.name),
                     terminal.paint(style, state), terminal.paint(Style::kDim, what));
}

std::string progress(const RunStatus& status, const Terminal& terminal) {
  Line line(" ");
  if (status.steps > 0) {
    const double share = static_cast<double>(status.step) / static_cast<double>(status.steps);
    line.add(fmt::format("step {}/{}  {} {:3.0f}%", with_commas(status.step),
                         with_commas(status.steps), terminal.bar(share, kBarColumns), share * 100));
  } else {
    line.add("step " + with_commas(status.step));
  }
  if (status.state == "running" && status.eta_s && status.step < status.steps) {
    line.add("eta " + human_time(*status.eta_s));
  }
  if (status.elapsed_s > 0) line.add(human_time(status.elapsed_s) + " so far");
  if (status.simulated_s) line.add("simulated clock " + human_time(*status.simulated_s));
  return line.text();
}

std::string losses(const RunStatus& status, const Terminal& terminal) {
  Line line(" ");
  if (status.loss) line.add(terminal.paint(Style::kBold, fmt::format("loss {:.4f}", *status.loss)));
  line.add(terminal.paint(Style::kAccent, spark_line(status.loss_curve, kSparkColumns, terminal)));
  if (status.eval_loss) {
    line.add(fmt::format("val {:.4f} @{}", *status.eval_loss, with_commas(status.eval_step)));
  }
  if (status.learning_rate) line.add(fmt::format("lr {:.3g}", *status.learning_rate));
  return line.empty() ? "" : line.text();
}

std::string speeds(const RunStatus& status) {
  Line line(" ");
  if (status.tokens_per_s) line.add(human_count(*status.tokens_per_s) + " tok/s");
  if (status.tokens > 0) line.add(human_count(static_cast<double>(status.tokens)) + " tokens");
  if (status.checkpoints > 0) {
    line.add(fmt::format("checkpoint at step {}, {}, {} ago", with_commas(status.checkpoint_step),
                         human_bytes(static_cast<double>(status.checkpoint_bytes)),
                         human_time(status.checkpoint_ago_s)));
  }
  return line.empty() ? "" : line.text();
}

std::string rounds(const RunStatus& status) {
  if (status.rounds() == 0) {
    return "";
  }
  std::uint64_t one = 0;  // bytes of one worker, where no worker's own are known
  double last_wait = 0;
  std::int64_t last_step = -1;
  for (const auto& [id, fragment] : status.fragments) {
    one += fragment.wire_bytes;
    if (fragment.last_step > last_step) {
      last_step = fragment.last_step;
      last_wait = fragment.last_wait_s;
    }
  }
  Line line(" ");
  line.add(fmt::format("{} rounds", with_commas(status.rounds())));
  const std::uint64_t all = status.sent_bytes();
  line.add(all > 0 ? human_bytes(static_cast<double>(all)) + " between sites"
                   : human_bytes(static_cast<double>(one)) + " sent by one worker");
  line.add(fmt::format("waited {} in all, {} for the last", human_time(status.wait_s()),
                       human_time(last_wait)));
  if (status.late && status.late->rounds > 0) {
    line.add(fmt::format("late for {}, {} steps skipped", with_commas(status.late->rounds),
                         with_commas(status.late->steps_skipped)));
  }
  return line.text();
}

std::string link_text(const PeerStatus& peer, const Terminal& terminal) {
  if (!peer.connected) {
    return terminal.paint(Style::kBad, peer.cause.empty() ? "not connected" : peer.cause);
  }
  std::string text = "connected";
  if (peer.tcp && peer.tcp->around) text += " by way of a relay";
  if (peer.heard_s >= 0) text += fmt::format(", heard {} ago", human_time(peer.heard_s));
  if (peer.tcp && !peer.tcp->around && peer.tcp->rtt_s) {
    text += fmt::format(", round trip {}", human_time(*peer.tcp->rtt_s));
  }
  return text;
}

/// A row a site: its progress, and for another process's site the link to it.
void add_sites(const RunStatus& status, const Terminal& terminal, std::vector<std::string>& lines) {
  if (status.sites.size() < 2 || (status.sent_bytes() == 0 && status.peers.empty())) {
    return;
  }
  std::size_t columns = 4;
  for (const WorkerStatus& site : status.sites) {
    columns = std::max(columns, display_width(site.name));
  }
  for (std::size_t m = 0; m < std::min(status.sites.size(), kMostSites); ++m) {
    const WorkerStatus& site = status.sites[m];
    std::string line =
        fmt::format("   {}{}", site.name, std::string(columns - display_width(site.name), ' '));
    const double clock = status.simulated_s.value_or(status.elapsed_s);
    if (site.compute_s > 0 && clock > 0) {
      const double share = std::min(1.0, site.compute_s / clock);
      line += fmt::format("  compute {} {:3.0f}%", terminal.bar(share, 8), share * 100);
    }
    line += fmt::format("  {:>8} sent", human_bytes(static_cast<double>(site.wire_bytes)));
    const auto peer = std::ranges::find(status.peers, site.name, &PeerStatus::name);
    if (peer != status.peers.end()) {
      line +=
          fmt::format("  {:>8} from it  {}", human_bytes(static_cast<double>(peer->received_bytes)),
                      link_text(*peer, terminal));
    } else if (!status.peers.empty()) {
      line += terminal.paint(Style::kDim, "  this site");
    }
    lines.push_back(line);
  }
  if (status.sites.size() > kMostSites) {
    lines.push_back(terminal.paint(
        Style::kDim, fmt::format("   and {} more", status.sites.size() - kMostSites)));
  }
  for (const PeerStatus& peer : status.peers) {  // a hub is no site
    if (std::ranges::find(status.sites, peer.name, &WorkerStatus::name) == status.sites.end()) {
      lines.push_back(fmt::format("   {}{}  {}", peer.name,
                                  std::string(columns - std::min(columns, peer.name.size()), ' '),
                                  link_text(peer, terminal)));
    }
  }
}

void add_drops(const RunStatus& status, const Terminal& terminal, std::vector<std::string>& lines) {
  const std::size_t first = status.drops.size() > kMostDrops ? status.drops.size() - kMostDrops : 0;
  for (std::size_t i = first; i < status.drops.size(); ++i) {
    const LinkDrop& drop = status.drops[i];
    lines.push_back(terminal.paint(Style::kWarn, fmt::format("   link {} {} ago: {}", drop.kind,
                                                             human_time(drop.ago_s), drop.cause)));
  }
  if (first > 0) {
    lines.push_back(terminal.paint(Style::kDim, fmt::format("   {} earlier link events", first)));
  }
}

}  // namespace

std::string spark_line(const std::vector<ThinCurve::Point>& curve, std::size_t columns,
                       const Terminal& terminal) {
  constexpr std::array<std::string_view, 8> kHeights = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  std::vector<double> values;
  for (const auto& [step, value] : curve) {
    if (std::isfinite(value)) values.push_back(value);
  }
  if (!terminal.unicode() || values.size() < 2 || columns == 0) {
    return "";
  }
  const std::size_t bars = std::min(columns, values.size());
  std::vector<double> means;
  for (std::size_t i = 0; i < bars; ++i) {
    const std::size_t begin = i * values.size() / bars;
    const std::size_t end = (i + 1) * values.size() / bars;
    double sum = 0;
    for (std::size_t j = begin; j < end; ++j) sum += values[j];
    means.push_back(sum / static_cast<double>(end - begin));
    low = std::min(low, means.back());
    high = std::max(high, means.back());
  }
  std::string text;
  for (const double mean : means) {
    const double range = high - low;  // of any numbers: it may lie beyond them
    const double share = range > 0 && std::isfinite(range) ? (mean - low) / range : 0;
    text += kHeights[std::min<std::size_t>(7, static_cast<std::size_t>(share * 8))];
  }
  return text;
}

std::vector<std::string> status_lines(const RunStatus& status, const Terminal& terminal,
                                      const std::string& source) {
  std::vector<std::string> lines = {head(status, terminal)};
  const auto add = [&lines](const std::string& line) {
    if (!line.empty()) lines.push_back(line);
  };
  if (!status.healthy || status.state != "running") {
    add(" " + (status.healthy ? status.word : terminal.paint(Style::kBad, status.word)));
  }
  add(progress(status, terminal));
  add(losses(status, terminal));
  add(speeds(status));
  add(rounds(status));
  add_sites(status, terminal, lines);
  for (const SlowRank& each : status.slow_ranks) {
    lines.push_back(terminal.paint(
        Style::kWarn, fmt::format("  rank {} {} {:.1f} times slower than its peers since step {}",
                                  each.rank, each.what, each.factor, each.since)));
  }
  add_drops(status, terminal, lines);
  add(terminal.paint(Style::kDim, " " + source));
  return lines;
}

}  // namespace isthmus::app
