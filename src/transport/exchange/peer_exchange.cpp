// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/peer_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <type_traits>
#include <utility>

#include "core/base/check.h"
#include "core/base/deadline.h"
#include "core/base/fault_point.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

void check(const Contribution& contribution) {
  ISTHMUS_CHECK(contribution.codec != nullptr);
  ISTHMUS_CHECK(contribution.encoded.bytes.size() ==
                    encoded_bytes(*contribution.codec, contribution.encoded.values),
                contribution.encoded.bytes.size(), contribution.encoded.values);
  ISTHMUS_CHECK(is_weight(contribution.weight), contribution.weight);
  ISTHMUS_CHECK(contribution.id.sent.value() >= 0, contribution.id.sent.value());
  ISTHMUS_CHECK(contribution.id.fragment.value() >= 0, contribution.id.fragment.value());
}

}  // namespace

PeerExchange::PeerExchange(Transport& transport, Runtime& runtime, PeerExchangeOptions options)
    : transport_(transport),
      runtime_(runtime),
      options_(std::move(options)),
      queue_(runtime.make_wait_queue()),
      engine_(
          {.self = transport.self(),
           .members = transport.size() - (options_.hub ? 1 : 0),
           .exchange = options_,
           .most_unused = [&transport](WorkerId peer) { return transport.most_unused(peer); }}) {
  ISTHMUS_CHECK(options_.retry_interval > Duration{0}, options_.retry_interval.count());
  if (options_.history) engine_.hub().restore(*options_.history);
  make_merging();
  if (members() > 1) {
    task_ =
        runtime_.spawn(fmt::format("exchange {}", self().value()), [this] { take_in_frames(); });
  }
}

PeerExchange::~PeerExchange() {
  transport_.close();
  task_.reset();
  merge_server_.reset();  // whose task sends, and hands merges to the next
  merging_.reset();
}

void PeerExchange::make_merging() {
  const bool of_one_program = !options_.on_note && !options_.elastic;
  if (!of_one_program && !options_.merges) return;
  const auto send = [this](WorkerId to, std::span<const std::byte> note, std::uint64_t payload) {
    drive([&](ExchangeEngine& engine, TimePoint, Outbox& out) {
      engine.note(to, note, out);
      out.back().payload_bytes = payload;
    });
  };
  const WorkerId coordinator(options_.hub ? members() : 0);
  const bool is_hub = options_.hub && self() == coordinator;
  if (self() == coordinator) {
    MergeServer::Parts parts{.self = self(),
                             .members = members(),
                             .run_key = options_.run_key,
                             .runtime = runtime_,
                             .history = options_.merge_history,
                             .send = send,
                             .on_failure = options_.on_failure};
    if (!is_hub) {
      parts.on_merge = [this](Merge merge) { merging_->arrived(std::move(merge)); };
      parts.on_end = [this] { merging_->end(); };
      parts.on_failure = [this](const std::exception_ptr& failure) {
        try {
          std::rethrow_exception(failure);
        } catch (const std::exception& error) {
          merging_->fail(error.what());
        }
      };
    }
    ISTHMUS_CHECK(is_hub == (parts.history != nullptr));
    merge_server_ =
        std::make_unique<MergeServer>(std::move(parts), engine_.members().membership().live());
  }
  if (is_hub) return merge_server_->begin();
  merging_ = std::make_unique<Merging>(Merging::Parts{
      .self = self(),
      .members = members(),
      .coordinator = coordinator,
      .server = merge_server_.get(),
      .runtime = runtime_,
      .send = [send, coordinator](std::span<const std::byte> note,
                                  std::uint64_t payload) { send(coordinator, note, payload); },
      .on_follow = [this] { queue_->update([&] { engine_.hub().merges_begin(); }); },
      .on_wait = [this](TimePoint begin) { record_wait(begin, {}); }});
}

Merges* PeerExchange::merges() {
  if (merging_) merging_->begin();
  return merging_.get();
}

void PeerExchange::tell_merges(const EngineNews& news, const std::optional<ExchangeError>& ended) {
  if (merging_ && options_.hub && ended) merging_->fail(ended->what);
  if (!options_.hub) return;
  for (const Epoch& epoch : news.epochs) {
    if (merge_server_ && epoch.joins) merge_server_->come_back(epoch.who);
    if (merge_server_ && !epoch.joins && !epoch.leaves) merge_server_->leave(epoch.who);
    // The hub may be another process than the one that this site told where it is.
    if (merging_ && epoch.joins && epoch.who == self()) merging_->tell_again();
  }
}

