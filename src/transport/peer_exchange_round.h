// SPDX-License-Identifier: Apache-2.0
// The data path of one round at one member: which parts it sends, reduces, answers and still
// misses. A pure state machine: frames in, frames out. It does not know threads, time or the commit
// protocol (peer_exchange_engine.h). Everything is idempotent, so a frame may come twice, late or
// in any order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/hash.h"
#include "isthmus/transport.h"
#include "transport/contributor_bits.h"
#include "transport/frame.h"
#include "transport/reduction.h"

namespace isthmus {

struct Outgoing {
  Rank to;
  FrameBytes frame;
  std::uint64_t payload_bytes = 0;  // encoded values in it; a repetition counts none
};
/// Frames to hand to the transport, in order.
using Outbox = std::vector<Outgoing>;

/// Where a round takes place. May outlive the call that gave it: a round is made of it while the
/// engine goes on.
struct RoundPlace {
  Rank self;
  int members = 1;
  std::uint32_t epoch = 0;
  std::int64_t closed_before = 0;          // stamped into the frames sent at launch
  std::vector<std::uint32_t> shares = {};  // of the owners; empty: even
  /// In their place, by the vector's size; empty: none. Read at construction, as `groups` below.
  std::span<const SharesOfSize> table = {};
  /// Of a reduce in two levels: by member, equal numbers are one group; empty: one level. Read at
  /// construction; those of an engine never change.
  std::span<const std::uint32_t> groups = {};
  std::size_t chunk_bytes = kMaxPartBytes;  // of a part, at most; the same on all members
  /// By member: who takes part; none: all. The others own nothing and count as weight 0.
  std::vector<bool> live = {};
  std::uint64_t run_key = 0;   // of the means' encoding
  bool keeps_encoded = false;  // take_encoded has something
  /// Echoes sent to each member so far; belongs to the engine, which outlives its rounds.
  const std::vector<std::uint32_t>* echoes = nullptr;
};

/// The frames that a result was decoded from, by part and share; none where it is as small itself.
class EncodedResult {
 public:
  EncodedResult() = default;
  /// Payloads begin with `prefix` bytes of something else.
  EncodedResult(std::size_t parts, std::size_t prefix) : frames_(parts), prefix_(prefix) {}
  void keep(std::size_t part, std::vector<FrameBytes> shares) { frames_[part] = std::move(shares); }
  [[nodiscard]] bool empty() const { return frames_.empty(); }
  /// Of a reduce the mean, of a gather what each contributor encoded, in member order: whole
  /// vectors. Copies.
  [[nodiscard]] std::vector<EncodedShare> shares() const;

 private:
  std::vector<std::vector<FrameBytes>> frames_;
  std::size_t prefix_ = 0;
};

class Round {
 public:
  /// Cuts and frames the own contribution. REQUIRES: a valid contribution (peer_exchange.cpp
  /// checks).
  Round(Contribution contribution, const RoundPlace& place);

  /// Queues the own contribution's frames; reduces what needs nobody else.
  /// RETURNS: kCorrupt when the own bytes do not decode.
  [[nodiscard]] Expected<void, ExchangeError> launch(Outbox& out);
  /// Takes a kContribution or kResult frame that `parse_frame` accepted. Sets `fresh` when it was
  /// not known before. RETURNS: kDiverged when the sender's layout differs, kCorrupt when its bytes
  /// do not decode or contradict its other frames.
  [[nodiscard]] Expected<void, ExchangeError> receive(Rank from, const Frame& frame,
                                                      FrameBytes bytes, bool& fresh, Outbox& out);
  /// Sends again what `entries` name and was last sent before the echo numbered `echo` to that
  /// peer; what went out after the echo is still under way.
  void send_again(Rank to, std::span<const RequestEntry> entries, std::uint32_t echo, Outbox& out);

  /// Sends everything for `to` again, which has got nothing yet.
  void send_anew(Rank to, Outbox& out);

  /// True when all values of the result are here.
  [[nodiscard]] bool complete() const { return open_parts_ == 0; }
  /// What this member still needs from `peer`; empty when nothing. At most kMaxRequestEntries.
  [[nodiscard]] std::vector<RequestEntry> missing_from(Rank peer) const;
  [[nodiscard]] bool owes(Rank peer) const;
  /// This member adds up contributions, and has got none of `peer`'s: it has not begun the round.
  [[nodiscard]] bool nothing_from(Rank peer) const;
  /// This member adds up groups' partials, and has got none that `peer` of another group is to
  /// send: it has not begun the round, or waits for one of its group who has not.
  [[nodiscard]] bool no_partial_from(Rank peer) const;
  /// XXH3-128 of the contributor bits and the result's fp32 bytes, or a collect's bytes. REQUIRES:
  /// complete().
  [[nodiscard]] Digest128 digest() const;
  /// Frees the frames kept for peers that may ask again: all of them have the whole result.
  void drop_frames();
  /// The result, moved out. REQUIRES: complete(), called once.
  [[nodiscard]] Reduced take();
  /// What it was decoded from, where the place keeps it. REQUIRES: as take.
  [[nodiscard]] EncodedResult take_encoded() { return std::move(encoded_); }

