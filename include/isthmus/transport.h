// SPDX-License-Identifier: Apache-2.0
// The exchange between sites: mean of one fragment over all workers, on a link that may be thin.
//
// `reduce`: member j owns chunk j; every member sends each owner its encoded chunk; the owner
// decodes, adds in member order in fp32, divides by the weights of the contributors, re-encodes
// once and sends the bytes to all; everyone, the owner too, uses the decoded bytes. `gather`: every
// member sends its whole code to all; each decodes and sums in member order. Either way all members
// hold the same bits. `collect`: as gather, but the bytes are handed out as they came and nothing
// is decoded or summed. Chunk borders are tile borders (isthmus/codec.h). A result is *committed*:
// it is handed out only once all members are known to have the same bytes.
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

/// Worker number of a mean that its owner encodes again: the owner must not matter, since link
/// shares may move tiles from one to another.
inline constexpr std::uint32_t kMeanWorker = (1u << 22) - 1;
/// The key under which worker `worker` encodes its vector of a round. `run_key`: equal on all
/// members; runs of other seeds have others.
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
  kCollect,  // every member's own bytes to all, unreduced: see Reduced::contributions
};

/// What carries contributions that are no float vectors: as many "values" as bytes, which travel as
/// they are. Only for kCollect.
[[nodiscard]] std::shared_ptr<const Codec> plain_bytes();

/// What an owner's encodings of means have lost so far: error feedback on the way back, as 1-bit
/// Adam has it. Belongs to one vector, reduced round after round over the same members; the
/// exchange sizes it to the values this member owns and starts it from zero when those change.
struct OwnerResidual {
  std::vector<float> values;
  std::size_t first = 0;  // place of the first of them in the vector
};

/// What a member puts into a round.
struct Contribution {
  SyncId id;
  Encoded encoded;  // own vector, already through `codec`
  /// Shared with the round, which outlives its caller when an error unwinds it; never null.
  std::shared_ptr<const Codec> codec;
  /// Share in the mean, for example tokens: 0 takes without giving, else 1e-30 to 1e30. Products
  /// with values are fp32.
  double weight = 1;
  /// Shared with the round; null: what an owner's encoding loses is lost. Moves on as the means are
  /// encoded, so only one round may be open with it.
  std::shared_ptr<OwnerResidual> owner_residual = nullptr;
  ReductionKind kind = ReductionKind::kAuto;
  /// False for methods that exchange every step: the result is handed out when its bytes are
  /// complete, and its digest is covered by the next round begun that commits. Where members may be
  /// lost it can be taken back until then (ExchangeError::Kind::kTakenBack).
  bool commit = true;
};

struct Reduced {
  std::vector<float> values;  // weighted mean over the contributors; the same bits everywhere
  std::vector<WorkerId> contributors;  // in member order
  /// kCollect only, which leaves `values` empty: what each contributor encoded, in the order of
  /// `contributors`, the own one included; the same bytes everywhere. Not looked into: what does
  /// not decode shows at whoever decodes it, at every member alike.
  std::vector<Encoded> contributions;
  std::uint64_t payload_bytes = 0;  // encoded values this member sent for the round
  std::uint64_t wire_bytes = 0;     // the same with frame headers and protocol messages
  Duration waited{0};               // time the caller stood still in `wait`
};

struct ExchangeError {
  enum class Kind {
    kDeadlineExceeded,
    kPeerLost,
    kDiverged,
    kCorrupt,
    kEvicted,    // the others count this member as gone and go on without it
    kTakenBack,  // what is not committed does not count: see Exchange::go_back
  };
  Kind kind = Kind::kDeadlineExceeded;
  WorkerId peer;     // whom it is about; meaningless for kDeadlineExceeded with several missing
  std::string what;  // one line for people: round, fragment, bytes, peer
};

/// Handle of a round in flight; cheap to copy.
struct Ticket {
  SyncId id;
};

/// Bytes sent by this member since the start.
struct ByteCounts {
  std::uint64_t payload = 0;  // encoded values
  std::uint64_t wire = 0;     // everything, headers and protocol messages too
};

/// Name and value of what all workers of a run must start with alike.
using StartTerms = std::vector<std::pair<std::string, std::string>>;

/// One member's door to the others. Called from the worker's thread only.
class Exchange {
 public:
  virtual ~Exchange() = default;
  [[nodiscard]] virtual WorkerId self() const = 0;
  [[nodiscard]] virtual int members() const = 0;
  /// Under which this member encodes its vector of a round.
  [[nodiscard]] virtual EncodeKey key(const SyncId& id) const = 0;
  /// Launches a round and returns at once; the transfer goes on in the background.
  /// REQUIRES: an id never begun before; all members begin the same rounds, in the same order, with
  /// vectors of equal length; `sent` never goes back from one begin to the next.
  virtual Ticket begin(Contribution contribution) = 0;
  /// True when `wait` would not block.
  [[nodiscard]] virtual bool poll(const Ticket& ticket) = 0;
  /// Blocks until the round is committed, for at most `patience`. Hands out the result once.
  [[nodiscard]] virtual Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                              Duration patience) = 0;
  [[nodiscard]] virtual ByteCounts bytes() const = 0;
  /// Whether results have been handed out that are not committed yet and may still be taken back.
  [[nodiscard]] virtual bool uncommitted() const { return false; }
  /// After a kTakenBack: rounds that were not committed are forgotten, and those sent after the
  /// last step of which one was are begun again, under the same ids, by all who are left. Until
  /// this is called nothing that is begun takes place: it is taken back too. RETURNS: that step.
  virtual StepIndex go_back() { return {}; }
  /// Compares what this worker starts with against the other workers' terms. Outer methods call
  /// this function: with their settings when they are made, with a digest of the parameters before
  /// step 1. `terms` is called only where the terms are compared. The exchange of `run_in_process`
  /// compares each term with that of the first worker that named it; sites of separate processes
  /// compare theirs as they meet, so the default does nothing. THROWS: ConfigError naming the term,
  /// both values and both workers.
  virtual void agree_on_start(const std::function<StartTerms()>& terms) { (void)terms; }
};

/// What a worker of an in-process or simulated run is given; valid inside the body only.
struct WorkerContext {
  WorkerId rank;
  int workers = 1;
  Exchange& exchange;
  Runtime& runtime;
};

/// Runs `body` once for each of `workers` workers, each on a thread of its own with an Exchange
/// that joins them in memory. Blocks until all have returned. Workers start alike
/// (Exchange::agree_on_start) and begin equally many rounds: a round that a worker has returned
/// without fails with kPeerLost at the others. THROWS: the first worker's exception; the others'
/// exchanges then fail with kPeerLost.
void run_in_process(int workers, const std::function<void(WorkerContext&)>& body);

}  // namespace isthmus
