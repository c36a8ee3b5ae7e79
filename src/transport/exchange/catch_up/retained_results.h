// SPDX-License-Identifier: Apache-2.0
// The results of a worker's rounds since all workers were last seen to hold the same outer state,
// on the worker's disk: from that state and these results it can recompute its state without other
// members (session/run/outer_healing.h). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/base/storage.h"
#include "isthmus/expected.h"
#include "isthmus/transport.h"
#include "transport/exchange/catch_up/wrapped_exchange.h"
#include "transport/exchange/round_result.h"

namespace isthmus {

class RetainedResults {
 public:
  struct Room {
    std::uint64_t most_bytes = 0;               // of retained results
    std::function<std::uint64_t()> free_bytes;  // free bytes of the disk
  };
  /// Free disk space to leave for other files, above all the run's lines: with less, the results
  /// are dropped. Checkpoints check their own room.
  static constexpr std::uint64_t kLeavesFree = 250'000'000;

  /// Owns `file`: it is created with the first result and removed with the last. Borrows `storage`.
  RetainedResults(Storage& storage, std::filesystem::path file, Room room);
  ~RetainedResults();
  RetainedResults(const RetainedResults&) = delete;
  RetainedResults& operator=(const RetainedResults&) = delete;

  /// Drops the retained results and retains later ones.
  void restart();
  /// Retains a result in the form of write_result. `committed`: its digest. If there is no room, or
  /// the disk fails, nothing more is retained until `restart`.
  void keep(const SyncId& id, const Reduced& result, std::span<const EncodedShare> encoded,
            const Digest128& committed);
  /// Rounds sent after step `last` were rolled back.
  void forget_after(StepIndex last);
  [[nodiscard]] bool holds(const SyncId& id) const { return places_.contains(id); }
  [[nodiscard]] std::uint64_t bytes() const { return size_; }  // on the disk
  /// RETURNS: the reason if the result is missing, or differs from the committed one.
  [[nodiscard]] Expected<Reduced, std::string> read(const SyncId& id, const AskedRound& asked,
                                                    int members);
  /// Why not all results since the last restart are retained; nothing: all are.
  [[nodiscard]] const std::optional<std::string>& lack() const { return lack_; }

 private:
  struct Place {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    Digest128 committed;
  };
  using Kept = std::map<SyncId, Place>::value_type;
  void forget();
  /// Why a result of that size cannot be retained.
  [[nodiscard]] std::optional<std::string> no_room(std::uint64_t bytes) const;
  /// THROWS: SystemError.
  [[nodiscard]] Expected<Reduced, std::string> read_at(const Kept& kept, const AskedRound& asked,
                                                       int members);

  Storage& storage_;
  const std::filesystem::path file_;
  const Room room_;
  std::unique_ptr<WritableFile> writer_;
  bool exists_ = false;  // the file
  std::uint64_t size_ = 0;
  std::map<SyncId, Place> places_;
  std::optional<std::string> lack_;
};

/// A worker's exchange: `real`, with retained results that can be replayed.
class RetainingExchange final : public WrappedExchange {
 public:
  /// `origin`: of the result that `real` has just returned; may be empty. Borrows the first two.
  RetainingExchange(Exchange& real, RetainedResults& results,
                    std::function<ResultOrigin(const SyncId&)> origin = {})
      : WrappedExchange(real), results_(results), origin_(std::move(origin)) {}

  /// While replaying, a newly made method gets the retained results, and `begin` of an open round
  /// continues with that round. No call reaches `real`. Call between two steps.
  void set_replaying(bool replaying);

  Ticket begin(Contribution contribution) override;
  [[nodiscard]] bool poll(const Ticket& ticket) override;
  /// While replaying: Corrupt if the round is neither retained nor open.
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override;
  void agree_on_start(const std::function<StartTerms()>& terms) override {
    real_.agree_on_start(terms);
  }
  StepIndex go_back() override;

 private:
  RetainedResults& results_;
  const std::function<ResultOrigin(const SyncId&)> origin_;
  std::map<SyncId, bool> open_;  // begun and not taken: whether it has values
  bool replaying_ = false;
  std::map<SyncId, AskedRound> asked_;  // replayed and not taken
};

}  // namespace isthmus
