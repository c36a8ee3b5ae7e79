// SPDX-License-Identifier: Apache-2.0
// A round's result as bytes, for a member that took no part in it (WIRE_FORMAT.md, "Joining"): as
// its members decoded it, or in fp32. Without what the receiver did for it: bytes sent, time
// waited. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "isthmus/expected.h"
#include "isthmus/transport.h"
#include "transport/exchange/reduction.h"

namespace isthmus {

/// "round of step 12, fragment 0".
[[nodiscard]] std::string round_name(const SyncId& id);

struct RoundResult {
  SyncId id;
  Reduced reduced;                    // without values where they are encoded
  std::vector<EncodedShare> encoded;  // of a reduce the mean, of a gather each contributor's vector
};

/// Where a result that was handed out comes from.
struct ResultOrigin {
  std::optional<Digest128> digest;    // that its round has committed with; nothing: not known
  std::vector<EncodedShare> encoded;  // what it was decoded from, where that is smaller
};

/// What members compare of a result: XXH3-128 of the contributor bits and the values, or of a
/// collect the contributions.
[[nodiscard]] Digest128 digest_of(const Reduced& result, int members);

/// `encoded`, where there is any, goes instead of the values. `to` gets the bytes in pieces, the
/// long ones as they lie in memory.
void write_result(const SyncId& id, const Reduced& result, std::span<const EncodedShare> encoded,
                  const std::function<void(std::span<const std::byte>)>& to);
/// How many these are.
[[nodiscard]] std::uint64_t written_bytes(const Reduced& result,
                                          std::span<const EncodedShare> encoded);
[[nodiscard]] std::vector<std::byte> write_result(const SyncId& id, const Reduced& result,
                                                  std::span<const EncodedShare> encoded = {});

/// RETURNS: why `bytes` are no result of a run of `members` members. Whether its sizes are those of
/// the model is for the caller to see.
[[nodiscard]] Expected<RoundResult, std::string> read_result(std::span<const std::byte> bytes,
                                                             int members);

/// What a worker asks of a round, to be held against a result that comes from elsewhere.
struct AskedRound {
  ReductionKind kind = ReductionKind::kAuto;
  std::size_t values = 0;
  std::size_t bytes = 0;  // of its own contribution
  std::shared_ptr<const Codec> codec = nullptr;
};
[[nodiscard]] AskedRound asked_of(const Contribution& contribution);
/// The result as a member of the round has it, decoded where it comes encoded.
/// RETURNS: in what it is not one of `asked`.
[[nodiscard]] Expected<Reduced, std::string> as_a_member_has_it(
    Reduced result, std::span<const EncodedShare> encoded, const AskedRound& asked, int members);

}  // namespace isthmus
