// SPDX-License-Identifier: Apache-2.0
#include "outer/place/lane_state.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace isthmus::outer {
namespace {
[[noreturn]] void none_in_a_lane(std::string_view name) {
  throw std::logic_error("a lane has tensors and integers alone, no " + std::string(name));
}
}  // namespace

LaneWriter::LaneWriter(Calls calls) : calls_(std::move(calls)) {}

void LaneWriter::tensor(std::string_view name, std::span<const float> values) {
  calls_.tensor(name, values);
}

void LaneWriter::integer(std::string_view name, std::int64_t value) { calls_.integer(name, value); }

void LaneWriter::bytes(std::string_view name, std::span<const std::byte>) { none_in_a_lane(name); }
void LaneWriter::real(std::string_view name, double) { none_in_a_lane(name); }
void LaneWriter::text(std::string_view name, std::string_view) { none_in_a_lane(name); }

LaneReader::LaneReader(Calls calls) : calls_(std::move(calls)) {}

bool LaneReader::contains(std::string_view name) const { return calls_.contains(name); }

void LaneReader::tensor(std::string_view name, std::span<float> values) {
  calls_.tensor(name, values);
}

std::int64_t LaneReader::integer(std::string_view name) { return calls_.integer(name); }

std::vector<std::byte> LaneReader::bytes(std::string_view name) { none_in_a_lane(name); }
double LaneReader::real(std::string_view name) { none_in_a_lane(name); }
std::string LaneReader::text(std::string_view name) { none_in_a_lane(name); }

}  // namespace isthmus::outer
