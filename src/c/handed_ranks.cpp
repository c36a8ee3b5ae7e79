// SPDX-License-Identifier: Apache-2.0
#include "c/handed_ranks.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "isthmus/errors.h"
#include "outer/place/outer_placement.h"
#include "transport/collectives/called_communicator.h"

namespace isthmus::c {
namespace {

/// One collective of the caller's.
void do_call(isthmus_ranks_call call, void* context, std::int32_t operation, int peer, void* bytes,
             std::size_t count) {
  if (call(context, operation, peer, bytes, count) == 0) return;
  constexpr const char* kNames[] = {"begin", "broadcast", "send", "receive"};
  throw RunError(
      fmt::format("a collective between the ranks of this site has failed ({} of {} bytes): the "
                  "caller says why",
                  kNames[operation], count));
}

}  // namespace

HandedRanks handed_ranks(std::int32_t rank, std::int32_t ranks, isthmus_ranks_call call,
                         void* context) {
  constexpr std::int32_t kMostRanks = 256;  // as of a site of the program's
  if (call == nullptr) throw ConfigError("isthmus_session_ranks: call is null");
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks)
    throw ConfigError(fmt::format(
        "isthmus_session_ranks: rank {} of {}: must be in 0 .. ranks - 1, of 1 to {} ranks", rank,
        ranks, kMostRanks));
  auto calls = std::make_shared<std::int64_t>(0);
  const auto doing = [call, context, calls](std::int32_t operation, int peer, void* bytes,
                                            std::size_t count) {
    ++*calls;
    do_call(call, context, operation, peer, bytes, count);
  };
  return {.rank = rank,
          .all = make_called_communicator(
              {.rank = rank,
               .size = ranks,
               .broadcast =
                   [doing](std::span<std::byte> bytes) {
                     doing(ISTHMUS_RANKS_BROADCAST, 0, bytes.data(), bytes.size());
                   },
               .send =
                   [doing](std::span<const std::byte> bytes, int to) {
                     // The caller reads them alone.
                     doing(ISTHMUS_RANKS_SEND, to, const_cast<std::byte*>(bytes.data()),
                           bytes.size());
                   },
               .receive =
                   [doing](std::span<std::byte> bytes, int from) {
                     doing(ISTHMUS_RANKS_RECEIVE, from, bytes.data(), bytes.size());
                   }}),
          .begin = [doing] { doing(ISTHMUS_RANKS_BEGIN, 0, nullptr, 0); },
          .served = {},
          .calls = calls};
}

std::function<void(Communicator&)> share_of_rank(const Config& config,
                                                 std::span<const Parameter> parameters) {
  return outer::serve_outer_state(config.method, config.outer, parameters);
}

}  // namespace isthmus::c
