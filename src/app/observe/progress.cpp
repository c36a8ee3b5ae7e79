// SPDX-License-Identifier: Apache-2.0
#include "app/observe/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/log.h"
#include "core/base/units.h"
#include "record/json_line.h"
#include "record/wall_clock.h"

namespace isthmus::app {
namespace {

// Seconds.
constexpr double kSilence = 2;
constexpr double kRedraw = 0.25;
constexpr double kPlainPeriod = 10;
constexpr double kJsonPeriod = 1;

constexpr std::size_t kMostWorkers = 8;
constexpr std::size_t kProgressBarColumns = 28;

std::string loss_text(const ProgressUpdate& update) {
  if (update.loss == 0) {
    return "";
  }
  std::string text = fmt::format("loss {:.4f}", update.loss);
  if (update.eval_loss) {
    text += fmt::format(" (val {:.4f} @{})", *update.eval_loss, with_commas(update.eval_step));
  }
  return text;
}

std::string count_text(const ProgressUpdate& update) {
  return update.total > 0 ? fmt::format("{} {}/{}", update.activity, with_commas(update.done),
                                        with_commas(update.total))
                          : fmt::format("{} {}", update.activity, with_commas(update.done));
}

double fraction_of(const ProgressUpdate& update) {
  if (update.fraction) {
    return *update.fraction;
  }
  return update.total > 0 ? static_cast<double>(update.done) / static_cast<double>(update.total)
                          : 0;
}

std::string totals_text(const ProgressUpdate& update) {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : "   ") + part; };
  if (update.simulated_s) {
    add(fmt::format("simulated clock {}", human_time(*update.simulated_s)));
  }
  if (update.bytes_sent > 0) {
    add(fmt::format("between sites {} in {} rounds",
                    human_bytes(static_cast<double>(update.bytes_sent)), update.rounds));
  }
  if (update.checkpoint_age_s >= 0) {
    add(fmt::format("last checkpoint {} ago", human_time(update.checkpoint_age_s)));
  }
  return text;
}

std::string pad(const std::string& text, std::size_t columns) {
  const std::size_t used = display_width(text);
  return used < columns ? text + std::string(columns - used, ' ') : text;
}

std::string worker_line(const Terminal& terminal, const WorkerProgress& worker,
                        std::size_t name_columns) {
  std::string text = fmt::format("   {}", pad(worker.name, name_columns));
  if (worker.compute_share >= 0) {
    text += fmt::format("  compute {} {:3.0f}%", terminal.bar(worker.compute_share, 10),
                        worker.compute_share * 100);
  }
  if (worker.tokens_per_s > 0) {
    text += fmt::format("  {:>6} tok/s", human_count(worker.tokens_per_s));
  }
  if (!worker.note.empty()) {
    text += "  " + terminal.paint(Style::kDim, worker.note);
  }
  return text;
}

template <typename Item>
std::size_t longest_name(const std::vector<Item>& items, std::size_t most) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < std::min(items.size(), most); ++i) {
    columns = std::max(columns, display_width(items[i].name));
  }
  return columns;
}

Style style_of(LogLevel level) {
  switch (level) {
    case LogLevel::kWarning:
      return Style::kWarn;
    case LogLevel::kError:
      return Style::kBad;
    default:
      return Style::kPlain;
  }
}

}  // namespace

Progress::Progress(Terminal& terminal, ProgressMode mode)
    : terminal_(terminal),
      mode_(mode == ProgressMode::kAuto && !terminal.interactive() ? ProgressMode::kPlain : mode),
      block_(terminal),
      next_(monotonic_now() + kSilence),
      first_time_(monotonic_now()) {
  set_log_sink([this](LogLevel level, std::string_view line) {
    const std::string text = terminal_.paint(style_of(level), line) + "\n";
    if (mode_ == ProgressMode::kAuto) {
      block_.print_above(text);
    } else {
      terminal_.write(text);
    }
  });
}

Progress::~Progress() {
  set_log_sink({});
  finish();
}

bool Progress::due() const {
  if (mode_ == ProgressMode::kNone) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  return first_done_ < 0 || monotonic_now() >= next_;
}

