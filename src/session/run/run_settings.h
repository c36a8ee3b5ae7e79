// SPDX-License-Identifier: Apache-2.0
// The settings of any trainer's run: its method, its exchange, its links. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "isthmus/config.h"
#include "isthmus/outer.h"

namespace isthmus::app {

/// Facts of an existing method, as used to load configurations.
[[nodiscard]] MethodInfo info_of(const std::string& method);
/// Whether the workers of the run's method wait for nobody (MethodInfo::by_arrival).
[[nodiscard]] bool goes_by_arrival(const Config& config);
/// The most bytes of results that a site in a separate process retains, so that it can be healed
/// (net.heal); 0: none.
[[nodiscard]] std::uint64_t retained_bytes(const Config& config);
[[nodiscard]] inline bool retains_results(const Config& config) {
  return retained_bytes(config) > 0;
}

/// Whether the run's method uses only forward passes (MethodInfo::forward_only).
[[nodiscard]] bool forward_only(const Config& config);
/// Whether the method exchanges the gradients of every step, which a mesh then gathers.
[[nodiscard]] bool takes_gradients(const Config& config);
/// Whether the method reads and writes the inner optimizer's moments.
[[nodiscard]] bool takes_adam_moments(const Config& config);
/// Bytes on the modelled link per byte of a model with that many values ([surrogate]).
[[nodiscard]] double surrogate_byte_scale(const Config& config, std::int64_t values);
/// Whether neither the file nor --set gives this key.
[[nodiscard]] bool by_default(const Config& config, const std::string& key);
/// The random key of a part of the run, used along with the part's own counters.
[[nodiscard]] std::uint64_t run_key(std::uint64_t seed, Stream stream);

/// `net.patience`; by default no timeout in a simulation, since a simulated link is slow but loses
/// nothing.
[[nodiscard]] Duration round_patience(const Config& config, bool simulated);

/// PeerExchangeOptions::chunk_bytes: net.chunk, limited to what a frame can hold.
[[nodiscard]] std::size_t chunk_bytes(const Config& config);

/// PeerExchangeOptions::groups by each site.group, whatever net.reduction is; empty: no site has
/// one.
[[nodiscard]] std::vector<std::uint32_t> named_groups(const Config& config);
/// The same for a run: empty unless net.reduction asks for groups.
[[nodiscard]] std::vector<std::uint32_t> site_groups(const Config& config);

/// Whether the length of a simulated step follows from the configuration: [surrogate],
/// sim.step_time, or site.compute of every site.
[[nodiscard]] bool declares_step_time(const Config& config);

/// Whether rates of links change over time (link.trace).
[[nodiscard]] bool has_traces(const Config& config);
/// THROWS: ConfigError when two sites have no link.
void check_links(const Config& config);

/// A warning about a codec of few bits a value without error feedback; empty if there is none.
[[nodiscard]] std::string codec_warning(const Config& config);

/// Names of the sites, in order.
[[nodiscard]] std::vector<std::string> site_names(const Config& config);

}  // namespace isthmus::app
