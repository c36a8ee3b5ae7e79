// SPDX-License-Identifier: Apache-2.0
// The exchange between sites: mean of one fragment over all workers, on a link that may be thin.
//
// `reduce`: an all-reduce. Member j owns chunk j. Every member sends each owner its encoded chunk
// (reduce-scatter). The owner decodes, adds in member order in fp32, divides by the weights of the
// contributors, re-encodes once and sends the bytes to all (all-gather). Every member, the owner
// included, uses the decoded bytes. `gather`: every member sends its whole code to all; each
// decodes and sums in member order. Either way all members hold the same bits. `collect`: as
// gather, but the bytes are returned as received, neither decoded nor summed. Chunk borders are
// tile borders (isthmus/codec.h). A result is *committed*: it is returned only once all members are
// known to have the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/expected.h"
#include "isthmus/runtime.h"
#include "isthmus/types.h"

namespace isthmus {

/// Names one round: the reduction of one fragment, sent after inner step `sent`. Equal on all
/// members.
struct SyncId {
  FragmentId fragment;
  StepIndex sent;
  auto operator<=>(const SyncId&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// Worker number in the key of a re-encoded mean. It does not depend on the owner, since link
/// shares may move tiles from one owner to another.
inline constexpr std::uint32_t kMeanWorker = (1u << 22) - 1;
/// The key under which worker `worker` encodes its vector of a round. `run_key`: equal on all
/// members, different for runs with different seeds.
[[nodiscard]] inline EncodeKey encode_key(const SyncId& id, std::uint32_t worker,
                                          std::uint64_t run_key = 0) {
  return {.seed = run_key ^ static_cast<std::uint64_t>(id.fragment.value()) << 48 ^
                  static_cast<std::uint64_t>(id.sent.value()),
          .worker = worker,
          .tile = 0};
}

enum class ReductionKind {
  kAuto,  // gather for two members and for sparse codecs, reduce otherwise
  kReduce,
  kGather,
  kCollect,  // every member gets all members' bytes, unreduced: see Reduced::contributions
};

/// A codec for contributions that are bytes, not float vectors: one byte per "value", sent
/// unchanged. Only for kCollect.
[[nodiscard]] std::shared_ptr<const Codec> plain_bytes();

/// Residual of an owner's encodings of means: error feedback on the return path, as in 1-bit Adam.
/// Belongs to one vector that the same members reduce in successive rounds. The exchange sizes it
/// to the values that this member owns, and starts from zero when the owned range changes.
struct OwnerResidual {
  std::vector<float> values;
  std::size_t first = 0;  // index in the vector of values[0]
};

/// A member's input to a round.
struct Contribution {
  SyncId id;
  Encoded encoded;  // this member's vector, encoded with `codec`
  /// Shared with the round, which outlives its caller when an exception unwinds it; never null.
  std::shared_ptr<const Codec> codec;
  /// Weight in the mean, for example tokens: 0 receives without contributing, else 1e-30 to 1e30.
  /// The products weight * value are fp32.
  double weight = 1;
  /// Shared with the round; null: no error feedback for the owner's encoding. The round updates it
  /// as means are encoded, so only one open round may use it.
  std::shared_ptr<OwnerResidual> owner_residual = nullptr;
  ReductionKind kind = ReductionKind::kAuto;
  /// False for methods that exchange every step: the result is returned when its bytes are
  /// complete, and the next round that commits covers its digest. Until then it may be taken back
  /// if members can be lost (ExchangeError::Kind::kTakenBack).
  bool commit = true;
};

struct Reduced {
  std::vector<float> values;           // weighted mean over the contributors; same bits everywhere
  std::vector<WorkerId> contributors;  // in member order
  /// For kCollect, which leaves `values` empty: the encoded bytes of each contributor, in the order
  /// of `contributors`, this member's included; the same bytes everywhere. The exchange does not
  /// decode them: bytes that do not decode fail at the caller, at every member alike.
  std::vector<Encoded> contributions;
  std::uint64_t payload_bytes = 0;  // encoded values this member sent for the round
  std::uint64_t wire_bytes = 0;     // the same with frame headers and protocol messages
  Duration waited{0};               // time for which the caller was blocked in `wait`
};

struct ExchangeError {
  enum class Kind {
    kDeadlineExceeded,
    kPeerLost,
    kDiverged,
    kCorrupt,
    kEvicted,    // the other members count this member as gone and continue without it
    kTakenBack,  // uncommitted results are invalid: see Exchange::go_back
  };
  Kind kind = Kind::kDeadlineExceeded;
  WorkerId peer;     // member concerned; for kDeadlineExceeded and kTakenBack the caller itself
  std::string what;  // one line for people: round, fragment, bytes, peer
};

/// Handle of a round in flight; cheap to copy.
struct Ticket {
  SyncId id;
};

/// Bytes sent by this member since the start.
struct ByteCounts {
  std::uint64_t payload = 0;  // encoded values
  std::uint64_t wire = 0;     // all bytes, including headers and protocol messages
};

/// Names and values that must be equal on all workers at the start of a run.
using StartTerms = std::vector<std::pair<std::string, std::string>>;

class Merges;  // isthmus/merges.h

/// One member's interface to the other members. Called from the worker's thread only.
class Exchange {
 public:
  virtual ~Exchange() = default;
  [[nodiscard]] virtual WorkerId self() const = 0;
  [[nodiscard]] virtual int members() const = 0;
  /// The key under which this member encodes its vector of a round.
  [[nodiscard]] virtual EncodeKey key(const SyncId& id) const = 0;
  /// Begins a round and returns at once; the transfer continues in the background.
  /// REQUIRES: an id never begun before; all members begin the same rounds, in the same order, with
  /// vectors of equal length; `sent` never goes back from one begin to the next.
  virtual Ticket begin(Contribution contribution) = 0;
  /// True when `wait` would not block.
  [[nodiscard]] virtual bool poll(const Ticket& ticket) = 0;
  /// Blocks until the round is committed or has failed. Gives up after `patience` (timeout), which
  /// begins anew whenever the membership changes. A result is returned once. RETURNS:
  /// kDeadlineExceeded at the timeout, when the round is still open and `wait` may be called again;
  /// else the round's error, as ExchangeError::Kind names it.
  [[nodiscard]] virtual Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                              Duration patience) = 0;
  [[nodiscard]] virtual ByteCounts bytes() const = 0;
  /// True if results have been returned that are not committed yet and may still be taken back.
  [[nodiscard]] virtual bool uncommitted() const { return false; }
  /// Called after a kTakenBack. Let t be the last step with a committed round: uncommitted rounds
  /// are forgotten, and the surviving members begin the rounds sent after t again, under the same
  /// ids. Rounds begun before this call are taken back too. RETURNS: t.
  virtual StepIndex go_back() { return {}; }
  /// Compares this worker's start terms with those of the other workers. Outer methods call it with
  /// their settings when they are made, and with a digest of the parameters before step 1. `terms`
  /// is called only if the terms are compared. The exchange of `run_in_process` compares each term
  /// with that of the first worker that named it. Sites of separate processes compare theirs when
  /// they meet, so the default does nothing. THROWS: ConfigError naming the term, both values and
  /// both workers.
  virtual void agree_on_start(const std::function<StartTerms()>& terms) { (void)terms; }
  /// Merges among workers that do not wait for one another; null where only rounds are possible
  /// (sites of separate processes).
  [[nodiscard]] virtual Merges* merges() { return nullptr; }
};

/// The arguments of a worker of an in-process or simulated run; valid only inside the body.
struct WorkerContext {
  WorkerId rank;
  int workers = 1;
  Exchange& exchange;
  Runtime& runtime;
};

/// Runs `body` once for each of `workers` workers, each on its own thread with an Exchange that
/// joins them in memory. Blocks until all have returned. Workers must start alike
/// (Exchange::agree_on_start) and begin equally many rounds: if a worker returns before a round,
/// that round fails with kPeerLost at the others. THROWS: the first worker's exception; the others'
/// exchanges then fail with kPeerLost.
void run_in_process(int workers, const std::function<void(WorkerContext&)>& body);

}  // namespace isthmus
