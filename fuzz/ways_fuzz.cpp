// SPDX-License-Identifier: Apache-2.0
// Any text as a ways file: either errors with places, or ways that are written and read back, and
// of which every size takes shares that somebody owns.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string_view>
#include <vector>

#include "config/load/collective_table_file.h"
#include "transport/exchange/reduction.h"

namespace {

using namespace isthmus;

void require(bool condition) {
  if (!condition) std::abort();
}

void use(const CollectiveTable& file) {
  const CollectiveTable again = read_ways_text(ways_toml(file, "written"), "/f/w.toml");
  require(again.sites == file.sites);
  require(again.ways.size() == file.ways.size());
  std::vector<WayConfig> ways, ways_again;
  std::vector<SharesOfSize> table;
  for (std::size_t i = 0; i < file.ways.size(); ++i) {
    require(again.ways[i].name == file.ways[i].name);
    ways.push_back(file.ways[i].way);
    ways_again.push_back(again.ways[i].way);
    table.push_back({static_cast<std::uint64_t>(ways[i].bytes), ways[i].shares});
  }
  require(ways == ways_again && ways_digest(ways) == ways_digest(ways_again));
  for (const SharesOfSize& each : table) {
    require(std::ranges::equal(shares_of_size(table, each.bytes), each.shares));
    for (const std::uint64_t bytes : {each.bytes - 1, each.bytes + 1, each.bytes * 2}) {
      const auto shares = shares_of_size(table, bytes);
      require(shares.empty() || shares.size() == file.sites.size());
      require(shares.empty() ||
              std::accumulate(shares.begin(), shares.end(), std::uint64_t{0}) > 0);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    use(read_ways_text({reinterpret_cast<const char*>(data), size}, "/f/w.toml"));
  } catch (const ConfigErrors& errors) {
    require(!errors.diagnostics().empty());
  }
  return 0;
}
