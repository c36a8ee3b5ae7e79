// SPDX-License-Identifier: Apache-2.0
// The messages of merges (isthmus/merges.h) as bytes: offers to the coordinator, merges to all
// workers, and how far a worker is. They travel as streams of notes (note_stream.h) behind a mark
// of their own. Drawn in WIRE_FORMAT.md. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "isthmus/expected.h"
#include "isthmus/merges.h"

namespace isthmus {

/// Values are part of the wire format: append only.
enum class MergeMessage : std::uint32_t {
  kOffer = 1,
  kMerge = 2,
  kStopped = 3,   // the sender trains no more
  kFinished = 4,  // ... and has nothing more to offer
  kLeft = 5,      // the sender takes no further part
  kEnd = 6,       // from the coordinator: no merge follows
  kFollow = 7,    // the sender has all merges up to a number, and is to be sent those after it
};

/// REQUIRES: `offer.rule.grace` is set.
[[nodiscard]] std::vector<std::byte> write_offer(const Offer& offer);
/// RETURNS: why the bytes are no offer.
[[nodiscard]] Expected<Offer, std::string> read_offer(std::span<const std::byte> bytes);

/// A merge before it is decoded.
struct EncodedMerge {
  Merge merge;  // without values
  std::string codec;
  Encoded encoded;
};
[[nodiscard]] std::vector<std::byte> write_merge(const EncodedMerge& merge);
/// RETURNS: the merge with its values, or why the bytes are no merge.
[[nodiscard]] Expected<Merge, std::string> read_merge(std::span<const std::byte> bytes);
/// RETURNS: the same merge without its values, or why the bytes do not begin like a merge.
[[nodiscard]] Expected<Merge, std::string> read_merge_head(std::span<const std::byte> bytes);

/// `last`: the number of the last merge that the sender has.
[[nodiscard]] std::vector<std::byte> write_follow(std::int64_t last);
[[nodiscard]] Expected<std::int64_t, std::string> read_follow(std::span<const std::byte> bytes);

}  // namespace isthmus
