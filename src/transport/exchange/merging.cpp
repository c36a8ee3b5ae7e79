// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/merging.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/deadline.h"
#include "isthmus/errors.h"

namespace isthmus {

Merging::Merging(Parts parts)
    : parts_(std::move(parts)), queue_(parts_.runtime.make_wait_queue()) {}

void Merging::begin() {
  if (begun_) return;
  begun_ = true;
  begun_at_ = parts_.runtime.clock().now();
  if (parts_.server != nullptr) parts_.server->begin();
}

void Merging::send(MergeMessage message, std::span<const std::byte> bytes, std::uint64_t payload) {
  send_merge_notes(streams_++, message, bytes, payload, parts_.send);
}

bool Merging::receive(WorkerId from, std::span<const std::byte> note) {
  if (!is_merge_note(note)) return false;
  if (from != parts_.coordinator) return true;
  auto message = from_.take(note);
  if (!message) {
    fail(fmt::format("from the coordinator of merges: {}", message.error()));
  } else if (*message) {
    take_message(**message);
  }
  return true;
}

void Merging::take_message(const NoteStream& message) {
  const auto kind = static_cast<MergeMessage>(message.kind);
  if (kind == MergeMessage::kEnd) return end();
  if (kind != MergeMessage::kMerge) return;
  Expected<Merge, std::string> merge = read_merge(message.bytes);
  if (!merge) return fail(fmt::format("from the coordinator of merges: {}", merge.error()));
  const bool known = std::ranges::all_of(merge->offers, [&](const MergedOffer& offer) {
    return offer.worker.value() < parts_.members;
  });
  if (!known) return fail("from the coordinator of merges: a merge of an unknown worker");
  arrived(*std::move(merge));
}

// A hub that comes back may send a merge twice.
void Merging::arrived(Merge merge) {
  queue_->update([&] {
    if (has_hub() && merge.number != last_ + 1) return;
    last_ = merge.number;
    arrived_.push_back(std::move(merge));
  });
}

void Merging::end() {
  queue_->update([&] { end_ = true; });
}

void Merging::tell(MergeMessage message) {
  if (parts_.server != nullptr) {
    parts_.server->hear(parts_.self, message);
  } else {
    if (has_hub()) told_.push_back(message);
    send(message, {}, 0);
  }
}

void Merging::leave() {
  if (begun_) tell(MergeMessage::kLeft);
}

// A site of a run with a hub goes on without any other, and without the hub until that is back.
void Merging::lose(WorkerId peer, const std::string& why) {
  if (has_hub()) {
    if (peer == parts_.coordinator) from_ = MergeNoteAssembler();
    return;
  }
  if (ended()) return;
  // The workers of real time are threads of one process: one that is lost has ended with an error.
  if (!parts_.runtime.simulated()) {
    fail(fmt::format("worker {} is gone: {}", peer.value(), why));
  } else if (parts_.server != nullptr) {
    parts_.server->leave(peer);
  } else if (peer == parts_.coordinator) {
    fail(fmt::format("worker {}, which merges the offers, is gone: {}", peer.value(), why));
  }
}

void Merging::tell_again() {
  queue_->update([&] { again_ = true; });
}

/// By the worker's thread, so that messages do not mix.
void Merging::say_again() {
  bool again = false;
  std::int64_t last = 0;
  queue_->update([&] {
    again = std::exchange(again_, false);
    last = last_;
  });
  if (!again || !follows_) return;
  streams_ = 0;
  send(MergeMessage::kFollow, write_follow(last), 0);
  for (const MergeMessage message : told_) send(message, {}, 0);
  for (const auto& [fragment, offer] : unmerged_) {
    send(MergeMessage::kOffer, offer.message, offer.payload);
  }
}

void Merging::fail(const std::string& why) {
  queue_->update([&] {
    if (!failure_) failure_ = why;
  });
}

void Merging::revive() {
  queue_->update([&] { failure_.reset(); });
}

void Merging::follow(std::int64_t last) {
  if (!has_hub()) return;
  if (parts_.on_follow) parts_.on_follow();
  queue_->update([&] {
    last_ = last;
    again_ = false;
  });
  follows_ = true;
  send(MergeMessage::kFollow, write_follow(last), 0);
}

// The worker has trained what it offers since its last offer of the fragment.
void Merging::offer(Offer offer) {
  const TimePoint now = parts_.runtime.clock().now();
  const FragmentId fragment = offer.id.fragment;
  if (offered_.size() <= index(fragment)) offered_.resize(index(fragment) + 1, begun_at_);
  const Duration trained = now - std::exchange(offered_[index(fragment)], now);
  if (!offer.rule.grace) offer.rule.grace = trained / 4;
  if (parts_.server != nullptr) return parts_.server->take(parts_.self, std::move(offer));
  const std::vector<std::byte> message = write_offer(offer);
  const std::uint64_t payload = offer.encoded.bytes.size();
  send(MergeMessage::kOffer, message, payload);
  if (has_hub()) unmerged_[fragment] = {offer.id.sent, message, payload};
}

std::vector<Merge> Merging::take() {
  std::vector<Merge> merges;
  std::optional<std::string> failure;
  bool again = false;
  (void)queue_->wait(
      [&] {
        merges = std::exchange(arrived_, {});
        failure = failure_;
        again = again_;
        return true;
      },
      kNever);
  if (failure) {
    throw PeerError(
        fmt::format("worker {}: its merges have ended: {}", parts_.self.value(), *failure));
  }
  for (const Merge& merge : merges) {
    for (const MergedOffer& offer : merge.offers) {
      const auto own = unmerged_.find(merge.fragment);
      if (offer.worker != parts_.self || own == unmerged_.end()) continue;
      if (own->second.sent == offer.sent) unmerged_.erase(own);
    }
  }
  if (again) say_again();
  return merges;
}

Duration Merging::wait(Duration patience) {
  const TimePoint begin = parts_.runtime.clock().now();
  (void)queue_->wait([&] { return !arrived_.empty() || end_ || again_ || failure_.has_value(); },
                     deadline_after(begin, patience));
  parts_.on_wait(begin);
  return parts_.runtime.clock().now() - begin;
}

bool Merging::ended() {
  bool over = false;
  (void)queue_->wait(
      [&] {
        over = end_ && arrived_.empty();
        return true;
      },
      kNever);
  return over;
}

}  // namespace isthmus
