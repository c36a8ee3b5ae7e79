// SPDX-License-Identifier: Apache-2.0
#include "record/tensorboard_scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/base/json_input.h"
#include "record/json_values.h"
#include "record/tensorboard_event.h"

namespace isthmus::report {
namespace {

/// Places, clocks and identities: fields that are no quantity to draw.
constexpr std::array<std::string_view, 7> kNotDrawn = {"v", "k", "w", "step", "t", "ts", "frag"};

/// Fields of rounds about the contributions; null if the method does not measure them.
constexpr std::array<const char*, 2> kOfContributions = {"err", "cos"};

bool is_quantity(const Json& value) {
  if (value.is_number()) {
    return true;
  }
  const auto* text = value.get_ptr<const std::string*>();
  return text != nullptr && (*text == "nan" || *text == "inf" || *text == "-inf");
}

std::vector<Scalar> scalars_of(const Json& line, const std::string& group) {
  std::vector<Scalar> scalars;
  for (const auto& [key, value] : line.items()) {
    const bool place = std::find(kNotDrawn.begin(), kNotDrawn.end(), key) != kNotDrawn.end();
    if (!place && is_quantity(value)) {
      scalars.push_back({fmt::format("{}/{}", group, key), static_cast<float>(number_of(value))});
    }
    if (key != "sources" || !value.is_object()) continue;
    for (const auto& [source, of_source] : value.items()) {
      if (!of_source.is_object() || !of_source.contains("loss")) continue;
      const auto loss = static_cast<float>(number_of(of_source["loss"]));
      scalars.push_back({fmt::format("{}/loss-{}", group, source), loss});
    }
  }
  return scalars;
}

}  // namespace

bool TensorBoardScalars::take(std::string_view text, std::string& records) {
  const Json line = read_json(text);
  const std::string kind = line.is_object() ? text_at(line, "k") : "";
  const std::int64_t step = line.is_object() ? integer_at(line, "step", -1) : -1;
  if (kind == "round" && step >= 0) {
    if (rounds_ && rounds_->step != step) {
      finish(records);
    }
    Rounds& rounds = rounds_ ? *rounds_ : rounds_.emplace(Rounds{.step = step});
    const double norm = number_at(line, "delta_norm");
    const double members = number_at(line, "members", 0);
    rounds.payload_bytes += number_at(line, "bytes_payload", 0);
    rounds.wire_bytes += number_at(line, "bytes_wire", 0);
    rounds.wait_s += number_at(line, "wait_s", 0);
    rounds.squares += norm * norm;
    rounds.members = rounds.count++ == 0 ? members : std::min(rounds.members, members);
    auto& fragment = rounds.fragments[integer_at(line, "frag", 0)];
    fragment["delta_norm"] = norm;
    for (const char* key : kOfContributions) {
      if (const auto found = line.find(key); found != line.end() && is_quantity(*found)) {
        fragment[key] = number_of(*found);
      }
    }
    return true;
  }
  finish(records);
  const double now = number_at(line, simulated_ ? "ts" : "t");
  if (std::isfinite(now)) {
    wall_s_ = now;
  }
  if (kind == "train" || kind == "eval" || kind == "ckpt" || kind == "worker") {
    if (step < 0) {
      return false;
    }
    const std::string group =
        kind == "worker" ? fmt::format("worker-{}", integer_at(line, "w", 0)) : kind;
    const std::vector<Scalar> scalars = scalars_of(line, group);
    if (!scalars.empty()) {
      records += scalars_record(wall_s_, step, scalars);
    }
  }
  return !kind.empty();  // other kinds, those of later versions too, hold nothing to draw
}

void TensorBoardScalars::finish(std::string& records) {
  if (!rounds_) {
    return;
  }
  const auto value = [](double number) { return static_cast<float>(number); };
  std::vector<Scalar> scalars = {{"round/bytes_payload", value(rounds_->payload_bytes)},
                                 {"round/bytes_wire", value(rounds_->wire_bytes)},
                                 {"round/wait_s", value(rounds_->wait_s)},
                                 {"round/delta_norm", value(std::sqrt(rounds_->squares))},
                                 {"round/fragments", static_cast<float>(rounds_->count)},
                                 {"round/members", value(rounds_->members)}};
  for (const char* key : kOfContributions) {
    double sum = 0;
    int count = 0;
    for (const auto& [fragment, numbers] : rounds_->fragments) {
      if (const auto found = numbers.find(key); found != numbers.end()) {
        sum += found->second;
        ++count;
      }
    }
    if (count > 0) {
      scalars.push_back({fmt::format("round/{}", key), value(sum / count)});
    }
  }
  for (const auto& [fragment, numbers] : rounds_->fragments) {
    for (const auto& [key, number] : numbers) {
      scalars.push_back({fmt::format("fragment-{}/{}", fragment, key), value(number)});
    }
  }
  records += scalars_record(wall_s_, rounds_->step, scalars);
  rounds_.reset();
}

std::string tensorboard_opening(double wall_s, bool simulated, std::string_view config) {
  std::string records = file_version_record(wall_s);
  records += session_start_record(wall_s, 0);
  records += text_record(
      wall_s, 0, "clock",
      simulated ? "Simulated: wall times are simulated seconds, counted from 1970. On the "
                  "horizontal axis RELATIVE is the run's simulated clock."
                : "Real: wall times are those of the machine that ran it.");
  if (!config.empty()) {
    records += text_record(wall_s, 0, "config", fmt::format("```toml\n{}\n```\n", config));
  }
  return records;
}

std::string tensorboard_reopening(double wall_s, std::int64_t resumed_after) {
  const std::string start = session_start_record(wall_s, resumed_after + 1);
  return file_version_record(wall_s) + start + start;
}

}  // namespace isthmus::report