template <typename Read>
auto PeerExchange::locked(const Read& read) const {
  std::invoke_result_t<Read, const ExchangeEngine&> value;
  // Wakes no task, which `update` would.
  (void)queue_->wait(
      [&] {
        value = read(std::as_const(engine_));
        return true;
      },
      kNever);
  return value;
}

template <typename Step>
TimePoint PeerExchange::drive(const Step& step) {
  Outbox out;
  TimePoint next = kNever;
  TimePoint now;
  EngineNews news;
  std::optional<ExchangeError> ended;
  std::unique_lock decisions(decisions_, std::defer_lock);
  if (options_.on_records) {
    decisions.lock();
    if (mute_) return kNever;
  }
  queue_->update([&] {
    now = runtime_.clock().now();
    step(engine_, now, out);
    news = engine_.take_news();
    for (const Outgoing& outgoing : out) {
      bytes_.payload += outgoing.payload_bytes;
      bytes_.wire += outgoing.frame->size();
    }
    next = engine_.next_tick();
    if (options_.merges) ended = engine_.rounds().ended();
  });
  if (!news.records.empty()) {
    mute_ = true;
    options_.on_records(news.records);
    mute_ = false;
  }
  for (Outgoing& outgoing : out) {
    transport_.send(outgoing.to, std::move(outgoing.frame));
  }
  for (const ThroughRound& round : news.through) {
    if (options_.on_round) options_.on_round(self(), round.id, now - round.begun);
  }
  for (const ProxyRound& round : news.proxies) {
    if (options_.on_proxy_round) options_.on_proxy_round(round);
  }
  if (options_.merges) tell_merges(news, ended);
  for (const Epoch& epoch : news.epochs) {  // where decisions are written down, in their order
    if (options_.on_epoch) options_.on_epoch(epoch);
  }
  return next;
}

void PeerExchange::take_in_frames() {
  TimePoint deadline = kNever;
  try {
    while (true) {
      Expected<ReceivedFrame, TransportError> received = transport_.receive(deadline);
      if (!received && received.error().kind == TransportError::Kind::kClosed) {
        give_up_quietly(fmt::format("worker {}: its transport was closed", self().value()));
        return;
      }
      std::vector<std::pair<WorkerId, std::vector<std::byte>>> notes;
      deadline = drive([&](ExchangeEngine& engine, TimePoint now, Outbox& out) {
        if (received) {
          engine.receive(received->from, std::move(received->bytes), now, out);
          notes = engine.take_notes();
        } else if (received.error().kind == TransportError::Kind::kPeerLost) {
          engine.lose(received.error().peer, received.error().what, now, out,
                      received.error().cause);
        } else if (received.error().kind == TransportError::Kind::kPeerBack) {
          engine.welcome_back(received.error().peer, now, out);
        }
        engine.tick(now, out);
      });
      for (const auto& [from, bytes] : notes) {
        if (merge_server_ && merge_server_->receive(from, bytes)) continue;
        if (merging_ && merging_->receive(from, bytes)) continue;
        if (options_.on_note) options_.on_note(from, bytes);
      }
      if (!received && (received.error().kind == TransportError::Kind::kPeerLost ||
                        received.error().kind == TransportError::Kind::kPeerBack)) {
        const WorkerId peer = received.error().peer;
        if (merge_server_ && merge_server_->is_hub()) merge_server_->lose(peer);
        if (merging_) merging_->lose(peer, received.error().what);
      }
      if (!received && received.error().kind == TransportError::Kind::kPeerLost &&
          options_.on_lost) {
        options_.on_lost(received.error().peer, received.error().what);
      } else if (!received && received.error().kind == TransportError::Kind::kPeerBack &&
                 options_.on_back) {
        options_.on_back(received.error().peer);
      }
    }
  } catch (const std::exception& error) {
    const std::string why = fmt::format("worker {}: {}", self().value(), error.what());
    drive([&](ExchangeEngine& engine, TimePoint, Outbox& out) { engine.give_up(why, out); });
    if (merging_) merging_->fail(why);
    if (options_.on_failure) options_.on_failure(std::current_exception());
  }
}

// The others have been told by the transport; rounds still open here must not wait for them.
void PeerExchange::give_up_quietly(const std::string& why) {
  queue_->update([&] {
    Outbox untold;
    engine_.give_up(why, untold);
  });
  if (merging_) merging_->fail(why);
}

