// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/all_elements.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "isthmus/errors.h"

namespace isthmus::app {
namespace {

/// Above the fragment numbers of every method, so these rounds are no method's.
constexpr int kFirstRound = 1 << 20;
constexpr std::size_t kMostTensors = 4096;
constexpr std::size_t kMostText = std::size_t{1} << 19;  // a note holds 1 MiB

/// Copies between the tensors and one vector of all values, which begins at element `begin`.
template <typename Copy>
void for_range(std::span<const Parameter> parameters, CanonicalRange range, const Copy& copy) {
  for (const Parameter& each : parameters) {
    const std::int64_t begin = std::max(each.elements.begin, range.begin);
    const std::int64_t end = std::min(each.elements.end, range.end);
    if (begin >= end) continue;
    copy(static_cast<std::size_t>(begin - range.begin),
         each.values.subspan(static_cast<std::size_t>(begin - each.elements.begin),
                             static_cast<std::size_t>(end - begin)));
  }
}

std::vector<std::byte> bytes_of(std::span<const Parameter> parameters, CanonicalRange range) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(range.size()) * sizeof(float));
  for_range(parameters, range, [&](std::size_t at, std::span<float> values) {
    std::memcpy(bytes.data() + at * sizeof(float), values.data(), values.size_bytes());
  });
  return bytes;
}

/// The round begins again among the remaining members when a lost member takes it back
/// (outer.commit > 1): rounds committed before stay.
Reduced collected(const SyncId& id, const std::vector<std::byte>& own, double weight,
                  Exchange& exchange, Duration patience, std::string_view what) {
  std::string why;
  for (int lost = 0; lost < exchange.members(); ++lost) {
    const Ticket ticket = exchange.begin({.id = id,
                                          .encoded = {own.size(), own},
                                          .codec = plain_bytes(),
                                          .weight = weight,
                                          .kind = ReductionKind::kCollect});
    Expected<Reduced, ExchangeError> all = exchange.wait(ticket, patience);
    if (all) return std::move(*all);
    why = all.error().what;
    if (all.error().kind != ExchangeError::Kind::kTakenBack) break;
    (void)exchange.go_back();
  }
  throw PeerError(
      fmt::format("worker {}: could not get {}: {}", exchange.self().value(), what, why));
}

/// Whether all workers that are there begin with equal values. The same answer at all.
bool start_alike(InnerLoop& inner, SyncId id, Exchange& exchange, Duration patience) {
  Xxh3Stream hasher;
  for (const Parameter& each : inner.parameters()) hasher.update(std::as_bytes(each.values));
  const Digest128 own = hasher.digest();
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&own, 1));
  const Reduced all = collected(id, {bytes.begin(), bytes.end()}, 1.0, exchange, patience,
                                "the digests of the initial values");
  return !all.contributions.empty() &&
         std::ranges::all_of(all.contributions, [&](const Encoded& each) {
           return each.bytes == all.contributions.front().bytes;
         });
}

/// One worker's bytes for all. RETURNS: them; nothing where that worker is gone.
std::vector<std::byte> given_by(WorkerId giver, const SyncId& id, std::size_t size,
                                const std::vector<std::byte>& own, Exchange& exchange,
                                Duration patience) {
  Reduced all = collected(id, own, exchange.self() == giver ? 1.0 : 0.0, exchange, patience,
                          fmt::format("the initial values of worker {}", giver.value()));
  if (all.contributors.empty()) return {};
  const WorkerId from = all.contributors.front();
  std::vector<std::byte> bytes = std::move(all.contributions.front().bytes);
  if (from != giver || bytes.size() != size) {
    throw PeerError(fmt::format(
        "worker {}: worker {} gave {} bytes of initial values, where {} of worker {} were expected",
        exchange.self().value(), from.value(), bytes.size(), size, giver.value()));
  }
  return bytes;
}

}  // namespace

// All workers get the same result of every round, so all know alike when a giver is gone and which
// worker is next. A giver that is lost half-way leaves nothing behind, since values are written at
// the end.
void take_first_values(InnerLoop& inner, Exchange& exchange, Duration patience,
                       std::int64_t piece) {
  if (exchange.members() == 1) return;
  const CanonicalRange all = all_elements(inner);
  inner.read_values(all);
  const std::span<const Parameter> parameters = inner.parameters();
  int round = kFirstRound;
  if (start_alike(inner, {FragmentId(round++), StepIndex(0)}, exchange, patience)) return;
  for (int m = 0; m < exchange.members(); ++m) {
    const WorkerId giver(m);
    const bool gives = exchange.self() == giver;
    std::vector<std::byte> taken;
    bool whole = true;
    for (std::int64_t begin = all.begin; begin < all.end && whole; begin += piece) {
      const CanonicalRange range{begin, std::min(begin + piece, all.end)};
      const auto size = static_cast<std::size_t>(range.size()) * sizeof(float);
      const std::vector<std::byte> bytes = given_by(
          giver, {FragmentId(round++), StepIndex(0)}, size,
          gives ? bytes_of(parameters, range) : std::vector<std::byte>(size), exchange, patience);
      whole = bytes.size() == size;
      if (!gives) taken.insert(taken.end(), bytes.begin(), bytes.end());
    }
    if (!whole) continue;
    if (!gives) {
      for_range(parameters, all, [&](std::size_t at, std::span<float> values) {
        std::memcpy(values.data(), taken.data() + at * sizeof(float), values.size_bytes());
      });
      inner.wrote_values(all);
    }
    return;
  }
  throw PeerError(
      fmt::format("worker {}: no worker has given its initial values", exchange.self().value()));
}

std::string digests_of_start(InnerLoop& inner) {
  if (inner.parameters().size() > kMostTensors) return {};
  inner.read_values(all_elements(inner));
  std::string text;
  for (const Parameter& each : inner.parameters()) {
    text +=
        fmt::format("{} {}\n", each.name, xxh3_128(std::as_bytes(each.values)).hex().substr(0, 12));
    if (text.size() > kMostText) return {};
  }
  return text;
}

std::string first_unlike(const std::string& digests, const std::string& others) {
  std::string_view left = digests, right = others;
  while (!left.empty() && !right.empty()) {
    const std::string_view here = left.substr(0, left.find('\n'));
    const std::string_view there = right.substr(0, right.find('\n'));
    if (here != there) return std::string(here.substr(0, here.rfind(' ')));
    left.remove_prefix(std::min(here.size() + 1, left.size()));
    right.remove_prefix(std::min(there.size() + 1, right.size()));
  }
  return {};
}

}  // namespace isthmus::app
