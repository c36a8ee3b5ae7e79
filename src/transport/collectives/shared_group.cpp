// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/shared_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/deadline.h"
#include "isthmus/errors.h"
#include "transport/collectives/rendezvous_word.h"

namespace isthmus {
namespace {

// Processes cannot wake one another, so a wait looks often at first, soon giving its core away each
// time; on a busy machine one of those may take milliseconds, so naps follow.
constexpr Duration kBusyInSegment = std::chrono::microseconds(200);
constexpr Duration kShortestSharedNap = std::chrono::microseconds(20);
constexpr Duration kLongestSharedNap = std::chrono::milliseconds(1);
constexpr int kLooksForACause = 1000;

/// Rank 0's message about the segment that it has made; no name: it could not make one.
struct Invitation {
  std::array<char, 64> name;
  std::int64_t mark;
};

}  // namespace

SharedGroup::SharedGroup(std::shared_ptr<Runtime> runtime, std::unique_ptr<Communicator> ranks,
                         Duration deadline, RankNames names, SegmentCalls segments)
    : runtime_(std::move(runtime)),
      ranks_(std::move(ranks)),
      deadline_(deadline),
      names_(std::move(names)),
      rank_(ranks_->rank()),
      segments_(std::move(segments)) {
  share_memory();
}

SharedGroup::SharedGroup(std::shared_ptr<SharedGroup> parent, std::unique_ptr<Communicator> ranks,
                         RankNames names)
    : runtime_(parent->runtime_),
      ranks_(std::move(ranks)),
      parent_(std::move(parent)),
      deadline_(parent_->deadline_),
      names_(std::move(names)),
      rank_(ranks_->rank()),
      segments_(parent_->segments_) {
  share_memory();
}

// A rank that has learnt the end from the shared word tells its communicator below, which must not
// take a group for orderly while other ranks still send their aborts to it.
SharedGroup::~SharedGroup() {
  seat(rank_).doing.store(Operation::kGone, std::memory_order_relaxed);
  if (ended()) ranks_->abort(told_cause());
}

void SharedGroup::share_memory() {
  ISTHMUS_CHECK(names_.size() == ranks_->size(), names_.size(), ranks_->size());
  ISTHMUS_CHECK(size() < static_cast<int>(rendezvous::kInsideMask), size());
  const std::size_t bytes = sizeof(Table) + static_cast<std::size_t>(size()) * sizeof(Seat);
  Invitation invitation{};
  std::string error;
  try {
    if (size() == 1) {
      segment_ = SharedSegment::unshared(bytes);
    } else if (rank_ == 0) {
      segment_ = segments_.create(bytes);
      ISTHMUS_CHECK(segment_.name().size() < invitation.name.size(), segment_.name());
      std::ranges::copy(segment_.name(), invitation.name.begin());
      invitation.mark = runtime_->clock().now().time_since_epoch().count();
      table().mark = invitation.mark;
    }
  } catch (const SystemError& made) {
    error = made.what();
  }
  ranks_->broadcast({&invitation, sizeof invitation, Dtype::kU8}, 0);
  try {
    if (rank_ != 0 && invitation.name[0] != '\0') {
      segment_ = segments_.open(invitation.name.data(), bytes);
      if (table().mark != invitation.mark) error = "its name is taken by another one here";
    }
  } catch (const SystemError& opened) {
    error = opened.what();
  }
  // Over the group that this one is split from: a rank that has finished first may abort this
  // communicator, which must not reach the other ranks in here.
  Communicator& above = parent_ ? parent_->ranks() : *ranks_;
  std::int32_t last_without = error.empty() ? -1 : above.rank();
  above.all_reduce({&last_without, 1, Dtype::kI32}, Reduce::kMax);
  segment_.drop_name();
  if (last_without < 0) return;
  throw SystemError(fmt::format(
      "communicator \"shared-memory\": {} cannot share memory with rank 0{}{}; its ranks must be "
      "processes of one machine and container with room in /dev/shm: use \"mpi\"",
      (parent_ ? parent_->names() : names_).of(last_without), error.empty() ? "" : ": ", error));
}

SharedGroup::Table& SharedGroup::table() const {
  return *reinterpret_cast<Table*>(segment_.data());
}

SharedGroup::Seat& SharedGroup::seat(int rank) const {
  auto* const seats = reinterpret_cast<Seat*>(segment_.data() + sizeof(Table));
  return seats[rank];
}

std::byte* SharedGroup::own_room() { return seat(rank_).rooms[(crossings_ + 1) & 1].bytes.data(); }

const std::byte* SharedGroup::room_of(int peer) const {
  return seat(peer).rooms[crossings_ & 1].bytes.data();
}

bool SharedGroup::ended() const {
  for (const SharedGroup* group = this; group != nullptr; group = group->parent_.get()) {
    const std::uint32_t word = group->table().arrivals.load(std::memory_order_seq_cst);
    if ((word & rendezvous::kEnded) != 0) return true;
  }
  return false;
}

void SharedGroup::meet(const Call& call) {
  seat(rank_).rooms[(crossings_ + 1) & 1].call = call;
  pass(call);
  check_agreement(call);
}

void SharedGroup::cross(const Call& call) { pass(call); }

void SharedGroup::pass(const Call& call) {
  if (ended()) throw_cause(call);
  ++crossings_;
  Seat& own = seat(rank_);
  own.doing.store(call.operation, std::memory_order_relaxed);
  own.crossings.store(crossings_, std::memory_order_relaxed);
  const std::uint32_t before = rendezvous::count_in(table().arrivals, size());
  if ((before & rendezvous::kEnded) != 0) throw_cause(call);
  if (!rendezvous::is_last(before, size()) && !await(before & rendezvous::kGenerationMask, call)) {
    throw_cause(call);
  }
  own.doing.store(Operation::kNothing, std::memory_order_relaxed);
}

bool SharedGroup::await(std::uint32_t generation, const Call& call) {
  const auto complete = [&] {
    const std::uint32_t word = table().arrivals.load(std::memory_order_seq_cst);
    return (word & rendezvous::kGenerationMask) != generation;
  };
  for (int look = 0; look < rendezvous::kLooks; ++look) {
    if (complete()) return true;
  }
  const Clock& clock = runtime_->clock();
  const TimePoint begin = clock.now();
  const bool yields = contention_.may_yield();
  while (yields && clock.now() - begin < kBusyInSegment) {
    contention_.yield(clock);
    if (complete()) return true;
  }
  const TimePoint end = deadline_after(begin, deadline_);
  for (Duration nap = kShortestSharedNap;; nap = std::min(2 * nap, kLongestSharedNap)) {
    std::string why = end_cause();
    const TimePoint now = clock.now();
    if (why.empty() && now >= end) {
      why = fmt::format("{} waited {} ms in {} (crossing {}) for {}", name_of(rank_),
                        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_).count(),
                        describe(call), crossings_, missing_ranks());
    }
    // The word decides: a rank that finds all ranks there continues, whatever else has ended
    // meanwhile.
    if (!why.empty()) abort(why);
    if (complete()) return true;
    if (!why.empty()) return false;
    runtime_->sleep_until(now + nap);
  }
}

