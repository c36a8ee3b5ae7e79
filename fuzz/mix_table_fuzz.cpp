// SPDX-License-Identifier: Apache-2.0
// Bytes as a table of measured back ends. Checked: one kind of error or a table; what is read
// writes back to a table that reads the same; and what it chooses is one of those it is asked
// about.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "isthmus/errors.h"
#include "transport/collectives/mix_table.h"

namespace {

using namespace isthmus;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Between `smaller` and the next size whoever is chosen was measured at both, if anybody was.
void check_between(const MixTable& table, const MeasuredCall& smaller, const MixChoices& choices,
                   const std::vector<std::string>& backends) {
  std::set<std::string> here, there;
  std::int64_t next = INT64_MAX;
  const auto alike = [&](const MeasuredCall& other) {
    return other.ranks == smaller.ranks && other.operation == smaller.operation &&
           std::ranges::find(backends, other.backend) != backends.end();
  };
  for (const MeasuredCall& other : table.measured()) {
    if (!alike(other)) continue;
    if (other.bytes == smaller.bytes) here.insert(other.backend);
    if (other.bytes > smaller.bytes) next = std::min(next, other.bytes);
  }
  for (const MeasuredCall& other : table.measured()) {
    if (alike(other) && other.bytes == next && here.contains(other.backend)) {
      there.insert(other.backend);
    }
  }
  if (there.empty()) return;
  for (const std::int64_t share : {1, 2, 3, 1 << 20}) {
    const std::int64_t bytes = next - 1 - (next - smaller.bytes - 2) / share;
    if (bytes <= smaller.bytes || bytes >= next) continue;
    require(there.contains(backends[choices.of(smaller.operation, bytes)]));
  }
}

void use(const MixTable& table) {
  const MixTable again = parse_mix_table(table.json(), "written");
  require(again.ranks() == table.ranks());
  require(again.measured() == table.measured());
  require(again.digest() == table.digest());
  std::vector<std::string> backends = {"other", "threads"};
  for (const MeasuredCall& each : table.measured()) {
    backends.push_back(each.backend);
    require(table.has_times_of(each.ranks));
    const MixChoices choices = table.choices(each.ranks, backends);
    for (const std::int64_t bytes : {each.bytes, each.bytes + 1, std::int64_t{0}, INT64_MAX}) {
      require(choices.of(each.operation, bytes) < backends.size());
      require(choices.of_kind(each.operation) < backends.size());
    }
    // Nobody was faster at the size itself.
    const std::string& fastest = backends[choices.of(each.operation, each.bytes)];
    for (const MeasuredCall& other : table.measured()) {
      if (other.ranks != each.ranks || other.operation != each.operation) continue;
      if (other.bytes != each.bytes) continue;
      if (other.backend == fastest) require(other.us <= each.us);
    }
    check_between(table, each, choices, backends);
    if (backends.size() > 20) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    use(parse_mix_table({reinterpret_cast<const char*>(data), size}, "input"));
  } catch (const SystemError&) {
  } catch (const ConfigError&) {
  }
  return 0;
}
