// SPDX-License-Identifier: Apache-2.0
// A round's result as bytes, for a member that took no part in it (WIRE_FORMAT.md, "Joining"):
// encoded as its members received it, or in fp32. Receiver's statistics (bytes sent, time waited)
// are not included. Pure; any thread.
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
  Reduced reduced;                    // without values if `encoded` has them
  std::vector<EncodedShare> encoded;  // a reduce: the mean; a gather: each contributor's vector
};

/// The origin of a result that was handed out.
struct ResultOrigin {
  std::optional<Digest128> digest;    // with which its round was committed; nothing: unknown
  std::vector<EncodedShare> encoded;  // what it was decoded from, if that is smaller
};

/// The digest that members compare: XXH3-128 of the contributor bits and the values (of a collect:
/// the contributions).
[[nodiscard]] Digest128 digest_of(const Reduced& result, int members);

/// Writes `encoded`, if not empty, instead of the values. `to` receives the bytes in pieces, long
/// pieces without a copy.
void write_result(const SyncId& id, const Reduced& result, std::span<const EncodedShare> encoded,
                  const std::function<void(std::span<const std::byte>)>& to);
/// The number of bytes that write_result writes.
[[nodiscard]] std::uint64_t written_bytes(const Reduced& result,
                                          std::span<const EncodedShare> encoded);
[[nodiscard]] std::vector<std::byte> write_result(const SyncId& id, const Reduced& result,
                                                  std::span<const EncodedShare> encoded = {});

/// RETURNS: the reason if `bytes` are no result of a run with `members` members. The caller checks
/// the sizes against the model.
[[nodiscard]] Expected<RoundResult, std::string> read_result(std::span<const std::byte> bytes,
                                                             int members);

/// A worker's round, for comparison with a result from another source.
struct AskedRound {
  ReductionKind kind = ReductionKind::kAuto;
  std::size_t values = 0;
  std::size_t bytes = 0;  // of the worker's contribution
  std::shared_ptr<const Codec> codec = nullptr;
};
[[nodiscard]] AskedRound asked_of(const Contribution& contribution);
/// The result as a member of the round has it, decoded if it is encoded. RETURNS: the property in
/// which it differs from `asked`.
[[nodiscard]] Expected<Reduced, std::string> as_a_member_has_it(
    Reduced result, std::span<const EncodedShare> encoded, const AskedRound& asked, int members);

}  // namespace isthmus
