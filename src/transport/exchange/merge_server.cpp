// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/merge_server.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "transport/exchange/reduction.h"

namespace isthmus {
namespace {

std::int64_t last_of(const MergeHistory* history) {
  return history == nullptr ? 0 : history->last();
}

}  // namespace

MergeServer::MergeServer(Parts parts, const std::vector<bool>& live)
    : parts_(std::move(parts)),
      queue_(parts_.runtime.make_wait_queue()),
      from_(static_cast<std::size_t>(parts_.members)),
      pool_(parts_.members, last_of(parts_.history)),
      followers_(static_cast<std::size_t>(parts_.members)) {
  for (std::size_t m = 0; m < live.size(); ++m) {
    if (!live[m]) pool_.leave(WorkerId(static_cast<int>(m)));
  }
  if (!is_hub() || parts_.history->last() == 0) return;
  for (std::int64_t n = parts_.history->first(); n <= parts_.history->last(); ++n) {
    const Expected<Merge, std::string> merge = read_merge_head(parts_.history->read(n));
    if (!merge) throw SystemError(fmt::format("the hub's merge {}: {}", n, merge.error()));
    for (const MergedOffer& offer : merge->offers) {
      merged_[{offer.worker, merge->fragment}] = offer.sent;
    }
  }
}

MergeServer::~MergeServer() {
  queue_->update([&] { closing_ = true; });
  task_.reset();
}

void MergeServer::begin() {
  if (!task_) task_ = parts_.runtime.spawn("merges", [this] { serve(); });
}

void MergeServer::begin_anew() {
  (void)queue_->wait(
      [&] {
        if (busy_) return false;
        pool_ = MergePool(parts_.members);
        followers_.assign(followers_.size(), {});
        merged_.clear();
        early_.clear();
        return true;
      },
      kNever);
}

bool MergeServer::receive(WorkerId from, std::span<const std::byte> note) {
  if (!is_merge_note(note)) return false;
  auto message = from_.at(index(from)).take(note);
  if (!message) {
    fail(fmt::format("worker {}: {}", from.value(), message.error()));
  } else if (*message) {
    take_message(from, **message);
  }
  return true;
}

void MergeServer::lose(WorkerId member) {
  from_.at(index(member)) = MergeNoteAssembler();
  queue_->update([&] { followers_[index(member)] = {}; });
}

void MergeServer::take_message(WorkerId from, const NoteStream& message) {
  const auto kind = static_cast<MergeMessage>(message.kind);
  if (kind == MergeMessage::kOffer) {
    Expected<Offer, std::string> offer = read_offer(message.bytes);
    if (!offer) return fail(fmt::format("worker {}: {}", from.value(), offer.error()));
    take(from, *std::move(offer));
  } else if (kind == MergeMessage::kFollow && is_hub()) {
    const Expected<std::int64_t, std::string> last = read_follow(message.bytes);
    if (!last) return fail(fmt::format("worker {}: {}", from.value(), last.error()));
    std::string wrong;
    queue_->update([&] { wrong = follow(from, *last); });
    if (wrong.empty()) return;
    fail(std::make_exception_ptr(ConfigError(fmt::format("worker {}: {}", from.value(), wrong))));
  } else {
    hear(from, kind);
  }
}

std::string MergeServer::follow(WorkerId from, std::int64_t last) {
  const bool empty = parts_.history->last() == 0;
  const bool first = std::ranges::none_of(followers_, &Follower::follows);
  if (empty && first && pool_.merges() < last) pool_.go_on_after(last);
  if (last > pool_.merges()) {
    return fmt::format(
        "it has {} merges, and the hub's log ends with {}: it is an older copy of that log: start "
        "the hub where the newest one lies (--out DIR)",
        last, pool_.merges());
  }
  const std::int64_t from_number = empty ? pool_.merges() + 1 : parts_.history->first();
  if (last + 1 < from_number) {
    return fmt::format("it has {} merges, and the hub's log begins with merge {}", last,
                       from_number);
  }
  followers_[index(from)] = {.follows = true, .has = last};
  pool_.close_offers_of_former(from);
  return "";
}

void MergeServer::take(WorkerId from, Offer offer) {
  const FragmentId fragment = offer.id.fragment;
  bool taken = false;
  queue_->update([&] { taken = take_locked(from, offer); });
  if (!taken) {
    fail(fmt::format("worker {}: two offers of fragment {} at once", from.value(),
                     fragment.value()));
  }
}

bool MergeServer::take_locked(WorkerId from, Offer& offer) {
  const FragmentId fragment = offer.id.fragment;
  if (is_hub()) {
    if (!followers_[index(from)].follows) return true;  // of a process that is gone
    const auto merged = merged_.find({from, fragment});
    const std::optional<StepIndex> held = pool_.held(from, fragment);
    if (merged != merged_.end() && merged->second == offer.id.sent) return true;
    if (held && pool_.is_closed(fragment)) {
      early_.emplace_back(from, std::move(offer));
      return true;
    }
    if (held == offer.id.sent) return true;
  }
  return pool_.take(from, std::move(offer), parts_.runtime.clock().now());
}

void MergeServer::hear(WorkerId from, MergeMessage message) {
  queue_->update([&] {
    if (message == MergeMessage::kStopped) pool_.stop(from);
    if (message == MergeMessage::kFinished) pool_.finish(from);
    if (message == MergeMessage::kLeft) pool_.leave(from);
  });
}

void MergeServer::leave(WorkerId member) {
  queue_->update([&] { pool_.leave(member); });
}

void MergeServer::come_back(WorkerId member) {
  queue_->update([&] { pool_.come_back(member); });
}

void MergeServer::fail(const std::string& why) { fail(std::make_exception_ptr(RunError(why))); }

void MergeServer::fail(const std::exception_ptr& failure) {
  queue_->update([&] {
    if (!failure_) failure_ = failure;
  });
  parts_.on_failure(failure);
}

void MergeServer::serve() {
  try {
    while (true) {
      const Next next = await_next();
      if (next.over) return;
      if (next.picked) merge(*next.picked);
      if (next.behind) give_from_history(*next.behind);
      if (next.end) tell_end();
      if (next.end && !is_hub()) return;
    }
  } catch (const std::exception&) {
    queue_->update([&] { busy_ = false; });
    fail(std::current_exception());
  }
}

MergeServer::Next MergeServer::next_locked() {
  Next next;
  next.picked = pool_.pick(parts_.runtime.clock().now());
  next.over = !next.picked && (closing_ || failure_);
  if (next.picked || next.over) return next;
  next.end = pool_.ended() && !is_hub();
  for (std::size_t m = 0; m < followers_.size() && is_hub(); ++m) {
    if (!followers_[m].follows) continue;
    if (followers_[m].has < pool_.merges()) next.behind = WorkerId(static_cast<int>(m));
    next.end = next.end || (pool_.ended() && !followers_[m].ended);
  }
  if (next.behind) next.end = false;
  return next;
}

/// Blocks until there is something to do.
MergeServer::Next MergeServer::await_next() {
  if (is_hub()) queue_->update([&] { busy_ = false; });
  const auto is_due = [](const Next& next) {
    return next.picked || next.behind || next.end || next.over;
  };
  while (true) {
    Next next;
    TimePoint due = kNever;
    (void)queue_->wait(
        [&] {
          next = next_locked();
          due = pool_.due();
          busy_ = is_due(next) && !next.over;
          return true;
        },
        kNever);
    if (is_due(next)) return next;
    (void)queue_->wait(
        [&] {
          const bool behind = std::ranges::any_of(followers_, [&](const Follower& each) {
            return each.follows && (each.has < pool_.merges() || (pool_.ended() && !each.ended));
          });
          return closing_ || failure_ || behind || (pool_.ended() && !is_hub()) ||
                 pool_.due() != due;
        },
        due);
  }
}

void MergeServer::merge(const PickedOffers& picked) {
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
  if (is_hub()) parts_.history->append(picked.number, bytes);  // before any member is told
  std::vector<WorkerId> to;
  queue_->update([&] {
    for (const MergedOffer& offer : merge.offers) {
      merged_[{offer.worker, merge.fragment}] = offer.sent;
    }
    for (int m = 0; m < parts_.members; ++m) {
      Follower& each = followers_[static_cast<std::size_t>(m)];
      const bool gets =
          is_hub() ? each.follows && each.has + 1 == picked.number : WorkerId(m) != parts_.self;
      if (gets) to.emplace_back(m);
      if (gets) each.has = picked.number;
    }
    for (auto& [worker, offer] : std::exchange(early_, {})) {
      if (!take_locked(worker, offer)) early_.emplace_back(worker, std::move(offer));
    }
  });
  if (parts_.on_merge) parts_.on_merge(std::move(merge));
  for (const WorkerId each : to) {
    send(each, MergeMessage::kMerge, bytes, encoded.encoded.bytes.size());
  }
}

void MergeServer::give_from_history(WorkerId to) {
  std::int64_t number = 0;
  queue_->update([&] {
    Follower& each = followers_[index(to)];
    if (each.follows && each.has < parts_.history->last()) number = ++each.has;
  });
  if (number == 0) return;
  const std::vector<std::byte> bytes = parts_.history->read(number);
  const Expected<Merge, std::string> head = read_merge_head(bytes);
  if (!head) throw SystemError(fmt::format("the hub's merge {}: {}", number, head.error()));
  send(to, MergeMessage::kMerge, bytes, head->bytes);
}

void MergeServer::tell_end() {
  std::vector<WorkerId> to;
  queue_->update([&] {
    for (int m = 0; m < parts_.members; ++m) {
      Follower& each = followers_[static_cast<std::size_t>(m)];
      const bool hears = is_hub() ? each.follows && !each.ended : WorkerId(m) != parts_.self;
      if (hears) to.emplace_back(m);
      if (hears) each.ended = true;
    }
  });
  if (parts_.on_end) parts_.on_end();
  for (const WorkerId each : to) send(each, MergeMessage::kEnd, {}, 0);
}

void MergeServer::send(WorkerId to, MergeMessage message, std::span<const std::byte> bytes,
                       std::uint64_t payload) {
  std::uint32_t stream = 0;
  queue_->update([&] { stream = followers_[index(to)].streams++; });
  send_merge_notes(stream, message, bytes, payload,
                   [&](std::span<const std::byte> note, std::uint64_t values) {
                     parts_.send(to, note, values);
                   });
}

}  // namespace isthmus