std::string SharedGroup::missing_ranks() const {
  std::string text;
  for (int peer = 0; peer < size(); ++peer) {
    const Seat& other = seat(peer);
    const std::uint64_t crossings = other.crossings.load(std::memory_order_relaxed);
    if (crossings >= crossings_) continue;
    text += fmt::format("{}{} (after crossing {}; in {})", text.empty() ? "" : ", ", name_of(peer),
                        crossings, operation_name(other.doing.load(std::memory_order_relaxed)));
  }
  return text;
}

void SharedGroup::check_agreement(const Call& call) {
  const auto shown = [this](int peer) -> const Call& {
    return seat(peer).rooms[crossings_ & 1].call;
  };
  const Call& first = shown(0);
  for (int peer = 1; peer < size(); ++peer) {
    const Call& other = shown(peer);
    if (other == first) continue;
    const bool alike = describe(other) == describe(first);
    fail(call, fmt::format("{} calls {}, {} calls {}{}", name_of(0), describe(first), name_of(peer),
                           describe(other), alike ? " in other shares" : ""));
  }
}

void SharedGroup::abort(const std::string& cause) noexcept {
  Table& all = table();
  std::uint32_t state = kNone;
  if (all.cause_state.compare_exchange_strong(state, kBeingWritten)) {
    const std::string_view text = cause.empty() ? "aborted" : std::string_view(cause);
    std::memcpy(all.cause.data(), text.data(), std::min(text.size(), kMostCause));
    all.cause_state.store(kWritten, std::memory_order_release);
  }
  // Another rank may be writing; a rank that died while it wrote never ends.
  for (int look = 0; look < kLooksForACause && all.cause_state.load() != kWritten; ++look) {
    std::this_thread::yield();
  }
  all.arrivals.fetch_or(rendezvous::kEnded, std::memory_order_seq_cst);
  ranks_->abort(cause);
}

std::string SharedGroup::told_cause() const {
  for (const SharedGroup* group = this; group != nullptr; group = group->parent_.get()) {
    const Table& all = group->table();
    const std::uint32_t word = all.arrivals.load(std::memory_order_seq_cst);
    if ((word & rendezvous::kEnded) == 0) continue;
    const bool written = all.cause_state.load(std::memory_order_acquire) == kWritten;
    return written ? std::string(all.cause.data()) : "aborted by a rank that has gone";
  }
  return {};
}

std::string SharedGroup::end_cause() {
  std::string told = told_cause();
  return told.empty() ? ranks_->end_cause() : told;
}

void SharedGroup::fail(const Call& call, const std::string& cause) {
  abort(cause);
  throw_cause(call);
}

void SharedGroup::throw_cause(const Call& call) {
  seat(rank_).doing.store(Operation::kNothing, std::memory_order_relaxed);
  throw CommunicatorError(
      fmt::format("{} of {}, {}: {}", name_of(rank_), size(), describe(call), end_cause()));
}

}  // namespace isthmus
