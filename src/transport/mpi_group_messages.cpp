// SPDX-License-Identifier: Apache-2.0
// Messages from one rank to another: a head that says what it is, with small values beside it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/mpi_calls.h"
#include "transport/mpi_group.h"

namespace isthmus {

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
  Duration nap = kShortestNap;
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
        nap = kShortestNap;
        continue;
      }
    }
    (void)moving_->wait([this] { return closing_; }, runtime_->clock().now() + nap);
    nap = std::min(2 * nap, kLongestNap);
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
