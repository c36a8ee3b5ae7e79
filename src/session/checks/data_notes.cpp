// SPDX-License-Identifier: Apache-2.0
#include "session/checks/data_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/units.h"
#include "session/run/run_samples.h"
#include "session/run/run_settings.h"

namespace isthmus::app {

double epochs(const Config& config, const Dataset& data) {
  const std::int64_t tokens_per_step = batch_plan(config).samples * config.train.context;
  return static_cast<double>(total_steps(config)) * static_cast<double>(tokens_per_step) /
         static_cast<double>(data.train_tokens());
}

std::string epochs_note(const Config& config, const Dataset& data) {
  // Muennighoff et al. (arXiv:2305.16264): up to four passes teach nearly as much as new data.
  constexpr double kAsGoodAsNew = 4;
  const double passes = epochs(config, data);
  if (passes <= kAsGoodAsNew) return {};
  return fmt::format(
      "{} steps read the {} training tokens of data.source = \"{}\" {} times; beyond about 4 "
      "passes a model learns its data by heart (arXiv:2305.16264): use more data or fewer steps",
      with_commas(total_steps(config)), with_commas(data.train_tokens()), data.source(),
      passes < 10 ? fmt::format("{:.1f}", passes)
                  : with_commas(static_cast<std::int64_t>(std::llround(passes))));
}

std::string binary_note(const Dataset& data) {
  // Texts of every encoding of one or two bytes have next to no control characters; compressed or
  // executable files have one byte in nine.
  constexpr std::int64_t kLooked = 65536;
  constexpr std::int64_t kOneIn = 50;
  if (data.format() != "text") return {};
  for (const Dataset::Segment& segment : data.segments()) {
    std::vector<std::int32_t> ids(
        static_cast<std::size_t>(std::min(kLooked, segment.file.tokens.count)));
    data.read(segment.begin, ids);
    const auto controls = std::ranges::count_if(ids, [](std::int32_t id) {
      return (id < 0x20 && id != '\t' && id != '\n' && id != '\r' && id != '\f') || id == 0x7f;
    });
    if (controls * kOneIn <= std::ssize(ids)) continue;
    return fmt::format(
        "{} of the first {} bytes of {} are control characters, which a text hardly has: the model "
        "learns the bytes of a binary file; if they are tokens, say so: data.source = "
        "\"tokens:FILE\"",
        with_commas(controls), with_commas(std::ssize(ids)), segment.file.path.string());
  }
  return {};
}

std::vector<std::string> notes_on_data(const Config& config, const Dataset& data) {
  std::vector<std::string> notes = {epochs_note(config, data), binary_note(data)};
  std::erase(notes, "");
  return notes;
}

}  // namespace isthmus::app