  [[nodiscard]] const SyncId& id() const { return id_; }
  [[nodiscard]] std::uint32_t epoch() const { return place_.epoch; }
  [[nodiscard]] std::uint64_t wire_bytes() const { return wire_bytes_; }
  /// Adds a protocol message to the round's wire bytes.
  void count_wire(std::size_t bytes) { wire_bytes_ += bytes; }
  [[nodiscard]] FrameHeader header(FrameKind kind) const;

 private:
  /// State of one part at this member.
  struct PartState {
    FrameBytes own;                  // own contribution, until its reducer has surely got it
    FrameBytes result;               // the owner's answer, kept for those who miss it
    std::vector<FrameBytes> inputs;  // by member, where this member gathers the part
    FrameBytes partial;              // of two levels: the own group's mean, until its owner has it
    std::vector<FrameBytes> partials;  // of two levels: by group, where this member owns the part
    bool done = false;                 // values are final
  };

  [[nodiscard]] bool takes_part(std::size_t member) const {
    return place_.live.empty() || place_.live[member];
  }
  /// Whose sum this member's contribution to a part enters. Of a reduce.
  [[nodiscard]] Rank gatherer(std::size_t part) const;
  [[nodiscard]] bool gathers(std::size_t part) const;
  /// Whether that member's contributions enter the sums of this one.
  [[nodiscard]] bool feeds(std::size_t member) const;
  /// Who sends this member the result, and to whom this one does. Of a reduce.
  [[nodiscard]] Rank source(std::size_t part) const;
  [[nodiscard]] std::vector<Rank> receivers(std::size_t part) const;
  [[nodiscard]] std::span<float> values_of(const Part& part);
  [[nodiscard]] Expected<void, ExchangeError> take_contribution(Rank from, const Frame& frame,
                                                                FrameBytes bytes, bool& fresh,
                                                                Outbox& out);
  [[nodiscard]] Expected<void, ExchangeError> take_result(Rank from, const Frame& frame,
                                                          FrameBytes bytes, bool& fresh,
                                                          Outbox& out);
  [[nodiscard]] EncodedResult room_for_encoded() const;
  [[nodiscard]] Expected<void, ExchangeError> reduce_if_ready(std::size_t part, Outbox& out);
  [[nodiscard]] Expected<void, ExchangeError> reduce_part(std::size_t part);
  void collect_part(std::size_t part);
  void arrange_groups(std::span<const std::uint32_t> shares);
  [[nodiscard]] Expected<void, ExchangeError> close_group(std::size_t part, Outbox& out);
  [[nodiscard]] Expected<void, ExchangeError> take_partial(Rank from, const Frame& frame,
                                                           FrameBytes bytes, bool& fresh,
                                                           Outbox& out);
  [[nodiscard]] Expected<void, ExchangeError> mean_of_groups(std::size_t part, Outbox& out);
  [[nodiscard]] bool misses_partial(std::size_t part, Rank peer) const;
  void pass_on(std::size_t part, std::span<const std::byte> result, Outbox& out);
  [[nodiscard]] FrameHeader header_of_part(FrameKind kind, std::size_t part) const;
  void encode_part(const Part& part, std::uint32_t worker, std::span<float> residual,
                   std::span<std::byte> out);
  [[nodiscard]] Expected<void, ExchangeError> answer(std::size_t part, Outbox& out);
  [[nodiscard]] std::span<float> owner_residual(const Part& part);
  void finish_part(std::size_t part);
  void begin_digest();
  void send(Rank to, std::size_t part, FrameKind kind, const FrameBytes& frame, Outbox& out);
  [[nodiscard]] std::uint32_t& stamp(Rank to, std::size_t part, FrameKind kind);
  [[nodiscard]] Unexpected<ExchangeError> fault(ExchangeError::Kind kind, Rank peer,
                                                const std::string& what) const;

  SyncId id_;
  std::shared_ptr<const Codec> codec_;
  std::shared_ptr<OwnerResidual> owner_residual_;  // may be null
  RoundPlace place_;
  ReductionPlan plan_;
  std::vector<PartState> parts_;
  std::size_t open_parts_ = 0;
  std::vector<std::optional<double>> weights_;  // by member, once known
  std::vector<bool> contributes_;               // by member, once known
  bool contributors_known_ = false;
  // Of two levels; empty otherwise.
  std::vector<std::size_t> group_of_;                 // by member; none: takes no part
  std::vector<std::optional<double>> group_weights_;  // by group, once known
  std::vector<float> values_;                         // of the mean; empty in a collect
  std::vector<std::vector<std::byte>> collected_;     // by member; in a collect only
  std::size_t contributed_values_ = 0;
  EncodedResult encoded_;
  Xxh3Stream stream_;                  // of the digest
  std::size_t digested_ = 0;           // parts in it
  std::vector<std::uint32_t> stamps_;  // (kind, part, peer): echoes sent before it last went out
  std::uint64_t payload_bytes_ = 0;
  std::uint64_t wire_bytes_ = 0;
};

}  // namespace isthmus
