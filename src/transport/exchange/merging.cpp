// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/merging.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/check.h"
#include "core/base/deadline.h"
#include "isthmus/errors.h"
#include "transport/exchange/reduction.h"
#include "transport/wire/byte_fields.h"

namespace isthmus {
namespace {

constexpr std::uint32_t kMergesMark = 0x4752454d;  // "MERG"
constexpr std::size_t kMergesMarkBytes = 4;
constexpr std::uint64_t kMostMessageBytes = std::uint64_t{1} << 40;
constexpr WorkerId kMerger(0);

bool is_marked(std::span<const std::byte> note) {
  if (note.size() < kMergesMarkBytes) return false;
  FieldReader in(note);
  return in.get<std::uint32_t>() == kMergesMark;
}

}  // namespace

Merging::Merging(Parts parts)
    : parts_(std::move(parts)),
      queue_(parts_.runtime.make_wait_queue()),
      streams_(static_cast<std::size_t>(parts_.members)),
      from_(static_cast<std::size_t>(parts_.members), NoteStreamAssembler(kMostMessageBytes)),
      pool_(parts_.members) {}

Merging::~Merging() {
  queue_->update([&] { closing_ = true; });
  task_.reset();
}

void Merging::begin() {
  if (begun_) return;
  begun_ = true;
  begun_at_ = parts_.runtime.clock().now();
  if (coordinates()) task_ = parts_.runtime.spawn("merges", [this] { serve(); });
}

void Merging::send(WorkerId to, MergeMessage message, std::span<const std::byte> bytes,
                   std::uint64_t payload) {
  NoteStreamCutter pieces(streams_[index(to)]++, static_cast<std::uint32_t>(message), bytes);
  while (!pieces.done()) {
    const std::vector<std::byte> piece = pieces.next();
    std::vector<std::byte> note(kMergesMarkBytes + piece.size());
    FieldWriter out(note);
    out.put(kMergesMark);
    out.put_bytes(piece);
    parts_.send(to, note, std::exchange(payload, 0));
  }
}

bool Merging::receive(WorkerId from, std::span<const std::byte> note) {
  if (!is_marked(note)) return false;
  auto message = from_[index(from)].take(note.subspan(kMergesMarkBytes));
  if (!message) {
    fail(fmt::format("worker {}: {}", from.value(), message.error()));
  } else if (*message) {
    take_message(from, **message);
  }
  return true;
}

void Merging::take_message(WorkerId from, const NoteStream& message) {
  const auto kind = static_cast<MergeMessage>(message.kind);
  if (coordinates() && kind == MergeMessage::kOffer) {
    Expected<Offer, std::string> offer = read_offer(message.bytes);
    if (!offer) return fail(fmt::format("worker {}: {}", from.value(), offer.error()));
    bool taken = false;
    queue_->update(
        [&] { taken = pool_.take(from, *std::move(offer), parts_.runtime.clock().now()); });
    if (!taken) fail(fmt::format("worker {}: two offers of one fragment at once", from.value()));
  } else if (!coordinates() && from == kMerger && kind == MergeMessage::kMerge) {
    Expected<Merge, std::string> merge = read_merge(message.bytes);
    if (!merge) return fail(fmt::format("worker {}: {}", from.value(), merge.error()));
    arrived(*std::move(merge));
  } else if (!coordinates() && from == kMerger && kind == MergeMessage::kEnd) {
    queue_->update([&] { end_ = true; });
  } else if (coordinates()) {
    queue_->update([&] { hear(from, kind); });
  }
}

void Merging::hear(WorkerId from, MergeMessage message) {
  if (message == MergeMessage::kStopped) pool_.stop(from);
  if (message == MergeMessage::kFinished) pool_.finish(from);
  if (message == MergeMessage::kLeft) pool_.leave(from);
}

void Merging::tell(MergeMessage message) {
  if (coordinates()) {
    queue_->update([&] { hear(kMerger, message); });
  } else {
    send(kMerger, message, {}, 0);
  }
}

void Merging::leave() {
  if (begun_) tell(MergeMessage::kLeft);
}

void Merging::lose(WorkerId peer, const std::string& why) {
  if (ended()) return;
  // The workers of real time are threads of one process: one that is lost has ended with an error.
  if (!parts_.runtime.simulated()) {
    fail(fmt::format("worker {} is gone: {}", peer.value(), why));
  } else if (coordinates()) {
    queue_->update([&] { pool_.leave(peer); });
  } else if (peer == kMerger) {
    fail(fmt::format("worker {}, which merges the offers, is gone: {}", peer.value(), why));
  }
}

void Merging::fail(const std::string& why) {
  queue_->update([&] {
    if (!failure_) failure_ = why;
  });
}

// The worker has trained what it offers since its last offer of the fragment.
void Merging::offer(Offer offer) {
  const TimePoint now = parts_.runtime.clock().now();
  const std::size_t fragment = index(offer.id.fragment);
  if (offered_.size() <= fragment) offered_.resize(fragment + 1, begun_at_);
  const Duration trained = now - std::exchange(offered_[fragment], now);
  if (!offer.rule.grace) offer.rule.grace = trained / 4;
  if (!coordinates()) {
    send(kMerger, MergeMessage::kOffer, write_offer(offer), offer.encoded.bytes.size());
    return;
  }
  bool taken = false;
  queue_->update([&] { taken = pool_.take(kMerger, std::move(offer), now); });
  ISTHMUS_CHECK(taken, fragment);
}

void Merging::arrived(Merge merge) {
  queue_->update([&] { arrived_.push_back(std::move(merge)); });
}

std::vector<Merge> Merging::take() {
  std::vector<Merge> merges;
  std::optional<std::string> failure;
  (void)queue_->wait(
      [&] {
        merges = std::exchange(arrived_, {});
        failure = failure_;
        return true;
      },
      kNever);
  if (failure) {
    throw PeerError(
        fmt::format("worker {}: its merges have ended: {}", parts_.self.value(), *failure));
  }
  return merges;
}

Duration Merging::wait(Duration patience) {
  const TimePoint begin = parts_.runtime.clock().now();
  (void)queue_->wait([&] { return !arrived_.empty() || end_ || failure_.has_value(); },
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

void Merging::serve() {
  try {
    while (const std::optional<PickedOffers> picked = next_to_merge()) merge(*picked);
    bool over = false;
    queue_->update([&] {
      over = !closing_ && !failure_;
      end_ = over;
    });
    for (int m = 1; over && m < parts_.members; ++m) send(WorkerId(m), MergeMessage::kEnd, {}, 0);
  } catch (const std::exception& error) {
    fail(error.what());
  }
}

/// Blocks until a merge is due. RETURNS: nothing when none follows.
std::optional<PickedOffers> Merging::next_to_merge() {
  while (true) {
    std::optional<PickedOffers> picked;
    TimePoint due = kNever;
    bool over = false;
    (void)queue_->wait(
        [&] {
          picked = pool_.pick(parts_.runtime.clock().now());
          due = pool_.due();
          over = closing_ || failure_ || pool_.ended();
          return true;
        },
        kNever);
    if (picked) return picked;
    if (over) return std::nullopt;
    (void)queue_->wait([&] { return closing_ || failure_ || pool_.ended() || pool_.due() != due; },
                       due);
  }
}

void Merging::merge(const PickedOffers& picked) {
  const Offer& first = picked.offers.front().second;
  std::vector<WeightedBytes> contributions;
  Merge merge{.number = picked.number,
              .fragment = picked.fragment,
              .step = picked.step,
              .offers = {},
              .values = std::vector<float>(first.encoded.values)};
  for (const auto& [worker, offer] : picked.offers) {
    if (offer.encoded.values != first.encoded.values ||
        offer.codec->name() != first.codec->name()) {
      throw RunError(fmt::format("workers {} and {} offer unlike vectors of fragment {}",
                                 picked.offers.front().first.value(), worker.value(),
                                 picked.fragment.value()));
    }
    contributions.push_back({.bytes = offer.encoded.bytes, .weight = offer.weight});
    merge.offers.push_back(
        {.worker = worker, .sent = offer.id.sent, .tokens = offer.tokens, .weight = offer.weight});
  }
  if (const auto ok = reduce_tiles(*first.codec, contributions, merge.values); !ok) {
    throw RunError(fmt::format("worker {}: its offer does not decode: {}",
                               picked.offers[ok.error().member].first.value(), ok.error().what));
  }
  const std::shared_ptr<const Codec> codec =
      first.codec->sparse() ? std::shared_ptr<const Codec>(make_codec("fp32")) : first.codec;
  EncodedMerge encoded{.merge = merge, .codec = codec->name(), .encoded = {}};
  encoded.encoded =
      encode(*codec, merge.values,
             encode_key({picked.fragment, picked.step}, mean_encoder(picked), parts_.run_key));
  merge.bytes = encoded.encoded.bytes.size();
  if (!codec->lossless()) {
    const auto own = decode(*codec, encoded.encoded.bytes, merge.values);
    ISTHMUS_CHECK(own.has_value(), picked.number);
  }
  encoded.merge.values = {};
  const std::vector<std::byte> bytes = write_merge(encoded);
  arrived(std::move(merge));
  for (int m = 1; m < parts_.members; ++m) {
    send(WorkerId(m), MergeMessage::kMerge, bytes, encoded.encoded.bytes.size());
  }
}

}  // namespace isthmus
