// SPDX-License-Identifier: Apache-2.0
#include "session/site/state_donor.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "core/base/log.h"
#include "core/state/state_bytes.h"
#include "session/run/worker_state.h"
#include "session/site/site_start.h"
#include "transport/exchange/round_result.h"
#include "transport/wire/note_stream.h"

namespace isthmus::app {
namespace {

constexpr std::uint64_t kModelsUnderWay = 8;  // in fp32: results that wait for a newcomer
constexpr double kWaits = 10;                 // seconds: at most, for the window's end
constexpr std::int64_t kFirstWait = 20;       // steps: while none has been measured

std::uint64_t model_bytes(const InnerLoop& inner) {
  std::uint64_t bytes = 0;
  for (const Parameter& parameter : inner.parameters()) bytes += parameter.values.size_bytes();
  return bytes;
}

}  // namespace

StateDonor::StateDonor(Options options, StateSource& source)
    : options_(std::move(options)), source_(source) {}

void StateDonor::hello(WorkerId from, const HelloNote& note) {
  const std::string& name = options_.sites[static_cast<std::size_t>(from.value())];
  const std::string& self = options_.sites[static_cast<std::size_t>(options_.self.value())];
  if (const std::string text = differences(self, options_.own, name, note); !text.empty()) {
    log_warning("site {} cannot join: {}", name, text);
    options_.send(from,
                  TurnedAwayNote{.why = fmt::format("the sites' configurations differ: {}", text),
                                 .configuration = true});
    return;
  }
  if (closed_) {
    turn_away(from, "the run has ended; its result is at the sites that were in it");
    return;
  }
  RunningNote running{.run_id = options_.run_id,
                      .live = {},
                      .donor = options_.self.value(),
                      .session = options_.session};
  const std::vector<bool> live = options_.live();
  for (std::size_t m = 0; m < live.size(); ++m) {
    if (live[m] && WorkerId(static_cast<int>(m)) != from)
      running.live.push_back(static_cast<int>(m));
  }
  options_.send(from, running);
}

// Functions that may call back (an agreement, an admission) are called without the lock.
void StateDonor::receive(WorkerId from, const Note& note) {
  std::unique_lock lock(mutex_);
  if (const auto* join = std::get_if<JoinNote>(&note)) {
    lock.unlock();
    take_in(from, *join);
  } else if (from != joiner_ || phase_ == Phase::kNobody) {
    return;  // of a site that counted as gone
  } else if (const auto* taken = std::get_if<TakenNote>(&note)) {
    taken_ = std::clamp(taken->bytes, taken_, sent_);
  } else if (std::holds_alternative<CaughtUpNote>(note) && phase_ == Phase::kReplays) {
    phase_ = Phase::kAgreeing;
    fell_behind_.erase(from);
    const WishNote wish = wish_of_joiner();
    lock.unlock();
    options_.wish(wish);
  }
}

WishNote StateDonor::wish_of_joiner() const {
  return {.purpose = Purpose::kJoin, .joiner = joiner_.value(), .linked = note_.linked};
}

void StateDonor::hub_back() {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kAgreeing) {
    return;
  }
  const WishNote wish = wish_of_joiner();
  lock.unlock();
  options_.wish(wish);
}

void StateDonor::entered(WorkerId site, std::int64_t after) {
  const std::scoped_lock lock(mutex_);
  if (phase_ == Phase::kAgreeing && site == joiner_) {
    phase_ = Phase::kAdmitted;
    admitted_after_ = after;
  }
}

bool StateDonor::lacks(WorkerId newcomer, const JoinNote& note) const {
  const std::vector<bool> live = options_.live();
  for (std::size_t m = 0; m < live.size(); ++m) {
    const int site = static_cast<int>(m);
    if (live[m] && WorkerId(site) != newcomer &&
        std::ranges::find(note.linked, site) == note.linked.end()) {
      return true;
    }
  }
  return false;
}

void StateDonor::take_in(WorkerId from, const JoinNote& note) {
  const std::scoped_lock lock(mutex_);
  const bool member = options_.live()[static_cast<std::size_t>(from.value())];
  if (member || (phase_ != Phase::kNobody && from == joiner_)) {
    return;  // said twice
  }
  std::erase_if(waiting_, [&](const auto& each) { return each.first == from; });
  waiting_.emplace_back(from, note);
  next();
}

