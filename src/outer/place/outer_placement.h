// SPDX-License-Identifier: Apache-2.0
// Where a worker's outer state is: on the host (make_outer_strategy, isthmus/outer.h), or, where a
// device has its weights, in that device's memory (outer.placement = "device") or in pinned memory
// of the host ("host"), from where it comes to the device when that computes on it; or shared out
// by the processes that are its site's ranks ("ranks"). The same results, encoded bytes, reports
// and checkpoints, bit for bit but for the payloads of NaNs: a run may go on with another.
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

/// As make_outer_strategy, with the state on the device. `values`: the master values behind
/// `inner`, borrowed as it is.
/// THROWS: ConfigError as there, and for methods and codecs that have no form on a device;
/// SystemError, naming outer.placement, where its memory or pinned host memory does not suffice,
/// and where there is no device.
[[nodiscard]] std::unique_ptr<OuterStrategy> make_outer_strategy_on_device(
    std::string_view name, const OuterOptions& options, InnerLoop& inner, Exchange& exchange,
    cuda::ResidentValues& values);

/// The same with the state in pinned memory. What has no form on a device, and where memory of
/// either kind does not suffice, which is logged, is make_outer_strategy's. THROWS: SystemError
/// where the inner loop has no memory for what that asks it for (InnerLoop::adam_moments).
[[nodiscard]] std::unique_ptr<OuterStrategy> make_outer_strategy_beside_device(
    std::string_view name, const OuterOptions& options, InnerLoop& inner, Exchange& exchange,
    cuda::ResidentValues& values);

/// Says so, with the want of memory that made it so.
void log_cpu_computes(const SystemError& want);

/// As make_outer_strategy, with the state in the lanes of all ranks of the worker's site; on the
/// first one, which reaches all by `call`. The others run `serve_outer_state` once for each call.
/// THROWS: ConfigError as there, and for methods whose state is whole at one process.
[[nodiscard]] std::unique_ptr<OuterStrategy> make_outer_strategy_on_ranks(
    std::string_view name, const OuterOptions& options, InnerLoop& inner, Exchange& exchange,
    RanksCall call);
/// What another rank of such a site holds of the state and does when the first calls. The
/// parameters need no values. THROWS: ConfigError as above.
[[nodiscard]] std::function<void(Communicator&)> serve_outer_state(
    std::string_view name, const OuterOptions& options, std::span<const Parameter> parameters);

/// Bytes of device memory that a strategy with its state there holds, beside the inner loop's.
/// REQUIRES: options that make_outer_strategy_on_device takes; parameters may have no values.
[[nodiscard]] std::int64_t outer_device_bytes(std::string_view name, const OuterOptions& options,
                                              std::span<const Parameter> parameters);

/// What to throw when that does not fit: how much it is, the cause, and what helps.
[[nodiscard]] SystemError outer_memory_error(std::string_view name, const OuterOptions& options,
                                             std::span<const Parameter> parameters,
                                             std::string_view cause);

}  // namespace isthmus::outer