// Framing copies and checksums the whole contribution, so it is done outside the lock.
Ticket PeerExchange::begin(Contribution contribution) {
  check(contribution);
  const Ticket ticket{contribution.id};
  const bool commit = contribution.commit || (options_.elastic && !options_.takes_back);
  if (options_.deadline) {
    bool late = false;
    queue_->update([&] { late = engine_.meet(ticket.id, runtime_.clock().now()); });
    if (late) {  // the others may be waiting for a round that can be begun in its name now
      drive([](ExchangeEngine& engine, TimePoint now, Outbox& out) { engine.tick(now, out); });
      return ticket;
    }
  }
  const SharedContribution shared = share(std::move(contribution));
  std::optional<SharedContribution> retained;
  if (options_.elastic) retained = shared;
  const RoundPlace place =
      locked([&](const ExchangeEngine& engine) { return engine.rounds().place(ticket.id); });
  Round round(shared, place);
  drive([&](ExchangeEngine& engine, TimePoint now, Outbox& out) {
    engine.begin(std::move(round), commit, std::move(retained), now, out);
  });
  return ticket;
}

bool PeerExchange::uncommitted() const {
  return locked([](const ExchangeEngine& engine) { return engine.rollback().uncommitted(); });
}

StepIndex PeerExchange::go_back() {
  StepIndex step;
  queue_->update([&] { step = engine_.rollback().go_back(); });
  return step;
}

void PeerExchange::agree_on_start(const std::function<StartTerms()>& terms) {
  if (options_.on_start) options_.on_start(self(), terms());
}

bool PeerExchange::round_open() const {
  return locked([](const ExchangeEngine& engine) { return engine.rounds().any_pending(); });
}

std::optional<StepIndex> PeerExchange::begun_ahead() const {
  return locked([](const ExchangeEngine& engine) { return engine.proxies().begun_ahead(); });
}

int PeerExchange::missed_in_a_row() const {
  return locked([](const ExchangeEngine& engine) { return engine.proxies().missed_in_a_row(); });
}

bool PeerExchange::poll(const Ticket& ticket) {
  return locked([&](const ExchangeEngine& engine) { return engine.ready(ticket.id); });
}

Expected<Reduced, ExchangeError> PeerExchange::wait(const Ticket& ticket, Duration patience) {
  const TimePoint begin = runtime_.clock().now();
  TimePoint deadline = deadline_after(begin, patience);
  const auto ready = [&] { return engine_.ready(ticket.id); };
  std::uint32_t epoch =
      locked([](const ExchangeEngine& engine) { return engine.members().membership().number(); });
  TimePoint now = begin;
  TimePoint straggles_at =
      deadline_after(begin, options_.straggler);  // later where the membership changes
  bool groups = false;                            // have been waited for as well
  TimePoint asks_at = deadline_after(begin, options_.asks_after);
  while (!queue_->wait(ready, std::min({deadline, deadline_after(now, options_.retry_interval),
                                        straggles_at, asks_at}))) {
    now = runtime_.clock().now();
    bool came_meanwhile = false;
    std::string missing;
    drive([&](ExchangeEngine& engine, TimePoint at, Outbox& out) {
      engine.tick(at, out);
      if (at >= asks_at) {
        engine.ask(ticket.id, out);
        asks_at = deadline_after(at, options_.asks_after);
      }
      if (engine.members().membership().number() == epoch && at >= straggles_at) {
        engine.leave_behind(ticket.id, groups, at, out);
        // A member of the straggler's own group names it first.
        straggles_at = deadline_after(at, groups ? options_.straggler : options_.straggler / 14);
        groups = !groups;
      }
      if (engine.members().membership().number() !=
          epoch) {  // somebody has come or gone: all have as long again
        epoch = engine.members().membership().number();
        straggles_at = deadline_after(at, options_.straggler);
        groups = false;
        deadline = std::max(deadline, deadline_after(at, patience));
      }
      came_meanwhile = engine.ready(ticket.id);
      missing = engine.describe(ticket.id);
    });
    if (now >= deadline && !came_meanwhile) {
      record_wait(begin, ticket.id);
      return Unexpected<ExchangeError>(ExchangeError{
          ExchangeError::Kind::kDeadlineExceeded, self(),
          fmt::format("no result within {:.1f} s: {}", in_seconds(patience), missing)});
    }
  }
  record_wait(begin, ticket.id);
  Expected<Reduced, ExchangeError> result = Unexpected<ExchangeError>(ExchangeError{});
  (void)queue_->wait(
      [&] {
        result = engine_.take(ticket.id);
        return true;
      },
      kNever);
  if (result) {
    reach(FaultPoint::kApplies);
    result->waited = runtime_.clock().now() - begin;
  }
  return result;
}

