// SPDX-License-Identifier: Apache-2.0
#include "session/checks/data_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "data/control_count.h"
#include "data/tokenize/document_blocks.h"
#include "session/run/run_samples.h"
#include "session/run/run_settings.h"

namespace isthmus::app {

std::vector<SourcePasses> passes_by_source(const Config& config, const Dataset& data) {
  const std::int64_t tokens_per_step = batch_plan(config).samples * config.train.context;
  const double tokens =
      static_cast<double>(total_steps(config)) * static_cast<double>(tokens_per_step);
  std::vector<SourcePasses> all;
  for (const Dataset::Source& source : data.sources()) {
    const std::int64_t train = source.tokens - data.validation_tokens_of(source);
    all.push_back({.name = source.name,
                   .share = source.share,
                   .train_tokens = train,
                   .passes = tokens * source.share / static_cast<double>(train)});
  }
  return all;
}

double epochs(const Config& config, const Dataset& data) {
  double most = 0;
  for (const SourcePasses& source : passes_by_source(config, data)) {
    most = std::max(most, source.passes);
  }
  return most;
}

std::string passes_text(double passes) {
  return passes < 10 ? fmt::format("{:.1f}", passes)
                     : with_commas(static_cast<std::int64_t>(std::llround(passes)));
}

std::string epochs_note(const Config& config, const Dataset& data) {
  // Muennighoff et al. (arXiv:2305.16264): up to four passes teach nearly as much as new data.
  constexpr double kAsGoodAsNew = 4;
  std::string read;
  for (const SourcePasses& source : passes_by_source(config, data)) {
    if (source.passes <= kAsGoodAsNew) continue;
    read += fmt::format("{}the {} training tokens of {} {} times", read.empty() ? "" : ", ",
                        with_commas(source.train_tokens),
                        source.name.empty() ? fmt::format("data.source = \"{}\"", data.source())
                                            : "data.sources." + source.name,
                        passes_text(source.passes));
  }
  if (read.empty()) return {};
  return fmt::format(
      "{} steps read {}; beyond about 4 passes a model learns its data by heart "
      "(arXiv:2305.16264): use more data or fewer steps",
      with_commas(total_steps(config)), read);
}

namespace {

constexpr std::size_t kControlsLooked = 65536;

/// Looks at the beginning of a text for control characters, and for NULs at up to `room` bytes of
/// it: at all of them, or half at its beginning and half at its end, where a file that was cut off
/// has them. RETURNS: bytes looked at.
std::size_t look_at(std::string_view text, const std::string& file, std::size_t room,
                    ControlCount& count) {
  count.add_text(text.substr(0, kControlsLooked), file, 0);
  if (text.size() <= kControlsLooked) return text.size();
  const auto nuls_in = [&](std::size_t begin, std::size_t end) {
    count.add_nuls(text.substr(begin, end - begin), file, static_cast<std::int64_t>(begin));
  };
  if (text.size() <= room) {
    nuls_in(kControlsLooked, text.size());
    return text.size();
  }
  count.whole = false;
  const std::size_t half = std::max(room / 2, kControlsLooked);
  nuls_in(kControlsLooked, half);
  nuls_in(std::max(half, text.size() - half), text.size());
  return 2 * half;
}

}  // namespace

std::string binary_note(const Dataset& data) {
  constexpr const char* kBytes =
      "the model learns the bytes; if they are tokens, say so: data.source = \"tokens:FILE\"";
  std::size_t room = kMostLookedAtForNuls;
  for (const Dataset::Segment& segment : data.segments()) {
    if (segment.file.format != "text") continue;
    const std::string file = segment.file.path.string();
    const std::string_view text(reinterpret_cast<const char*>(segment.file.tokens.data),
                                static_cast<std::size_t>(segment.file.tokens.count));
    ControlCount count;
    room -= std::min(room, look_at(text, file, room, count));
    if (std::string note = controls_note(count, kBytes); !note.empty()) return note;
  }
  return {};
}

std::string json_lines_note(const Dataset& data) {
  for (const Dataset::Segment& segment : data.segments()) {
    if (segment.file.format != "text" || !names_json_lines(segment.file.path)) continue;
    return fmt::format(
        "{}: holds JSON lines: the model learns their brackets, keys and escapes too; isthmus data "
        "tokenize makes tokens of one field",
        segment.file.path.string());
  }
  return {};
}

NamedConversations packed_sources(const Dataset& data) {
  NamedConversations packed;
  for (const Dataset::Source& source : data.sources()) {
    if (source.packed) packed.emplace_back(source.name, *source.packed);
  }
  return packed;
}

std::vector<std::string> conversations_texts(const Dataset& data) {
  std::vector<std::string> texts;
  for (const auto& [name, packed] : packed_sources(data)) {
    texts.push_back((name.empty() ? "" : name + ": ") + conversations_text(packed));
  }
  return texts;
}

std::string conversations_warning(const Dataset& data) {
  std::string warning;
  for (const auto& [name, packed] : packed_sources(data)) {
    const std::string note = conversations_note(packed);
    if (note.empty()) continue;
    warning += (warning.empty() ? "" : "; ") + (name.empty() ? note : name + ": " + note);
  }
  return warning;
}

std::vector<std::string> notes_on_data(const Config& config, const Dataset& data) {
  std::vector<std::string> notes = {epochs_note(config, data), binary_note(data),
                                    json_lines_note(data), conversations_warning(data)};
  std::erase(notes, "");
  return notes;
}

}  // namespace isthmus::app