// A site that came after a newcomer's question may not have answered the newcomer yet: the newcomer
// is told which sites are present, and asks again. From its offer on no other site comes.
void StateDonor::next() {
  while (phase_ == Phase::kNobody && !waiting_.empty()) {
    const auto [site, note] = waiting_.front();
    waiting_.pop_front();
    if (lacks(site, note)) {
      hello(site, options_.own);
    } else {
      joiner_ = site;
      note_ = note;
      phase_ = Phase::kWanted;
    }
  }
}

void StateDonor::turn_away(WorkerId site, const std::string& why, bool again) {
  options_.send(site, TurnedAwayNote{.why = why, .configuration = false, .again = again});
}

void StateDonor::close(bool goes_on) {
  const std::scoped_lock lock(mutex_);
  const std::string why = goes_on ? "the site whose state it was to take over has left"
                                  : "the run has ended; its result is at the sites that were in it";
  closed_ = true;
  for (const auto& [site, note] : std::exchange(waiting_, {})) turn_away(site, why, goes_on);
  if (phase_ != Phase::kNobody && phase_ != Phase::kAdmitted) turn_away(joiner_, why, goes_on);
  phase_ = Phase::kNobody;
}

void StateDonor::lost(WorkerId site) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(waiting_, [&](const auto& each) { return each.first == site; });
  if (phase_ != Phase::kNobody && site == joiner_) {
    if (kept_ && kept_->newcomer == site) {
      kept_->away = true;
    } else {
      source_.forget(site);  // without the results since, the state is of no use to it
    }
    phase_ = Phase::kNobody;
    next();
  }
}

bool StateDonor::agreed(std::int64_t after) {
  std::unique_lock lock(mutex_);
  if (phase_ != Phase::kAgreeing) {
    return false;
  }
  if (after >= options_.total_steps) {
    phase_ = Phase::kNobody;
    turn_away(joiner_, "the run is at its last step; its result is at the sites that are in it");
    next();
    return false;
  }
  if (!options_.admit) {
    phase_ = Phase::kNobody;
    turn_away(joiner_, "the hub could not take it in at the step that was agreed on", true);
    next();
    return false;
  }
  phase_ = Phase::kAdmitted;
  admitted_after_ = after;
  const WorkerId joiner = joiner_;
  lock.unlock();
  return options_.admit(joiner, after);
}

void StateDonor::after_step(StepIndex t, InnerLoop& inner, const OuterStrategy& strategy,
                            ForwardingExchange& exchange, bool stands) {
  std::unique_lock lock(mutex_);
  if (kept_ && !source_.serves(kept_->newcomer)) kept_.reset();
  const double now_s = options_.clock_s();
  if (last_step_) {
    const auto steps = std::max<std::int64_t>(1, t.value() - last_step_->first.value());
    step_s_ = (now_s - last_step_->second) / static_cast<double>(steps);
  }
  last_step_ = {t, now_s};
  const bool replays =
      phase_ == Phase::kReplays || phase_ == Phase::kAgreeing || phase_ == Phase::kAdmitted;
  if (phase_ == Phase::kAdmitted && t.value() > admitted_after_ + options_.window) {
    phase_ = Phase::kNobody;  // every round sent before has ended
    next();
  } else if (replays && forwards_) {
    options_.send(joiner_, ReachedNote{t});
  }
  if (phase_ == Phase::kWanted && comes_back()) {
    offer_after_ = kept_->prepared;
    source_.returned(joiner_);
    const std::vector<WorkerId> here = others();
    std::erase_if(told_,
                  [&](WorkerId site) { return std::ranges::find(here, site) == here.end(); });
    for (const WorkerId site : told_) tell(site);
    offer(exchange);
    options_.send(joiner_, ReachedNote{t});  // before that it has not caught up
  } else if (phase_ == Phase::kWanted) {
    prepare(t);
  }
  if (phase_ == Phase::kPreparing && stands &&
      t < offer_after_) {  // no site gets beyond step t now
    offer_after_ = t;
    for (const WorkerId site : told_) tell(site);
  }
  if (phase_ == Phase::kPreparing && t >= offer_after_) {
    phase_ = Phase::kOffering;
    const WorkerId joiner = joiner_;
    lock.unlock();  // large states take their time, and rounds go on
    const PieceTable table =
        source_.hold(joiner, write_state(worker_snapshot(inner, strategy, true)));
    lock.lock();
    most_under_way_ = std::max(options_.least_under_way, kModelsUnderWay * model_bytes(inner));
    if (phase_ == Phase::kOffering && joiner_ == joiner) {
      kept_ = Kept{.newcomer = joiner,
                   .after = t,
                   .prepared = offer_after_,
                   .clock_s = options_.clock_s(),
                   .table = table,
                   .digest = xxh3_128(write_table(table)),
                   .results = {}};
      offer(exchange);
    } else {
      source_.forget(joiner);
    }
  } else if (forwards_ && phase_ == Phase::kNobody && !kept_) {
    exchange.forward_to({});
    forwards_ = false;
  }
}

