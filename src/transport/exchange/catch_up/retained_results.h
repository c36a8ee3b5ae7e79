// SPDX-License-Identifier: Apache-2.0
// The results of the rounds that a worker has taken since all were last seen to hold the same outer
// state, on its disk: from that state and them it can work out what it ought to hold, without
// anybody's help (session/run/outer_healing.h). One thread.
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
#include "transport/exchange/round_result.h"

namespace isthmus {

class RetainedResults {
 public:
  struct Room {
    std::uint64_t most_bytes = 0;               // that lie there
    std::function<std::uint64_t()> free_bytes;  // that the disk has
  };
  /// What the disk has free for everything else, the run's lines above all, beside a result that is
  /// kept: with less the results go. A checkpoint finds their room free anyway.
  static constexpr std::uint64_t kLeavesFree = 250'000'000;

  /// `file` is this object's own: it comes with the first result and goes with the last. Borrows
  /// `storage`.
  RetainedResults(Storage& storage, std::filesystem::path file, Room room);
  ~RetainedResults();
  RetainedResults(const RetainedResults&) = delete;
  RetainedResults& operator=(const RetainedResults&) = delete;

  /// What is there is needed no more; what comes from now on is.
  void restart();
  /// As write_result has it. `committed`: its digest. Where there is no room, or the disk fails,
  /// nothing more is kept until `restart`.
  void keep(const SyncId& id, const Reduced& result, std::span<const EncodedShare> encoded,
            const Digest128& committed);
  /// Rounds sent after step `last` have been taken back.
  void forget_after(StepIndex last);
  [[nodiscard]] bool holds(const SyncId& id) const { return places_.contains(id); }
  [[nodiscard]] std::uint64_t bytes() const { return size_; }  // on the disk
  /// RETURNS: why it cannot be had: it is not there, or is not what was committed.
  [[nodiscard]] Expected<Reduced, std::string> read(const SyncId& id, const AskedRound& asked,
                                                    int members);
  /// Why not all results since the last restart are there; nothing: all are.
  [[nodiscard]] const std::optional<std::string>& lack() const { return lack_; }

 private:
  struct Place {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    Digest128 committed;
  };
  using Kept = std::map<SyncId, Place>::value_type;
  void forget();
  /// Why a result of so many bytes is not kept.
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

/// A worker's exchange: `real`, whose results are retained and can be had again.
class RetainingExchange final : public Exchange {
 public:
  /// `origin`: of a result that `real` has just handed out; may be empty. Borrows the first two.
  RetainingExchange(Exchange& real, RetainedResults& results,
                    std::function<ResultOrigin(const SyncId&)> origin = {})
      : real_(real), results_(results), origin_(std::move(origin)) {}

  /// While it replays, a method that is made anew gets the results that are retained, and `begin`
  /// of a round that is under way already goes on with that one. Nothing reaches `real`. Between
  /// two steps.
  void set_replaying(bool replaying);

  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  Ticket begin(Contribution contribution) override;
  [[nodiscard]] bool poll(const Ticket& ticket) override;
  /// Replaying: Corrupt where the round is neither retained nor under way.
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override;
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }
  [[nodiscard]] bool uncommitted() const override { return real_.uncommitted(); }
  void agree_on_start(const std::function<StartTerms()>& terms) override {
    real_.agree_on_start(terms);
  }
  StepIndex go_back() override;

 private:
  Exchange& real_;
  RetainedResults& results_;
  const std::function<ResultOrigin(const SyncId&)> origin_;
  std::map<SyncId, bool> open_;  // begun and not taken: whether the round has values
  bool replaying_ = false;
  std::map<SyncId, AskedRound> asked_;  // replayed and not taken
};

}  // namespace isthmus
