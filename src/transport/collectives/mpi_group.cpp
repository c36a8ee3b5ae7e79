// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/mpi_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <utility>

#include "core/base/check.h"
#include "core/base/deadline.h"
#include "transport/wire/mpi_calls.h"

namespace isthmus {
namespace {

constexpr std::size_t kMostCause = 1000;  // bytes of a control message

// Processes cannot wake one another, so a wait looks often at first, giving its core away each
// time, and then naps. Where other work wants the core, it naps after a few looks.
constexpr Duration kBusyInCall = std::chrono::microseconds(200);
constexpr Duration kBusyOnContendedCore = std::chrono::microseconds(20);
constexpr int kLooksPerHearing = 16;
constexpr Duration kCallBack = std::chrono::seconds(1);

}  // namespace

MpiGroup::MpiGroup(std::shared_ptr<Runtime> runtime, std::shared_ptr<MpiGroup> parent,
                   MPI_Comm comm, Duration deadline, RankNames names)
    : runtime_(std::move(runtime)),
      parent_(std::move(parent)),
      comm_(comm),
      deadline_(deadline),
      names_(std::move(names)),
      packets_(static_cast<std::size_t>(names_.size()) + 1),
      moving_(runtime_->make_wait_queue()) {
  const std::scoped_lock lock(mpi_mutex());
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "errors cannot be returned");
  MPI_Comm_rank(comm_, &rank_);
}

// The others' messages of an ended group may still come, so MPI keeps its communicator: a new one
// under the same number would get them.
MpiGroup::~MpiGroup() {
  const bool orderly = cause().empty();
  bool out = false;
  if (orderly) out = wait_until([this] { return all_out(); }, true) == Waited::kDone;
  moving_->update([this] { closing_ = true; });
  mover_.reset();
  const std::scoped_lock lock(mpi_mutex());
  if (orderly && out && !left_behind_) {
    MPI_Comm comm = comm_;
    MPI_Comm_free(&comm);
  } else {
    bury();
  }
}

/// Memory that unfinished requests may still read or write is kept for good.
void MpiGroup::bury() {
  struct Grave {
    std::vector<Packet> packets;
    std::list<Outgoing> outgoing;
    std::list<Outgoing> control;
  };
  static std::list<Grave> graves;
  Grave& grave = graves.emplace_back();
  grave.packets = std::move(packets_);
  grave.outgoing = std::move(outgoing_);
  grave.control = std::move(control_);
}

MpiGroup::Waited MpiGroup::wait_until(const std::function<bool()>& done, bool hear) {
  const Clock& clock = runtime_->clock();
  const TimePoint begin = clock.now();
  const TimePoint end = deadline_after(begin, deadline_);
  Duration nap = kShortestMpiNap;
  const bool yields = contention_.may_yield();
  const Duration busy_time = yields ? kBusyInCall : kBusyOnContendedCore;
  for (std::int64_t look = 0;; ++look) {
    const TimePoint now = clock.now();
    const bool busy = now - begin < busy_time;
    const bool listens = hear && (!busy || look % kLooksPerHearing == 0);
    {
      const std::scoped_lock lock(mpi_mutex());
      if (done()) return Waited::kDone;
      if (listens) hear_control();
    }
    if (listens && !cause().empty()) {
      // An abort that has just arrived may follow the awaited message.
      const std::scoped_lock lock(mpi_mutex());
      return done() ? Waited::kDone : Waited::kEnded;
    }
    if (busy) {
      if (yields) contention_.yield(clock);
      continue;
    }
    if (now >= end) return Waited::kLate;
    runtime_->sleep_until(now + nap);
    nap = std::min(2 * nap, kLongestMpiNap);
  }
}

void MpiGroup::hear_control() {
  if (parent_) parent_->hear_control();
  int there = 0;
  MPI_Status status{};
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kControl, comm_, &there, &status), "no probe");
  if (there == 0) return;
  std::array<char, kMostCause> text{};
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  check_mpi(MPI_Recv(text.data(), static_cast<int>(text.size()), MPI_BYTE, status.MPI_SOURCE,
                     kControl, comm_, MPI_STATUS_IGNORE),
            "a control message cannot be received");
  const std::scoped_lock lock(mutex_);
  if (cause_.empty()) cause_.assign(text.data(), static_cast<std::size_t>(bytes));
}

std::string MpiGroup::cause() {
  {
    const std::scoped_lock lock(mutex_);
    if (!cause_.empty()) return cause_;
  }
  return parent_ ? parent_->cause() : std::string();
}

std::string MpiGroup::end_cause() {
  {
    const std::scoped_lock lock(mpi_mutex());
    hear_control();
  }
  return cause();
}

void MpiGroup::throw_if_ended(const Call& call) {
  const std::string why = cause();
  if (why.empty()) return;
  throw CommunicatorError(
      fmt::format("{} of {}, {}: {}", name_of(rank_), size(), describe(call), why));
}

