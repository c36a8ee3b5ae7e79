// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/mix_timing.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "transport/collectives/collective_turns.h"

namespace isthmus {

std::vector<MixTiming> time_mix(std::vector<NamedCommunicator> backends, const MixTable& table,
                                const Clock& clock, const CollectiveTimingOptions& options) {
  std::vector<std::string> names;
  std::vector<Communicator*> contenders;  // the back ends, the same once more, and the mixed one
  for (int set = 0; set < 2; ++set) {
    for (const NamedCommunicator& each : backends) {
      names.push_back(each.name);
      contenders.push_back(each.communicator.get());
    }
  }
  const std::size_t n = backends.size();
  const std::unique_ptr<Communicator> mixed =
      make_mixed_communicator(std::move(backends), table);  // owns them
  contenders.push_back(mixed.get());
  CollectiveTurns turns(std::move(contenders), clock, options.each);
  CollectiveRoom room(mixed->size(), mixed->rank(), options.largest_bytes);
  std::vector<MixTiming> timings;
  const auto time = [&](const CollectiveCase& call, std::int64_t bytes) {
    const CollectiveTurns::Times times = turns.time(call);
    const std::vector<double>& us = times.median_us;
    const auto end = us.begin() + static_cast<std::ptrdiff_t>(n);
    const auto best = static_cast<std::size_t>(std::min_element(us.begin(), end) - us.begin());
    timings.push_back({.operation = call.operation,
                       .bytes = bytes,
                       .best = names[best],
                       .best_us = us[best],
                       .again_us = us[n + best],
                       .mixed_us = us.back(),
                       .repetitions = times.repetitions});
  };
  for (const std::int64_t bytes : timed_sizes(options.largest_bytes)) {
    for (const std::int64_t size : {bytes, bytes + bytes / 2}) {  // and between the table's
      if (size > options.largest_bytes) continue;
      for (const CollectiveCase& each : room.cases(size)) time(each, size);
    }
  }
  time({Operation::kBarrier, 0, [](Communicator& on) { on.barrier(); }}, 0);
  return timings;
}

}  // namespace isthmus
