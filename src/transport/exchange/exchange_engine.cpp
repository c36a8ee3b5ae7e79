// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/exchange_engine.h"

#include <algorithm>

#include "core/base/check.h"

namespace isthmus {

ExchangeEngine::ExchangeEngine(EngineOptions options)
    : options_(std::move(options)),
      members_(options_),
      rounds_(options_, members_),
      sender_(members_, rounds_),
      divergent_(options_, members_),
      commit_(members_, rounds_, divergent_, sender_, decisions_),
      proxies_(options_, members_, rounds_, sender_),
      rollback_(options_, members_, rounds_, commit_),
      epochs_(options_,
              {.members = members_,
               .rounds = rounds_,
               .commit = commit_,
               .proxies = proxies_,
               .rollback = rollback_,
               .reports = reports_,
               .sender = sender_,
               .decisions = decisions_},
              [this](WorkerId from, FrameBytes bytes, TimePoint now, Outbox& out) {
                receive(from, std::move(bytes), now, out);
              }),
      barrier_(members_.processes(), options_.exchange.gathers),
      losses_(options_, {.members = members_,
                         .rounds = rounds_,
                         .commit = commit_,
                         .epochs = epochs_,
                         .proxies = proxies_,
                         .reports = reports_,
                         .barrier = barrier_,
                         .sender = sender_}),
      repair_(options_, members_, rounds_, commit_, sender_),
      hub_(options_, {.members = members_,
                      .rounds = rounds_,
                      .commit = commit_,
                      .epochs = epochs_,
                      .losses = losses_,
                      .sender = sender_,
                      .decisions = decisions_}) {
  const PeerExchangeOptions& exchange = options_.exchange;
  ISTHMUS_CHECK(exchange.elastic || !exchange.hub);
  ISTHMUS_CHECK(!exchange.gathers || (exchange.elastic && !exchange.hub));
  ISTHMUS_CHECK(exchange.elastic || !exchange.deadline);
  ISTHMUS_CHECK(!exchange.takes_back || exchange.elastic);
  ISTHMUS_CHECK(!exchange.takes_back || !exchange.deadline);
}

void ExchangeEngine::begin(Round round, bool commit, std::optional<SharedContribution> retained,
                           TimePoint now, Outbox& out) {
  const PeerExchangeOptions& exchange = options_.exchange;
  ISTHMUS_CHECK(!barrier_.closed());
  ISTHMUS_CHECK(retained.has_value() == exchange.elastic);
  ISTHMUS_CHECK(commit || !exchange.elastic || exchange.takes_back);
  if (meet(round.id(), now)) return;
  if (exchange.deadline) proxies_.keep_form(retained->form, now);
  open(std::move(round), commit, std::move(retained), std::nullopt, now, out);
}

bool ExchangeEngine::meet(const SyncId& id, TimePoint now) {
  OpenRound* open = rounds_.find(id);
  if (open == nullptr || !open->in_its_name) return false;
  proxies_.met(*open->in_its_name, now);
  open->in_its_name.reset();
  return true;
}

void ExchangeEngine::open(Round round, bool commit, std::optional<SharedContribution> retained,
                          std::optional<TimePoint> in_its_name, TimePoint now, Outbox& out) {
  const SyncId id = round.id();
  if (rollback_.absorbs(id)) return;
  // A round that failed before rounds were taken back has failed for good: the coordinator keeps
  // its first verdict, so a member that has not heard of the failure yet will hear of it.
  if (const OpenRound* found = rounds_.find(id); options_.exchange.takes_back && found != nullptr) {
    ISTHMUS_CHECK(found->failure.has_value(), id.fragment.value(), id.sent.value());
    return;
  }
  const Membership& membership = members_.membership();
  ISTHMUS_CHECK(rounds_.ended() || membership.takes_part(options_.self, id.sent), id.sent.value());
  if (retained && round.epoch() != membership.epoch_of(id.sent)) {  // changed since it was made
    round = Round(*retained, rounds_.place(id));
  }
  if (options_.exchange.takes_back) retained.reset();  // no round is begun again here
  repair_.begins(now);
  OpenRound& open = rounds_.open({.round = std::move(round),
                                  .commit = commit,
                                  .failure = {},
                                  .covers = {},
                                  .heard = {},
                                  .retained = std::move(retained),
                                  .before = proxies_.begun(id),
                                  .in_its_name = in_its_name,
                                  .begun = now});
  if (open.retained && open.retained->form.owner_residual) {
    open.residual = *open.retained->form.owner_residual;
  }
  open.heard.assign(members_.processes(), now);
  commit_.begun(open);
  if (rounds_.ended()) {
    open.failure = rounds_.ended();
    return;
  }
  proxies_.announce(open, members_.peers(), out);
  if (auto ok = open.round.launch(out); !ok) {
    commit_.fail(open, ok.error(), out);
  }
  if (rounds_.given_up() && !open.failure) {
    commit_.fail(open, {ExchangeError::Kind::kCorrupt, options_.self, *rounds_.given_up()}, out);
  }
  for (auto& [from, bytes] : rounds_.take_early(id)) {
    const Frame frame = accepted_frame(bytes);  // when it came
    feed(open, from, frame, std::move(bytes), now, out);
  }
  commit_.progress(out);
  losses_.fail_if_left(open, out);
  for (const WorkerId peer : members_.peers()) {
    if (members_.peer(peer).lost) losses_.lose_again(peer, now, out);
  }
  exclude_divergent(now, out);
}

void ExchangeEngine::begin_proxies(TimePoint now, Outbox& out) {
  proxies_.look_ahead(now);
  while (auto due = proxies_.take_due(now)) {
    const RoundPlace where = rounds_.place(due->contribution.id);
    const SharedContribution shared = share(std::move(due->contribution));
    open(Round(shared, where), true, shared, due->since, now, out);
  }
}

void ExchangeEngine::receive(WorkerId from, FrameBytes bytes, TimePoint now, Outbox& out) {
  ISTHMUS_CHECK(from.value() >= 0, from.value());
  ISTHMUS_CHECK(static_cast<std::size_t>(from.value()) < members_.processes(), from.value());
  const Expected<Frame, FrameError> frame = parse_frame(*bytes);
  if (frame && barrier_.hold(from, frame->header.kind, bytes)) {
    return;
  }
  if (!frame || from == options_.self || !epochs_.accepts(from, frame->header, bytes, now, out)) {
    return;
  }
  if (rollback_.speaks_of_now(frame->header)) {
    Peer& peer = members_.peer(from);
    peer.closed_before = std::max(peer.closed_before, frame->header.closed_before);
  }
  if (is_values(frame->header.kind)) {
    receive_values(from, *frame, std::move(bytes), now, out);
  } else {
    receive_control(from, *frame, now, out);
  }
  commit_.progress(out);
  exclude_divergent(now, out);
  commit_.forget_closed();
}

void ExchangeEngine::receive_values(WorkerId from, const Frame& frame, FrameBytes bytes,
                                    TimePoint now, Outbox& out) {
  const SyncId id = frame.header.id;
  OpenRound* open = rounds_.find(id);
  if (open != nullptr) {
    feed(*open, from, frame, std::move(bytes), now, out);
  } else if (!rounds_.over(id)) {
    rounds_.keep_early(id, from, std::move(bytes));
  }
}

void ExchangeEngine::feed(OpenRound& open, WorkerId from, const Frame& frame, FrameBytes bytes,
                          TimePoint now, Outbox& out) {
  if (open.failure || open.round.complete()) {
    return;
  }
  bool fresh = false;
  const auto ok = open.round.receive(from, frame, std::move(bytes), fresh, out);
  if (!ok) {
    commit_.fail(open, ok.error(), out);
  }
  if (fresh) {
    open.heard[static_cast<std::size_t>(from.value())] = now;
    members_.peer(from).patience = options_.exchange.retry_interval;
  }
}

void ExchangeEngine::receive_control(WorkerId from, const Frame& frame, TimePoint now,
                                     Outbox& out) {
  const FrameHeader& head = frame.header;
  switch (head.kind) {
    case FrameKind::kDone:
      commit_.take_done(from, frame, out);
      return;
    case FrameKind::kCommit:
      if (from == members_.coordinator()) commit_.take_commit(head.id, frame.payload, out);
      return;
    case FrameKind::kAbort:
      commit_.take_abort(from, frame, out);
      return;
    case FrameKind::kProbe:
      repair_.answer_probe(from, out);
      return;
    case FrameKind::kEcho:
      repair_.take_echo(from, head.part, out);
      return;
    case FrameKind::kRequest:
      repair_.answer_request(from, frame, out);
      return;
    case FrameKind::kBye:
      losses_.take_bye(from, head, now, out);
      return;
    case FrameKind::kNote:
      notes_.emplace_back(from, std::vector(frame.payload.begin(), frame.payload.end()));
      return;
    case FrameKind::kEpoch:
      epochs_.take_epoch(from, frame, now, out);
      return;
    case FrameKind::kGone:
      losses_.take_gone(from, frame, now, out);
      return;
    case FrameKind::kBegun:
      proxies_.take_begun(from, head);
      return;
    case FrameKind::kContribution:
    case FrameKind::kResult:
    case FrameKind::kPartial:
      return;
  }
}

void ExchangeEngine::exclude_divergent(TimePoint now, Outbox& out) {
  for (const auto& [rank, why] : divergent_.take()) {
    if (!members_.live(rank) || rounds_.ended()) continue;
    divergent_.excluded(rank);
    epochs_.exclude(rank, why, now, out);
  }
}

void ExchangeEngine::lose(WorkerId peer, const std::string& why, TimePoint now, Outbox& out,
                          LossCause cause) {
  losses_.lose(peer, why, now, out, cause);
}

void ExchangeEngine::welcome_back(WorkerId peer, TimePoint now, Outbox& out) {
  losses_.welcome_back(peer, now, out);
}

void ExchangeEngine::start(std::span<const std::uint64_t> met, TimePoint now, Outbox& out) {
  barrier_.open(met.size());
  for (const WorkerId peer : members_.everyone_else()) {
    const bool lost = members_.peer(peer).lost;
    const bool anew = barrier_.started_anew(peer, met[static_cast<std::size_t>(peer.value())]);
    if (!anew && !lost) {
      continue;
    }
    if (anew) {
      lose(peer, "its process has been started anew", now, out);
    } else {
      losses_.lose_again(peer, now, out);
    }
    if (!lost) welcome_back(peer, now, out);
  }
  for (auto& [from, bytes] : barrier_.take_held()) {
    receive(from, std::move(bytes), now, out);
  }
}

void ExchangeEngine::stand_aside() {
  ISTHMUS_CHECK(rounds_.all().empty() && rounds_.last_begun() == StepIndex(0),
                rounds_.all().size());
  epochs_.stand_aside();
  rounds_.revive();
  rounds_.clear_early();
  barrier_.lift();
  proxies_.clear();
}

bool ExchangeEngine::admit(WorkerId joiner, std::int64_t after, TimePoint now, Outbox& out) {
  return epochs_.admit(joiner, after, now, out);
}

bool ExchangeEngine::release(WorkerId member, std::int64_t after, TimePoint now, Outbox& out) {
  return epochs_.release(member, after, now, out);
}

void ExchangeEngine::exclude(WorkerId peer, const std::string& why, TimePoint now, Outbox& out) {
  epochs_.exclude(peer, why, now, out);
}

void ExchangeEngine::leave_behind(const SyncId& id, bool groups, TimePoint now, Outbox& out) {
  losses_.leave_behind(id, groups, now, out);
}

void ExchangeEngine::tick(TimePoint now, Outbox& out) {
  begin_proxies(now, out);
  if (now >= reports_.due()) losses_.settle_reports(now, out);
  if (now < repair_.due()) {
    return;
  }
  repair_.probe_silent(now, out);
  losses_.lose_again_all(now, out);  // the word may not have come
  commit_.repeat_all_done(out);
  exclude_divergent(now, out);
}

TimePoint ExchangeEngine::next_tick() const {
  return std::min({repair_.due(), proxies_.due(), reports_.due()});
}

bool ExchangeEngine::ready(const SyncId& id) const {
  return rollback_.took_back(id) || !rounds_.all().at(id).pending();
}

Expected<Reduced, ExchangeError> ExchangeEngine::take(const SyncId& id) {
  if (const auto error = rollback_.take(id)) return Unexpected<ExchangeError>(*error);
  Expected<Reduced, ExchangeError> result = rounds_.take(id);
  if (result) commit_.forget_closed();
  return result;
}

void ExchangeEngine::ask(const SyncId& id, Outbox& out) {
  if (!rollback_.took_back(id)) repair_.ask(rounds_.all().at(id), out);
}

std::string ExchangeEngine::describe(const SyncId& id) const {
  return rollback_.took_back(id) ? rollback_.why() : repair_.describe(rounds_.all().at(id));
}

void ExchangeEngine::note(WorkerId to, std::span<const std::byte> bytes, Outbox& out) {
  sender_.send({.kind = FrameKind::kNote}, to, bytes, out);
}

std::vector<std::pair<WorkerId, std::vector<std::byte>>> ExchangeEngine::take_notes() {
  return std::exchange(notes_, {});
}

bool ExchangeEngine::may_leave() const {
  return !members_.membership().leaves(options_.self) || !rounds_.any_pending();
}

void ExchangeEngine::leave(Outbox& out) {
  members_.set_leaving();
  for (const WorkerId peer : members_.peers()) {
    sender_.send({.kind = FrameKind::kBye, .offset = rounds_.begun() + 1}, peer, {}, out);
  }
  if (options_.exchange.hub && !members_.is_hub()) {
    sender_.send({.kind = FrameKind::kBye}, members_.coordinator(), {}, out);
  }
}

bool ExchangeEngine::all_left() const {
  const bool hub = members_.is_hub();
  if (!hub && (!members_.is_member() || rounds_.ended())) return true;
  if (!hub && members_.membership().leaves(options_.self)) {
    return members_.peer(members_.coordinator()).lost;
  }
  const std::vector<WorkerId> others = members_.peers();
  if (hub && others.empty()) return false;  // all were lost
  return std::ranges::all_of(others, [&](WorkerId rank) {
    const Peer& peer = members_.peer(rank);
    return peer.left || (peer.lost && !hub);
  });
}

EngineNews ExchangeEngine::take_news() {
  return {.through = commit_.take_through(),
          .records = hub_.take_records(),
          .epochs = epochs_.take_epochs(),
          .proxies = proxies_.take()};
}

}  // namespace isthmus