std::vector<WorkerId> StateDonor::others() const {
  std::vector<WorkerId> others;
  const std::vector<bool> live = options_.live();
  for (std::size_t m = 0; m < live.size(); ++m) {
    const WorkerId site(static_cast<int>(m));
    if (live[m] && site != options_.self && site != joiner_) others.push_back(site);
  }
  return others;
}

// No site ends a round that this one has not begun, so a site that hears of this window's end
// before this one stands is in time, however far ahead it is. The exception is a late site whose
// rounds were begun in its name (net.deadline): the others are beyond that step, and the whole
// state comes from this site alone. (With overlap some fragments may be applied at one site and not
// at another: these come from this site alone.) The donor does not wait for the end of a long
// window: the results of rounds are alike within it all the same.
void StateDonor::prepare(StepIndex t) {
  source_.forget(kept_ ? kept_->newcomer : joiner_);  // before there are two
  kept_.reset();
  phase_ = Phase::kPreparing;
  told_ = others();
  const std::int64_t every = options_.rounds_every;
  const std::int64_t patience =
      !step_s_ ? kFirstWait
               : static_cast<std::int64_t>(std::min(kWaits / std::max(*step_s_, 1e-3), 1e6));
  const std::int64_t end = std::min((t.value() / every + 1) * every, options_.total_steps);
  offer_after_ = told_.empty() ? t : StepIndex(std::min(end, t.value() + 1 + patience));
  for (const WorkerId site : told_) tell(site);
}

void StateDonor::tell(WorkerId site) {
  options_.send(site, PrepareNote{.newcomer = joiner_.value(), .step = offer_after_});
}

// True if the replay of the results kept for the joiner takes no longer than a transfer of the
// pieces that it has saved.
bool StateDonor::comes_back() const {
  return kept_ && kept_->away && kept_->newcomer == joiner_ && kept_->digest == note_.table &&
         kept_->result_bytes <= note_.saved;
}

void StateDonor::offer(ForwardingExchange& exchange) {
  phase_ = Phase::kReplays;
  forwards_ = true;
  streams_ = 0;
  sent_ = 0;
  taken_ = 0;
  exchange.forward_to(
      [this](const SyncId& id, const Reduced& result, const ForwardingExchange::Encoded& encoded) {
        forward(id, result, encoded);
      });
  const std::uint64_t state_bytes = table_bytes(kept_->table);
  options_.send(joiner_,
                OfferNote{.step = kept_->after, .bytes = state_bytes, .clock_s = kept_->clock_s});
  const std::vector<std::byte> bytes = write_table(kept_->table);
  for (NoteStreamCutter cutter(0, 0, bytes); !cutter.done();) {
    const TableNote note{cutter.next()};
    options_.send(joiner_, note);
    for (const WorkerId site : told_) options_.send(site, note);
  }
  log_info("site {} takes over this site's state after step {}: {} bytes{}",
           options_.sites[static_cast<std::size_t>(joiner_.value())], kept_->after.value(),
           state_bytes,
           kept_->away ? fmt::format(", of which it has {}, and {} of results since", note_.saved,
                                     kept_->result_bytes)
                       : "");
  kept_->away = false;
  for (const std::vector<std::byte>& result : kept_->results) send_result(result);
}