void Progress::update(const ProgressUpdate& update) {
  if (mode_ == ProgressMode::kNone) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const double now = monotonic_now();
  if (first_done_ < 0 || update.done < first_done_) {
    first_done_ = update.done;
    first_fraction_ = fraction_of(update);
    first_time_ = now;
  }
  if (now < next_) {
    return;
  }
  switch (mode_) {
    case ProgressMode::kAuto:
      show_block(update);
      next_ = now + kRedraw;
      break;
    case ProgressMode::kPlain:
      show_line(update);
      next_ = now + kPlainPeriod;
      break;
    case ProgressMode::kJson:
      show_json(update);
      next_ = now + kJsonPeriod;
      break;
    case ProgressMode::kNone:
      break;
  }
}

std::string Progress::eta(const ProgressUpdate& update) const {
  const double elapsed = monotonic_now() - first_time_;
  if (update.fraction) {
    const double gained = *update.fraction - first_fraction_;
    return gained <= 0 || elapsed <= 0
               ? ""
               : fmt::format("eta {}", human_time(elapsed * (1 - *update.fraction) / gained));
  }
  const auto made = static_cast<double>(update.done - first_done_);
  if (made <= 0 || elapsed <= 0) {
    return "";
  }
  const double rate = made / elapsed;
  std::string text = rate >= 100 ? fmt::format("{:.0f}/s", rate)
                     : rate >= 1 ? fmt::format("{:.1f}/s", rate)
                                 : fmt::format("{} each", human_time(1 / rate));
  if (update.total > update.done) {
    text += fmt::format("   eta {}",
                        human_time(static_cast<double>(update.total - update.done) / rate));
  }
  return text;
}

void Progress::show_block(const ProgressUpdate& update) {
  std::vector<std::string> lines;
  std::string head = " " + count_text(update);
  if (update.total > 0) {
    head += fmt::format("  {} {:3.0f}%", terminal_.bar(fraction_of(update), kProgressBarColumns),
                        fraction_of(update) * 100);
  }
  if (const std::string rate = eta(update); !rate.empty()) {
    head += "   " + rate;
  }
  if (const std::string loss = loss_text(update); !loss.empty()) {
    head += "   " + terminal_.paint(Style::kBold, loss);
  }
  lines.push_back(head);
  const std::size_t lane_columns = longest_name(update.lanes, update.lanes.size());
  for (const LaneProgress& lane : update.lanes) {
    lines.push_back(fmt::format("   {}  {} {:3.0f}%   {}", pad(lane.name, lane_columns),
                                terminal_.bar(lane.fraction, kProgressBarColumns),
                                lane.fraction * 100, lane.text));
  }
  const std::size_t worker_columns = longest_name(update.workers, kMostWorkers);
  for (std::size_t i = 0; i < std::min(update.workers.size(), kMostWorkers); ++i) {
    lines.push_back(worker_line(terminal_, update.workers[i], worker_columns));
  }
  if (update.workers.size() > kMostWorkers) {
    lines.push_back(terminal_.paint(
        Style::kDim, fmt::format("   and {} more workers", update.workers.size() - kMostWorkers)));
  }
  if (const std::string totals = totals_text(update); !totals.empty()) {
    lines.push_back(terminal_.paint(Style::kDim, "   " + totals));
  }
  block_.draw(lines);
}

void Progress::show_line(const ProgressUpdate& update) {
  std::string line = count_text(update);
  if (update.total > 0) {
    line += fmt::format(" {:.0f}%", fraction_of(update) * 100);
  }
  const auto add = [&line](const std::string& part) {
    if (!part.empty()) {
      line += "   " + part;
    }
  };
  add(eta(update));
  add(loss_text(update));
  if (update.tokens_per_s > 0) {
    add(human_count(update.tokens_per_s) + " tok/s");
  }
  for (const LaneProgress& lane : update.lanes) {
    add(fmt::format("{} {:.0f}% {}", lane.name, lane.fraction * 100, lane.text));
  }
  add(totals_text(update));
  terminal_.write(line + "\n");
}

void Progress::show_json(const ProgressUpdate& update) {
  JsonLine line;
  line.add("k", "progress").add("activity", update.activity).add("done", update.done);
  line.add("total", update.total);
  if (update.fraction) {
    line.add("fraction", *update.fraction);
  }
  line.add("loss", update.loss).add("tok_s", update.tokens_per_s);
  if (update.simulated_s) {
    line.add("ts", *update.simulated_s);
  }
  line.add("bytes", update.bytes_sent).add("rounds", update.rounds);
  terminal_.write(line.str() + "\n");
}

void Progress::finish() { block_.finish(false); }

}  // namespace isthmus::app