void MpiGroup::abort(const std::string& cause) noexcept {
  try {
    std::string text = cause.empty() ? "aborted" : cause.substr(0, kMostCause);
    {
      const std::scoped_lock lock(mutex_);
      if (!cause_.empty()) return;
      cause_ = text;
    }
    const std::scoped_lock lock(mpi_mutex());
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      Outgoing& message = control_.emplace_back();
      const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
      message.bytes.assign(bytes, bytes + text.size());
      MPI_Isend(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE, peer,
                kControl, comm_, &message.request);
    }
  } catch (const std::exception&) {  // no memory: the others come to their deadlines
  }
}

void MpiGroup::fail(const Call& call, const std::string& cause) {
  abort(cause);
  throw_if_ended(call);
  throw CommunicatorError(cause);
}

std::string MpiGroup::waited_text(const Call& call) const {
  return fmt::format("{} waited {} ms in {}", name_of(rank_),
                     std::chrono::duration_cast<std::chrono::milliseconds>(deadline_).count(),
                     describe(call));
}

void MpiGroup::meet(const Call& call, std::span<const std::byte> copied) {
  ISTHMUS_CHECK(copied.size() <= kInlineBytes, copied.size());
  {
    const std::scoped_lock lock(mpi_mutex());
    hear_control();
  }
  throw_if_ended(call);
  Packet& own = packets_[static_cast<std::size_t>(rank_)];
  own.call = call;
  if (!copied.empty()) std::memcpy(own.bytes, copied.data(), copied.size());
  const auto bytes = static_cast<int>(offsetof(Packet, bytes) + copied.size());
  std::vector<int> peers;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank_) peers.push_back(peer);
  }
  meeting_.assign(2 * peers.size(), MPI_REQUEST_NULL);
  {
    const std::scoped_lock lock(mpi_mutex());
    for (std::size_t i = 0; i < peers.size(); ++i) {
      check_mpi(MPI_Irecv(&packets_[static_cast<std::size_t>(peers[i])], sizeof(Packet), MPI_BYTE,
                          peers[i], kMeeting, comm_, &meeting_[i]),
                "no receive");
      check_mpi(
          MPI_Isend(&own, bytes, MPI_BYTE, peers[i], kMeeting, comm_, &meeting_[peers.size() + i]),
          "no send");
    }
  }
  const Waited waited = wait_until(
      [&] {
        int all = 0;
        check_mpi(MPI_Testall(static_cast<int>(meeting_.size()), meeting_.data(), &all,
                              MPI_STATUSES_IGNORE),
                  "no test");
        return all != 0;
      },
      true);
  if (waited != Waited::kDone) {
    std::string missing;
    {
      const std::scoped_lock lock(mpi_mutex());
      for (std::size_t i = 0; i < peers.size(); ++i) {
        int came = 0;
        if (MPI_Test(&meeting_[i], &came, MPI_STATUS_IGNORE) == MPI_SUCCESS && came == 0) {
          missing += (missing.empty() ? " for " : ", ") + name_of(peers[i]);
        }
      }
    }
    call_back(meeting_);
    if (waited == Waited::kEnded) throw_if_ended(call);
    fail(call, waited_text(call) + missing);
  }
  check_agreement(call);
}

void MpiGroup::check_agreement(const Call& call) {
  const Call& first = packets_[0].call;
  for (int peer = 1; peer < size(); ++peer) {
    const Call& other = packets_[static_cast<std::size_t>(peer)].call;
    if (other == first) continue;
    const bool alike = describe(other) == describe(first);
    fail(call, fmt::format("{} calls {}, {} calls {}{}", name_of(0), describe(first), name_of(peer),
                           describe(other), alike ? " in other shares" : ""));
  }
}

const std::byte* MpiGroup::inlined(int peer) const {
  return packets_[static_cast<std::size_t>(peer)].bytes;
}

void MpiGroup::post_send(const void* data, std::size_t bytes, int to) {
  const std::scoped_lock lock(mpi_mutex());
  for (std::size_t begin = 0; begin < bytes; begin += kMostBytes) {
    MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Isend(static_cast<const std::byte*>(data) + begin,
                        static_cast<int>(std::min(kMostBytes, bytes - begin)), MPI_BYTE, to,
                        kValues, comm_, &request),
              "values cannot be sent");
  }
}

void MpiGroup::post_receive(void* data, std::size_t bytes, int from) {
  const std::scoped_lock lock(mpi_mutex());
  for (std::size_t begin = 0; begin < bytes; begin += kMostBytes) {
    MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Irecv(static_cast<std::byte*>(data) + begin,
                        static_cast<int>(std::min(kMostBytes, bytes - begin)), MPI_BYTE, from,
                        kValues, comm_, &request),
              "values cannot be received");
  }
}

void MpiGroup::wait_first(const Call& call, std::size_t count) {
  const Waited waited = wait_until(
      [&] {
        int all = 0;
        check_mpi(MPI_Testall(static_cast<int>(count), requests_.data(), &all, MPI_STATUSES_IGNORE),
                  "values were not moved");
        return all != 0;
      },
      false);
  if (waited == Waited::kDone) {
    requests_.erase(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(count));
    return;
  }
  call_back(requests_);
  requests_.clear();
  fail(call, waited_text(call) + " for values of a rank that had come");
}

