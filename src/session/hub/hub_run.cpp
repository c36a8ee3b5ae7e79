// SPDX-License-Identifier: Apache-2.0
#include "session/hub/hub_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "record/wall_clock.h"
#include "session/run/owner_shares.h"
#include "session/run/run_settings.h"
#include "session/site/site_links.h"
#include "session/site/site_routes.h"
#include "transport/links/relay/link_allowance.h"
#include "transport/links/zmq/zmq_transport.h"

namespace isthmus::app {
namespace {

constexpr Duration kHubLook = std::chrono::milliseconds(100);
constexpr Duration kBetweenWords = std::chrono::seconds(10);
/// Beyond net.dead_after, for the sites of the log to find a hub's next process.
constexpr Duration kFindBack = std::chrono::seconds(5);

MemberOptions links_of(const HubRun::Options& options, HubEnrolment* enrolment) {
  MemberOptions links = hub_link_options(options.config, options.links);
  let_come_back(links);
  spare_detours(links);
  if (enrolment != nullptr) {
    links.on_enrol = [enrolment](const std::string& invitation, std::span<const std::byte> said) {
      return enrolment->ask(invitation, said);
    };
  }
  return links;
}

}  // namespace

HubRun::HubRun(Options options, HubLog& log)
    : all_(std::move(options), log),
      queue_(all_.options.runtime.make_wait_queue()),
      enrolment_(make_enrolment()),
      links_(links_of(all_.options, enrolment_.get())),
      others_follow_(5 * links_.heartbeat / 2),
      begin_(all_.now()),
      next_word_(begin_ + kBetweenWords),
      transport_(make_zmq_transport(all_.options.runtime, links_)) {
  routes_ = std::make_unique<SiteRoutes>(
      all_.options.runtime, all_.config().sites, links_, transport_->endpoint(),
      told_keys_of(*transport_),
      HubRelay{.place = all_.config().hub.relay, .running = std::move(all_.options.relay)});
}

// Its task gives keys to the transport.
HubRun::~HubRun() {
  if (enrolment_) enrolment_->stop();
}

std::unique_ptr<Relay> HubRun::take_relay() { return routes_->take_relay(); }

std::unique_ptr<HubEnrolment> HubRun::make_enrolment() {
  if (all_.options.keys == nullptr) return nullptr;
  const std::optional<LinkKeys> pair = hub_link_options(all_.config(), all_.options.links).keys;
  return std::make_unique<HubEnrolment>(
      all_.options.runtime,
      [this, pair = *pair](const std::string& invitation, std::span<const std::byte> said) {
        EnrolAnswer answer = all_.options.keys->enrol(pair, invitation, said);
        // Before the site hears it: it comes with its key at once, and a refusal ends it.
        if (answer.welcome) transport_->set_keys(all_.options.keys->table());
        if (all_.options.board != nullptr) all_.options.board->enrolled(answer.welcome);
        return answer;
      });
}

void HubRun::open_exchange() {
  exchange_ = std::make_unique<PeerExchange>(
      *transport_, all_.options.runtime,
      PeerExchangeOptions{
          .retry_interval = kNothingIsLost,
          .shares = first_shares(all_.config()),
          .run_key = run_key(all_.config().run.seed, Stream::kRounding),
          .elastic = true,
          .min_members = all_.config().min_sites(),
          .hub = true,
          .history = all_.log.contents().history,
          .merges = all_.options.merges != nullptr,
          .merge_history = all_.options.merges,
          .on_records = [this](std::span<const HubRecord> records) { append(records); },
          .on_note =
              [this](WorkerId from, std::span<const std::byte> bytes) {
                push(Said{from, {bytes.begin(), bytes.end()}});
              },
          .on_lost =
              [this](WorkerId site, const std::string& why) {
                push(Lost{site, why});
              },
          .on_back = [this](WorkerId site) { push(Back{site}); },
          .on_epoch = [this](const Epoch& epoch) { push(epoch); },
          .on_failure = [this](const std::exception_ptr& failure) { push(failure); }});
  all_.exchange = exchange_.get();
}

void HubRun::push(Event event) {
  queue_->update([&] { events_.push_back(std::move(event)); });
}

HubRun::End HubRun::run() {
  std::vector<std::string> endpoints = routes_->endpoints();
  endpoints.push_back("tcp://" + all_.config().hub.address);
  if (all_.options.keys != nullptr) {
    keys_version_ = all_.options.keys->book().version;
    transport_->set_keys(all_.options.keys->table());
  }
  transport_->join(endpoints, routes_->detours());
  static_cast<void>(transport_->await_members(all_.now(), {}));  // each is news when it comes
  open_exchange();
  TimePoint looked = all_.now();
  while (true) {
    std::deque<Event> events;
    (void)queue_->wait([&] { return !events_.empty(); }, all_.now() + kHubLook);
    queue_->update([&] { events = std::exchange(events_, {}); });
    if (all_.now() - looked > all_.config().net.dead_after / 2) {
      log_warning("this process stood still for {:.1f} s: beginning anew from the log",
                  in_seconds(all_.now() - looked));
      return End::kAnew;
    }
    looked = all_.now();
    look_at_keys();
    for (const Event& event : events) {
      std::visit([this](const auto& each) { take(each); }, event);
    }
    if (all_.options.stopped()) {
      return End::kStopped;
    }
    if (all_.nobody_left || all_gone()) {
      log_warning("all sites are gone: beginning anew from the log");
      return End::kAnew;
    }
    count_the_lost();
    leave_out_who_stays_away();
    if (all_.anybody_stands() && exchange_->all_left()) {
      all_.log.end();
      routes_->finish_in_order();
      return End::kAllLeft;
    }
    // By then all sites have said which records they no longer need.
    if (all_.first_stands && all_.now() - *all_.first_stands >= kFindBack && all_.log.has_grown()) {
      exchange_->with_history([this](std::span<const HubRecord> all) { all_.log.compact(all); });
    }
    say_who_is_awaited();
    tell_board();
  }
}

void HubRun::append(std::span<const HubRecord> records) {
  const TimePoint begin = all_.now();
  all_.log.append(records);
  if (all_.options.board == nullptr) return;
  const auto commits = std::ranges::count(records, HubRecord::Kind::kCommit, &HubRecord::kind);
  all_.options.board->wrote(static_cast<std::uint64_t>(commits), all_.now() - begin, all_.now());
}

void HubRun::tell_board() {
  if (all_.options.board == nullptr) return;
  std::vector<bool> here(all_.sites.size());
  for (std::size_t m = 0; m < here.size(); ++m) {
    here[m] = all_.live[m] && all_.sites[m].standing && !all_.sites[m].lost;
  }
  all_.options.board->see(here);
  all_.options.board->run(all_.session ? all_.session->run_id : "");
}

/// Every change is told to all sites, whether a command beside this process or an invitation made
/// it.
void HubRun::look_at_keys() {
  if (all_.options.keys == nullptr) return;
  static_cast<void>(all_.options.keys->look());
  if (const std::uint64_t version = all_.options.keys->book().version; version != keys_version_) {
    keys_version_ = version;
    transport_->set_keys(all_.options.keys->table());
    log_info("the admitted sites have changed: see `isthmus hub keys`");
  }
  sessions_.begin_if_all_have_come();
}

/// All sites that stood are lost, and none of them has left in order.
bool HubRun::all_gone() const {
  bool any = false;
  for (std::size_t m = 0; m < all_.sites.size(); ++m) {
    if (!all_.live[m] || !all_.sites[m].standing ||
        exchange_->has_left(WorkerId(static_cast<int>(m))))
      continue;
    if (!all_.sites[m].lost || all_.now() - all_.sites[m].lost->first < others_follow_)
      return false;
    any = true;
  }
  return any;
}

void HubRun::count_the_lost() {
  for (std::size_t m = 0; m < all_.sites.size(); ++m) {
    const WorkerId rank(static_cast<int>(m));
    HubState::Site& each = all_.sites[m];
    if (each.lost && all_.now() - each.lost->first >= others_follow_) {
      const std::string why = each.lost->second;
      each.lost.reset();
      if (!exchange_->has_left(rank)) exchange_->exclude(rank, why);
    }
  }
}

/// Sites of the log that have not found this process.
void HubRun::leave_out_who_stays_away() {
  if (!all_.first_stands ||
      all_.now() - *all_.first_stands < all_.config().net.dead_after + kFindBack) {
    return;
  }
  for (std::size_t m = 0; m < all_.sites.size(); ++m) {
    if (all_.live[m] && !all_.sites[m].standing && !all_.sites[m].lost) {
      exchange_->exclude(WorkerId(static_cast<int>(m)), "it has not come back to the hub");
      all_.live[m] = false;  // told once
    }
  }
}

void HubRun::say_who_is_awaited() {
  const bool all = !std::ranges::count(all_.live, true);  // a start
  std::vector<std::string> missing;
  for (std::size_t m = 0; m < all_.sites.size(); ++m) {
    if ((all_.live[m] || all) && !all_.sites[m].standing && !all_.sites[m].hello &&
        sessions_.is_awaited(WorkerId(static_cast<int>(m))))
      missing.push_back(all_.config().sites[m].name);
  }
  // Sites of a run under way wait for their hub as long as for a round.
  const bool longer = all_.session && all_.config().outer.patience > all_.config().net.gather;
  if (!all_.anybody_stands() &&
      all_.now() - begin_ > (longer ? all_.config().outer.patience : all_.config().net.gather)) {
    throw PeerError(
        fmt::format("no run within {}: waiting for {}", longer ? "net.patience" : "net.gather",
                    missing.empty() ? "nobody" : fmt::format("{}", fmt::join(missing, ", "))));
  }
  if (!missing.empty() && all_.now() >= next_word_) {
    log_info("waiting for {}", fmt::join(missing, ", "));
    next_word_ = all_.now() + kBetweenWords;
  }
}

void HubRun::take(const std::exception_ptr& failure) { std::rethrow_exception(failure); }

void HubRun::take(const Lost& lost) {
  HubState::Site& each = all_.site(lost.site);
  each.hello.reset();
  steps_.lost(lost.site);
  if (each.standing && !each.lost) each.lost = {all_.now(), lost.why};
}

void HubRun::take(const Back& back) {
  HubState::Site& each = all_.site(back.site);
  each.lost.reset();
  each.hello.reset();
}

void HubRun::take(const Said& said) {
  const Expected<Note, std::string> note = read_note(said.bytes);
  if (!note) {
    const std::string what =
        fmt::format("site {} sent what cannot be read: {}", all_.name(said.from), note.error());
    log_warning("{}", what);
    all_.send(said.from, TurnedAwayNote{.why = what, .configuration = true});
  } else if (const auto* greeting = std::get_if<HelloNote>(&*note)) {
    sessions_.hear(said.from, *greeting);
  } else if (const auto* standing = std::get_if<StandingNote>(&*note)) {
    sessions_.hear(said.from, *standing);
  } else if (const auto* wish = std::get_if<WishNote>(&*note)) {
    steps_.wish(said.from, *wish);
  } else if (all_.site(said.from).standing) {
    steps_.receive(said.from, *note);
  }
}

void HubRun::take(const Epoch& epoch) {
  all_.live = epoch.live;
  if (all_.options.board != nullptr) all_.options.board->epoch(epoch.number);
  if (epoch.leaves) {
    log_info("site {} leaves after step {}", all_.name(epoch.who), epoch.after);
    return;
  }
  const auto count = std::ranges::count(all_.live, true);
  if (!epoch.joins) all_.site(epoch.who).standing = false;
  if (count == 0) {
    all_.nobody_left = true;
    return;
  }
  if (epoch.joins) {
    log_info("site {} is back: {} of {} sites from step {}", all_.name(epoch.who), count,
             all_.live.size(), epoch.after + 1);
  } else {
    log_warning(
        "site {} is gone ({}): {} with {} of {} sites", all_.name(epoch.who), epoch.why,
        count < all_.config().min_sites() ? "they wait for enough to come back" : "going on", count,
        all_.live.size());
  }
  steps_.changed(epoch);
}

}  // namespace isthmus::app
