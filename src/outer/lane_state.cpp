// SPDX-License-Identifier: Apache-2.0
#include "outer/lane_state.h"

#include <stdexcept>
#include <string>

namespace isthmus::outer {
namespace {
[[noreturn]] void none_in_a_lane(std::string_view name) {
  throw std::logic_error("a lane has tensors and integers alone, no " + std::string(name));
}
}  // namespace

LaneWriter::LaneWriter(std::size_t n, LaneExchange& exchange, StateWriter* whole)
    : n_(n), exchange_(exchange), whole_(whole) {}

// In memory: a writer copies, and this is gone after the call.
void LaneWriter::tensor(std::string_view name, std::span<const float> values) {
  std::vector<float> all(whole_ != nullptr ? n_ : 0);
  exchange_.gather({0, n_}, values, all.data());
  if (whole_ != nullptr) whole_->tensor(name, all);
}

void LaneWriter::integer(std::string_view name, std::int64_t value) {
  if (whole_ != nullptr) whole_->integer(name, value);
}

void LaneWriter::bytes(std::string_view name, std::span<const std::byte>) { none_in_a_lane(name); }
void LaneWriter::real(std::string_view name, double) { none_in_a_lane(name); }
void LaneWriter::text(std::string_view name, std::string_view) { none_in_a_lane(name); }

LaneReader::LaneReader(std::size_t n, LaneExchange& exchange, StateReader* whole)
    : n_(n), exchange_(exchange), whole_(whole) {}

std::int64_t LaneReader::told(std::int64_t value) const {
  exchange_.ranks().broadcast({&value, 1, Dtype::kI64}, LaneExchange::kFirst);
  return value;
}

bool LaneReader::contains(std::string_view name) const {
  return told(whole_ != nullptr && whole_->contains(name) ? 1 : 0) != 0;
}

void LaneReader::tensor(std::string_view name, std::span<float> values) {
  std::vector<float> all(whole_ != nullptr ? n_ : 0);
  if (whole_ != nullptr) whole_->tensor(name, std::span<float>(all));
  exchange_.scatter({0, n_}, all.data(), values);
}

std::int64_t LaneReader::integer(std::string_view name) {
  return told(whole_ != nullptr ? whole_->integer(name) : 0);
}

std::vector<std::byte> LaneReader::bytes(std::string_view name) { none_in_a_lane(name); }
double LaneReader::real(std::string_view name) { none_in_a_lane(name); }
std::string LaneReader::text(std::string_view name) { none_in_a_lane(name); }

}  // namespace isthmus::outer