/// Cancels receives that no message has begun to fill in Open MPI; the others mostly end by
/// themselves.
void MpiGroup::call_back(std::vector<MPI_Request>& requests) {
  const TimePoint end = runtime_->clock().now() + kCallBack;
  bool first = true;
  do {
    {
      const std::scoped_lock lock(mpi_mutex());
      int all = 0;
      for (MPI_Request& each : requests) {
        if (first && each != MPI_REQUEST_NULL) MPI_Cancel(&each);
      }
      first = false;
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all, MPI_STATUSES_IGNORE);
      if (all != 0) return;
    }
    runtime_->sleep_until(runtime_->clock().now() + kLongestMpiNap);
  } while (runtime_->clock().now() < end && &requests != &meeting_);
  left_behind_ = true;
}

void MpiGroup::post_out(std::vector<std::byte> bytes, int to, int tag) {
  const std::scoped_lock lock(mpi_mutex());
  Outgoing& message = outgoing_.emplace_back();
  message.bytes = std::move(bytes);
  check_mpi(MPI_Isend(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE, to,
                      tag, comm_, &message.request),
            "a message cannot be sent");
}

bool MpiGroup::all_out() {
  std::erase_if(outgoing_, [](Outgoing& message) {
    int done = 0;
    check_mpi(MPI_Test(&message.request, &done, MPI_STATUS_IGNORE), "a message was not sent");
    return done != 0;
  });
  return outgoing_.empty();
}

/// Large messages leave only while somebody calls MPI, which the rank itself may not do for long.
void MpiGroup::keep_moving() {
  Duration nap = kShortestMpiNap;
  while (true) {
    bool closing = false;
    (void)moving_->wait(
        [&] {
          closing = closing_;
          return sending_ || closing_;
        },
        kNever);
    if (closing) return;
    {
      const std::scoped_lock lock(mpi_mutex());
      if (all_out()) {
        moving_->update([this] { sending_ = false; });
        nap = kShortestMpiNap;
        continue;
      }
    }
    (void)moving_->wait([this] { return closing_; }, runtime_->clock().now() + nap);
    nap = std::min(2 * nap, kLongestMpiNap);
  }
}

void MpiGroup::send(const Call& call, const void* data) {
  {
    const std::scoped_lock lock(mpi_mutex());
    hear_control();
  }
  throw_if_ended(call);
  const std::size_t bytes = static_cast<std::size_t>(call.count) * dtype_bytes(call.dtype);
  const std::size_t beside = bytes <= kInlineBytes ? bytes : 0;
  const auto* values = static_cast<const std::byte*>(data);
  std::vector<std::byte> head(offsetof(Packet, bytes) + beside);
  std::memcpy(head.data(), &call, sizeof call);
  if (beside != 0) std::memcpy(head.data() + offsetof(Packet, bytes), values, beside);
  post_out(std::move(head), call.root, kFirstMessage + call.tag);
  for (std::size_t begin = beside; begin < bytes; begin += kMostBytes) {
    post_out(std::vector<std::byte>(values + begin, values + std::min(bytes, begin + kMostBytes)),
             call.root, kFirstMessage + call.tag);
  }
  bool left = false;
  {
    const std::scoped_lock lock(mpi_mutex());
    left = !all_out();
    if (left) moving_->update([this] { sending_ = true; });
  }
  if (left && !mover_) {
    mover_ = runtime_->spawn(fmt::format("MPI messages of {}", name_of(rank_)),
                             [this] { keep_moving(); });
  }
}

void MpiGroup::receive(const Call& call, void* data) {
  {
    const std::scoped_lock lock(mpi_mutex());
    hear_control();
  }
  throw_if_ended(call);
  const auto post = [&](void* to, std::size_t size) {
    const std::scoped_lock lock(mpi_mutex());
    MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Irecv(to, static_cast<int>(size), MPI_BYTE, call.root, kFirstMessage + call.tag,
                        comm_, &request),
              "a message cannot be received");
  };
  Packet& head = packets_.back();
  post(&head, sizeof head);
  const Waited waited = wait_until(
      [&] {
        int came = 0;
        check_mpi(MPI_Test(&requests_[0], &came, MPI_STATUS_IGNORE), "no message");
        return came != 0;
      },
      true);
  if (waited != Waited::kDone) {
    call_back(requests_);
    requests_.clear();
    if (waited == Waited::kEnded) throw_if_ended(call);
    fail(call, waited_text(call));
  }
  requests_.clear();
  if (head.call.count != call.count || head.call.dtype != call.dtype) {
    fail(call, fmt::format("{} calls {}, {} calls {}", name_of(call.root), describe(head.call),
                           name_of(rank_), describe(call)));
  }
  const std::size_t bytes = static_cast<std::size_t>(call.count) * dtype_bytes(call.dtype);
  if (bytes <= kInlineBytes) {
    if (bytes != 0) std::memcpy(data, head.bytes, bytes);
    return;
  }
  for (std::size_t begin = 0; begin < bytes; begin += kMostBytes) {
    post(static_cast<std::byte*>(data) + begin, std::min(kMostBytes, bytes - begin));
  }
  wait_all(call);
}

}  // namespace isthmus