void StateDonor::send_result(std::span<const std::byte> bytes) {
  sent_ += bytes.size();
  for (NoteStreamCutter cutter(streams_++, 0, bytes); !cutter.done();) {
    options_.send(joiner_, ResultNote{cutter.next()});
  }
}

// Called by the worker within a step, so joiner_ and phase_ may change meanwhile.
void StateDonor::forward(const SyncId& id, const Reduced& result,
                         std::span<const EncodedShare> encoded) {
  const std::scoped_lock lock(mutex_);
  const bool wanted = phase_ == Phase::kReplays || phase_ == Phase::kAgreeing ||
                      (phase_ == Phase::kAdmitted && id.sent.value() <= admitted_after_);
  if (!wanted && !kept_) {
    return;
  }
  std::vector<std::byte> bytes;
  try {
    bytes = write_result(id, result, encoded);
    keep(bytes);
  } catch (const std::bad_alloc&) {  // this site's round does not end for it
    keep_no_more();
    if (wanted && bytes.empty()) bytes = write_result(id, result, encoded);
  }
  if (!wanted) {
    return;
  }
  if (phase_ != Phase::kAdmitted && sent_ + bytes.size() - taken_ > most_under_way_) {
    fall_behind();
    return;
  }
  // It replays nothing before the whole state is there: with a tenth of the time it may never be.
  if (sent_ + bytes.size() - taken_ > most_under_way_ / 2 || fell_behind_.contains(joiner_)) {
    source_.hurry(joiner_);
  }
  send_result(bytes);
}

// With more to replay than half of the state it would seldom pay to come back, and in every join
// they take this site's memory.
void StateDonor::keep(const std::vector<std::byte>& result) {
  if (!kept_) return;
  kept_->result_bytes += result.size();
  if (kept_->result_bytes <= table_bytes(kept_->table) / 2) {
    kept_->results.push_back(result);
  } else {
    keep_no_more();
  }
}

void StateDonor::keep_no_more() {
  if (kept_ && kept_->away) source_.forget(kept_->newcomer);
  kept_.reset();
}

namespace {

constexpr int kStartsOver = 2;  // joins of a joiner that falls behind

}  // namespace

// With a state of now, and fewer rounds to replay, it may catch up.
void StateDonor::fall_behind() {
  const bool again = ++fell_behind_[joiner_] <= kStartsOver;
  const std::string why = fmt::format(
      "{} bytes of results are on their way to it or wait there, and {} is the most: it takes in "
      "less "
      "than the run makes{}",
      sent_ - taken_, most_under_way_,
      again ? ", and starts over"
            : "; come back over a faster link, or with a higher net.serve, a longer outer.H or a "
              "smaller codec");
  log_warning("site {} cannot join: {}", options_.sites[static_cast<std::size_t>(joiner_.value())],
              why);
  turn_away(joiner_, why, again);
  if (!again) fell_behind_.erase(joiner_);
  source_.forget(joiner_);
  kept_.reset();
  phase_ = Phase::kNobody;
  next();
}

// The state may be of such a step too, or of the step that was kept.
void StateDonor::gone_back(StepIndex t) {
  const std::scoped_lock lock(mutex_);
  if (kept_ && kept_->away) source_.forget(kept_->newcomer);
  kept_.reset();
  const bool misled = phase_ == Phase::kReplays || phase_ == Phase::kAgreeing ||
                      (phase_ == Phase::kAdmitted && t.value() < admitted_after_);
  if (!misled) return;
  const std::string why = fmt::format(
      "a site was lost, and the run has gone back to step {}, its last committed one: it starts "
      "over",
      t.value());
  log_warning("site {} cannot join: {}", options_.sites[static_cast<std::size_t>(joiner_.value())],
              why);
  turn_away(joiner_, why, true);
  source_.forget(joiner_);
  phase_ = Phase::kNobody;
  next();
}

}  // namespace isthmus::app