ResultOrigin PeerExchange::origin_of(const SyncId& id) const {
  std::optional<std::pair<Digest128, EncodedResult>> origin;
  queue_->update([&] { origin = engine_.rounds().origin_of(id); });
  if (!origin) return {};
  return {.digest = origin->first, .encoded = origin->second.shares()};
}

void PeerExchange::drop_origin() {
  if (!options_.keeps_encoded) return;
  queue_->update([&] { engine_.rounds().drop_origin(); });
}

void PeerExchange::record_wait(TimePoint begin, const SyncId& id) {
  const TimePoint end = runtime_.clock().now();
  if (options_.events != nullptr && end > begin) {
    options_.events->record({.kind = EventKind::kWait,
                             .worker = self(),
                             .begin = begin,
                             .end = end,
                             .fragment = id.fragment.value(),
                             .step = id.sent.value()});
  }
}

ByteCounts PeerExchange::bytes() const {
  return locked([&](const ExchangeEngine&) { return bytes_; });
}

void PeerExchange::note(WorkerId to, std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxFramePayload) {
    throw RunError(fmt::format("a note of {} bytes to worker {}: at most {} fit a frame",
                               bytes.size(), to.value(), kMaxFramePayload));
  }
  drive([&](ExchangeEngine& engine, TimePoint, Outbox& out) { engine.note(to, bytes, out); });
}

bool PeerExchange::admit(WorkerId joiner, std::int64_t after) {
  bool admitted = false;
  drive([&](ExchangeEngine& engine, TimePoint now, Outbox& out) {
    admitted = engine.admit(joiner, after, now, out);
  });
  return admitted;
}

bool PeerExchange::release(WorkerId member, std::int64_t after) {
  bool released = false;
  drive([&](ExchangeEngine& engine, TimePoint now, Outbox& out) {
    released = engine.release(member, after, now, out);
  });
  return released;
}

void PeerExchange::stands(WorkerId member) {
  drive([&](ExchangeEngine& engine, TimePoint now, Outbox& out) {
    engine.hub().stands(member, now, out);
  });
}

void PeerExchange::exclude(WorkerId member, const std::string& why) {
  drive([&](ExchangeEngine& engine, TimePoint now, Outbox& out) {
    engine.exclude(member, why, now, out);
  });
}

void PeerExchange::begin_anew() {
  queue_->update([&] { engine_.hub().restore({}); });
  if (merge_server_) merge_server_->begin_anew();
}

bool PeerExchange::has_left(WorkerId member) const {
  return locked([&](const ExchangeEngine& engine) { return engine.members().peer(member).left; });
}

bool PeerExchange::all_left() const {
  return locked([](const ExchangeEngine& engine) { return engine.all_left(); });
}

Decided PeerExchange::decided() const {
  return locked([](const ExchangeEngine& engine) { return engine.hub().decided(); });
}

void PeerExchange::with_history(const std::function<void(std::span<const HubRecord>)>& take) {
  const std::scoped_lock decisions(decisions_);
  std::vector<HubRecord> history;
  queue_->update([&] { history = engine_.hub().history(); });
  take(history);
}

void PeerExchange::tell_hub_again() {
  drive([](ExchangeEngine& engine, TimePoint now, Outbox& out) {
    engine.hub().tell_again(now, out);
  });
  if (merging_) merging_->tell_again();
}

void PeerExchange::start(std::span<const std::uint64_t> met) {
  drive([&](ExchangeEngine& engine, TimePoint now, Outbox& out) { engine.start(met, now, out); });
}

void PeerExchange::stand_aside() {
  queue_->update([&] { engine_.stand_aside(); });
  if (merging_) merging_->revive();
}

void PeerExchange::leave(Duration patience) {
  if (merging_) merging_->leave();
  if (members() == 1) {
    return;
  }
  const TimePoint deadline = deadline_after(runtime_.clock().now(), patience);
  (void)queue_->wait([&] { return engine_.may_leave(); }, deadline);
  drive([](ExchangeEngine& engine, TimePoint, Outbox& out) { engine.leave(out); });
  (void)queue_->wait([&] { return engine_.all_left(); }, deadline);
}

}  // namespace isthmus
