// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/thread_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/deadline.h"
#include "transport/collectives/rendezvous_word.h"

namespace isthmus {
namespace {

using rendezvous::count_in;
using rendezvous::is_last;
using rendezvous::kEnded;
using rendezvous::kGenerationMask;
using rendezvous::kInsideMask;
using rendezvous::kLooks;

// The other ranks are mostly a few microseconds away. If ranks outnumber cores, yielding the core
// brings them here. Then a sleep, and at once where other work wants the core.
constexpr Duration kBusyThreads = std::chrono::microseconds(50);

std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace

bool Gate::await(const std::function<bool()>& ready, Duration patience) {
  for (int look = 0; look < kLooks; ++look) {
    if (ready()) return true;
  }
  const bool yields = contention_.may_yield();
  for (const TimePoint begin = clock_.now(); yields && clock_.now() - begin < kBusyThreads;) {
    contention_.yield(clock_);
    if (ready()) return true;
  }
  // Before the last look: a thread that changes the state after that sees the sleeper.
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const TimePoint now = clock_.now();
  const TimePoint end = deadline_after(now, patience);
  const bool came = queue_->wait(ready, end);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return came;
}

void Gate::wake() {
  if (sleepers_.load(std::memory_order_seq_cst) != 0) queue_->update([] {});
}

ThreadGroup::ThreadGroup(std::shared_ptr<Runtime> runtime, Duration deadline, RankNames names)
    : runtime_(std::move(runtime)),
      deadline_(deadline),
      names_(std::move(names)),
      seats_(static_cast<std::size_t>(names_.size())),
      gate_(*runtime_) {
  ISTHMUS_CHECK(size() >= 1);
  ISTHMUS_CHECK(size() < static_cast<int>(kInsideMask), size());
  for (Seat& each : seats_) each.gate = std::make_unique<Gate>(*runtime_);
}

bool ThreadGroup::ended() const {
  return (arrivals_.load(std::memory_order_seq_cst) & kEnded) != 0;
}

void ThreadGroup::enter(int rank, const Posted& posted, std::span<const std::byte> copied) {
  ISTHMUS_CHECK(copied.size() <= kInlineBytes, copied.size());
  // An ended group's seats are left alone: a slower rank may still compare them.
  if (ended()) throw_cause(rank, posted.call);
  Seat& own = seat(rank);
  const std::size_t turn = ++own.entered & 1;
  own.posted[turn] = posted;
  if (!copied.empty()) std::memcpy(own.inlined[turn].data(), copied.data(), copied.size());
  own.doing.store(posted.call.operation, std::memory_order_relaxed);
  own.collectives.store(own.entered, std::memory_order_relaxed);

  const std::uint32_t before = count_in(arrivals_, size());
  if ((before & kEnded) != 0) throw_cause(rank, posted.call);
  if (is_last(before, size())) {
    gate_.wake();
  } else {
    const std::uint32_t generation = before & kGenerationMask;
    const auto complete = [&] {
      return (arrivals_.load(std::memory_order_seq_cst) & kGenerationMask) != generation;
    };
    if (!gate_.await([&] { return complete() || ended(); }, deadline_)) {
      abort(fmt::format("{} waited {} ms in {} (collective {}) for {}", name_of(rank),
                        milliseconds(deadline_), describe(posted.call), own.entered,
                        missing_ranks(own.entered)));
    }
    // One word holds both, so either all ranks are in or none will be.
    if (!complete()) throw_cause(rank, posted.call);
  }
  check_agreement(rank);
  own.doing.store(Operation::kNothing, std::memory_order_relaxed);
}

std::string ThreadGroup::missing_ranks(std::uint64_t entered) const {
  std::string text;
  for (int peer = 0; peer < size(); ++peer) {
    const Seat& other = seat(peer);
    const std::uint64_t collectives = other.collectives.load(std::memory_order_relaxed);
    if (collectives >= entered) continue;
    text +=
        fmt::format("{}{} (after collective {}; in {})", text.empty() ? "" : ", ", name_of(peer),
                    collectives, operation_name(other.doing.load(std::memory_order_relaxed)));
  }
  return text;
}

void ThreadGroup::check_agreement(int rank) {
  const Call& first = posted(rank, 0).call;
  for (int peer = 1; peer < size(); ++peer) {
    const Call& other = posted(rank, peer).call;
    if (other == first) continue;
    const bool alike = describe(other) == describe(first);
    fail(rank, posted(rank, rank).call,
         fmt::format("{} calls {}, {} calls {}{}", name_of(0), describe(first), name_of(peer),
                     describe(other), alike ? " in other shares" : ""));
  }
}

const Posted& ThreadGroup::posted(int rank, int peer) const {
  return seat(peer).posted[seat(rank).entered & 1];
}

const std::byte* ThreadGroup::inlined(int rank, int peer) const {
  return seat(peer).inlined[seat(rank).entered & 1].data();
}

void ThreadGroup::leave() {
  const std::uint32_t before = count_in(departures_, size());
  if (is_last(before, size())) {
    gate_.wake();
  } else {
    // Without a deadline: the others copy memory, and nothing can stop them.
    const std::uint32_t generation = before & kGenerationMask;
    (void)gate_.await(
        [&] {
          return (departures_.load(std::memory_order_seq_cst) & kGenerationMask) != generation;
        },
        Duration::max());
  }
}

void ThreadGroup::check_message(int rank, const Call& call, const Call& sent, int from,
                                const Call& wanted, int to) {
  if (sent.count == wanted.count && sent.dtype == wanted.dtype) return;
  fail(rank, call,
       fmt::format("{} calls {}, {} calls {}", name_of(from), describe(sent), name_of(to),
                   describe(wanted)));
}

void ThreadGroup::send(int rank, const Call& call, const void* data) {
  if (ended()) throw_cause(rank, call);
  const std::size_t bytes = static_cast<std::size_t>(call.count) * dtype_bytes(call.dtype);
  Seat& receiver = seat(call.root);
  Wanted* wanted = nullptr;
  {
    const std::scoped_lock lock(receiver.mutex);
    if (receiver.wanted != nullptr && receiver.wanted->call->root == rank &&
        receiver.wanted->call->tag == call.tag) {
      check_message(rank, call, call, rank, *receiver.wanted->call, call.root);
      wanted = std::exchange(receiver.wanted, nullptr);
    } else {
      Parcel& parcel = receiver.parcels.emplace_back();
      parcel.from = rank;
      parcel.call = call;
      const auto* from = static_cast<const std::byte*>(data);
      parcel.bytes.assign(from, from + bytes);
    }
  }
  if (wanted == nullptr) return;
  // Without the lock: the receiver waits for this even when the group ends.
  if (bytes != 0) std::memcpy(wanted->data, data, bytes);
  wanted->filled.store(true, std::memory_order_seq_cst);  // the receiver may be gone after this
  receiver.gate->wake();
}

bool ThreadGroup::take_parcel(int rank, const Call& call, void* data) {
  Seat& own = seat(rank);
  const auto found = std::find_if(own.parcels.begin(), own.parcels.end(), [&](const Parcel& each) {
    return each.from == call.root && each.call.tag == call.tag;
  });
  if (found == own.parcels.end()) return false;
  check_message(rank, call, found->call, found->from, call, rank);
  if (!found->bytes.empty()) std::memcpy(data, found->bytes.data(), found->bytes.size());
  own.parcels.erase(found);
  return true;
}

void ThreadGroup::receive(int rank, const Call& call, void* data) {
  if (ended()) throw_cause(rank, call);
  Seat& own = seat(rank);
  Wanted wanted{&call, data};
  {
    const std::scoped_lock lock(own.mutex);
    if (take_parcel(rank, call, data)) return;
    own.wanted = &wanted;
  }
  own.doing.store(call.operation, std::memory_order_relaxed);
  const auto filled = [&] { return wanted.filled.load(std::memory_order_seq_cst); };
  if (!own.gate->await([&] { return filled() || ended(); }, deadline_)) {
    const Seat& sender = seat(call.root);
    abort(fmt::format("{} waited {} ms in {} (which is in {})", name_of(rank),
                      milliseconds(deadline_), describe(call),
                      operation_name(sender.doing.load(std::memory_order_relaxed))));
  }
  if (!filled()) {
    const std::scoped_lock lock(own.mutex);
    if (own.wanted == &wanted) {
      own.wanted = nullptr;
      throw_cause(rank, call);
    }
  }
  (void)own.gate->await(filled, Duration::max());  // it may be in the middle of being written
  own.doing.store(Operation::kNothing, std::memory_order_relaxed);
}

std::shared_ptr<ThreadGroup> ThreadGroup::child(int rank, int color,
                                                const std::vector<int>& places) {
  const std::scoped_lock lock(mutex_);
  const auto [place, fresh] = expected_.try_emplace({seat(rank).entered, color});
  Child& expected = place->second;
  if (fresh) {
    expected.group = std::make_shared<ThreadGroup>(runtime_, deadline_, names_.part(places));
    expected.missing = static_cast<int>(places.size());
    std::erase_if(children_, [](const auto& each) { return each.expired(); });
    children_.push_back(expected.group);
    if (!cause_.empty()) expected.group->abort(cause_);
  }
  std::shared_ptr<ThreadGroup> group = expected.group;
  if (--expected.missing == 0) expected_.erase(place);
  return group;
}

void ThreadGroup::abort(const std::string& cause) noexcept {
  std::vector<std::weak_ptr<ThreadGroup>> children;
  {
    const std::scoped_lock lock(mutex_);
    if (!cause_.empty()) return;
    cause_ = cause.empty() ? "aborted" : cause;
    children = children_;
    arrivals_.fetch_or(kEnded, std::memory_order_seq_cst);
  }
  gate_.wake();
  for (Seat& each : seats_) each.gate->wake();
  for (const std::weak_ptr<ThreadGroup>& each : children) {
    if (const std::shared_ptr<ThreadGroup> group = each.lock()) group->abort(cause);
  }
}

std::string ThreadGroup::end_cause() {
  if (!ended()) return {};
  const std::scoped_lock lock(mutex_);
  return cause_;
}

void ThreadGroup::fail(int rank, const Call& call, const std::string& cause) {
  abort(cause);
  throw_cause(rank, call);
}

void ThreadGroup::throw_cause(int rank, const Call& call) {
  seat(rank).doing.store(Operation::kNothing, std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  throw CommunicatorError(
      fmt::format("{} of {}, {}: {}", name_of(rank), size(), describe(call), cause_));
}

}  // namespace isthmus
