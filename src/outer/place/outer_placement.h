// SPDX-License-Identifier: Apache-2.0
// Place of a worker's outer state. On the host: make_outer_strategy (isthmus/outer.h). If the
// weights are on a device: in that device's memory (outer.placement = "device"), or in pinned host
// memory ("host"), from which it is copied to the device that computes on it. Or sharded over the
// processes that are the site's ranks ("ranks"). Results, encoded bytes, reports and checkpoints
// are equal bit for bit, except for the payloads of NaNs: a run may resume with another placement.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "isthmus/errors.h"
#include "isthmus/outer.h"
#include "kernels/cuda/resident_values.h"
#include "outer/place/lane_fragment.h"
#include "transport/collectives/communicator.h"

namespace isthmus::outer {

/// As make_outer_strategy, with the state on the device. `values`: the master values of `inner`,
/// borrowed as `inner` is.
/// THROWS: ConfigError as make_outer_strategy, and for methods and codecs without a form on a
/// device; SystemError that names outer.placement when device or pinned memory does not suffice, or
/// without a device.
[[nodiscard]] std::unique_ptr<OuterStrategy> make_outer_strategy_on_device(
    std::string_view name, const OuterOptions& options, InnerLoop& inner, Exchange& exchange,
    cuda::ResidentValues& values);

/// The same with the state in pinned memory. Falls back to make_outer_strategy for methods and
/// codecs without a form on a device, and when memory of either kind does not suffice, which is
/// logged. THROWS: SystemError when the inner loop has no memory for what the strategy requests
/// from it (InnerLoop::adam_moments).
[[nodiscard]] std::unique_ptr<OuterStrategy> make_outer_strategy_beside_device(
    std::string_view name, const OuterOptions& options, InnerLoop& inner, Exchange& exchange,
    cuda::ResidentValues& values);

/// Logs that the CPU computes the outer step, with the lack of memory that is the cause.
void log_cpu_computes(const SystemError& want);

/// As make_outer_strategy, with the state sharded over all ranks of the worker's site (lanes).
/// Called on the first rank, which reaches all ranks by `call`; each other rank runs
/// `serve_outer_state` once per call. THROWS: ConfigError as make_outer_strategy, and for methods
/// whose state cannot be sharded.
[[nodiscard]] std::unique_ptr<OuterStrategy> make_outer_strategy_on_ranks(
    std::string_view name, const OuterOptions& options, InnerLoop& inner, Exchange& exchange,
    RanksCall call);
/// A function for the other ranks of such a site: it holds their shards and serves the first rank's
/// calls. The parameters need no values. THROWS: ConfigError as above.
[[nodiscard]] std::function<void(Communicator&)> serve_outer_state(
    std::string_view name, const OuterOptions& options, std::span<const Parameter> parameters);

/// Bytes of device memory that a strategy with its state on the device needs in addition to the
/// inner loop. REQUIRES: options that make_outer_strategy_on_device accepts; parameters may have no
/// values.
[[nodiscard]] std::int64_t outer_device_bytes(std::string_view name, const OuterOptions& options,
                                              std::span<const Parameter> parameters);

/// The error for lack of this memory: bytes needed, the cause, and remedies.
[[nodiscard]] SystemError outer_memory_error(std::string_view name, const OuterOptions& options,
                                             std::span<const Parameter> parameters,
                                             std::string_view cause);

}  // namespace isthmus::outer
