// SPDX-License-Identifier: Apache-2.0
// A method with its state where outer.placement says.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "kernels/cuda/device.h"
#include "outer/methods/method_table.h"
#include "outer/parts/settings.h"
#include "outer/place/outer_placement.h"

namespace isthmus::outer {

std::unique_ptr<OuterStrategy> make_outer_strategy_on_device(std::string_view name,
                                                             const OuterOptions& options,
                                                             InnerLoop& inner, Exchange& exchange,
                                                             cuda::ResidentValues& values) {
  const MethodRow& row = checked_method(name, options);
  if (row.make_on_device == nullptr) {
    std::vector<std::string> names;
    for (const MethodRow& entry : method_table()) {
      if (entry.make_on_device != nullptr) names.push_back(entry.info.name);
    }
    throw ConfigError(
        fmt::format("outer.placement = \"device\" with outer.method = \"{}\": its outer state is "
                    "on the host; take outer.placement = \"host\", or one of the methods {}",
                    name, fmt::join(names, ", ")));
  }
  try {
    return row.make_on_device(row.info, options, inner, exchange, values, KeptIn::kDevice);
  } catch (const cuda::OutOfDeviceMemory& error) {
    throw outer_memory_error(name, options, inner.parameters(), error.what());
  } catch (const SystemError& error) {  // of pinned host memory, or of the device itself
    throw SystemError(
        fmt::format("outer.placement = \"device\": {}; set it to \"host\"", error.what()));
  }
}

std::unique_ptr<OuterStrategy> make_outer_strategy_beside_device(std::string_view name,
                                                                 const OuterOptions& options,
                                                                 InnerLoop& inner,
                                                                 Exchange& exchange,
                                                                 cuda::ResidentValues& values) {
  const MethodRow& row = checked_method(name, options);
  std::optional<SystemError> want;
  if (row.make_beside_device != nullptr) {
    try {
      return row.make_beside_device(row.info, options, inner, exchange, values, KeptIn::kPinned);
    } catch (const SystemError& error) {
      want = error;
    }
  }
  std::unique_ptr<OuterStrategy> strategy = row.make(row.info, options, inner, exchange);
  if (want) log_cpu_computes(*want);  // it may have wanted the same memory
  return strategy;
}

void log_cpu_computes(const SystemError& want) {
  log_info("the CPU computes on the outer state, for want of memory: {}", want.what());
}

namespace {
const MethodRow& row_on_ranks(std::string_view name, const OuterOptions& options) {
  const MethodRow& row = checked_method(name, options);
  if (row.make_on_ranks != nullptr) return row;
  std::vector<std::string> names;
  for (const MethodRow& entry : method_table()) {
    if (entry.make_on_ranks != nullptr) names.push_back(entry.info.name);
  }
  throw ConfigError(fmt::format(
      "outer.placement = \"ranks\" with outer.method = \"{}\": its outer state is whole "
      "at one process; take outer.placement = \"host\", or one of the methods {}",
      name, fmt::join(names, ", ")));
}
}  // namespace

std::unique_ptr<OuterStrategy> make_outer_strategy_on_ranks(std::string_view name,
                                                            const OuterOptions& options,
                                                            InnerLoop& inner, Exchange& exchange,
                                                            RanksCall call) {
  const MethodRow& row = row_on_ranks(name, options);
  return row.make_on_ranks(row.info, options, inner, exchange, std::move(call));
}

std::function<void(Communicator&)> serve_outer_state(std::string_view name,
                                                     const OuterOptions& options,
                                                     std::span<const Parameter> parameters) {
  const MethodRow& row = row_on_ranks(name, options);
  // Co-owned by the copies of the returned function.
  return [lanes = std::make_shared<Lanes>(resolve(row.info, options, parameters))](
             Communicator& all) { lanes->serve(all); };
}

}  // namespace isthmus::outer
