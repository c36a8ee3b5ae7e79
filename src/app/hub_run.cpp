// SPDX-License-Identifier: Apache-2.0
#include "app/hub_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "app/owner_shares.h"
#include "app/site_links.h"
#include "app/site_routes.h"
#include "app/wall_clock.h"
#include "core/log.h"
#include "isthmus/errors.h"
#include "transport/link_allowance.h"
#include "transport/zmq_transport.h"

namespace isthmus::app {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);
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

HelloNote own_note(const Config& config) {
  HelloNote own{.run_id = {}, .resumes = false, .held = {}, .common = common_values(config)};
  append_shares(config, own.common);
  return own;
}

}  // namespace

HubRun::HubRun(Options options, HubLog& log)
    : config_(options.config),
      keys_(options.keys),
      board_(options.board),
      stopped_(options.stopped),
      log_(log),
      own_(own_note(config_)),
      runtime_(options.runtime),
      queue_(runtime_.make_wait_queue()),
      session_(log.contents().session),
      enrolment_(make_enrolment(options)),
      links_(links_of(options, enrolment_.get())),
      others_follow_(5 * links_.heartbeat / 2),
      sites_(config_.sites.size()),
      live_(config_.sites.size(), true),
      begin_(runtime_.clock().now()),
      next_word_(begin_ + kBetweenWords),
      transport_(make_zmq_transport(runtime_, links_)) {
  routes_ = std::make_unique<SiteRoutes>(
      runtime_, config_.sites, links_, transport_->endpoint(), told_keys_of(*transport_),
      HubRelay{.place = config_.hub.relay, .running = std::move(options.relay)});
  if (session_ && session_->sites != config_.workers()) {
    throw ConfigError(
        fmt::format("the hub's log is of a run of {} sites, and {} has {}: give "
                    "another --out",
                    session_->sites, config_.file.string(), config_.workers()));
  }
  if (session_) check_log_shares(config_, session_->common);
  agree_anew();
  agreement_->resume(log_.agreed());
  for (const HubRecord& record : log.contents().history) {
    if (record.kind != HubRecord::Kind::kEpoch) continue;
    const auto news = EpochNews::read(record.body, config_.workers());
    live_ = news->epoch.live;
  }
  NotesOut none;
  for (std::size_t m = 0; m < live_.size(); ++m) {
    if (!live_[m]) agreement_->leave(Rank(static_cast<int>(m)), none);
  }
}

// Its task gives keys to the transport.
HubRun::~HubRun() {
  if (enrolment_) enrolment_->stop();
}

std::unique_ptr<Relay> HubRun::take_relay() { return routes_->take_relay(); }

std::unique_ptr<HubEnrolment> HubRun::make_enrolment(const Options& options) {
  if (options.keys == nullptr) return nullptr;
  const std::optional<LinkKeys> pair = hub_link_options(options.config, options.links).keys;
  return std::make_unique<HubEnrolment>(
      runtime_,
      [this, pair = *pair](const std::string& invitation, std::span<const std::byte> said) {
        EnrolAnswer answer = keys_->enrol(pair, invitation, said);
        // Before the site hears it: it comes with its key at once, and a refusal ends it.
        if (answer.welcome) transport_->set_keys(keys_->table());
        if (board_ != nullptr) board_->enrolled(answer.welcome);
        return answer;
      });
}

void HubRun::open_exchange() {
  exchange_ = std::make_unique<PeerExchange>(
      *transport_, runtime_,
      PeerExchangeOptions{
          .retry_interval = kNothingIsLost,
          .shares = first_shares(config_),
          .elastic = true,
          .min_members = config_.min_sites(),
          .hub = true,
          .history = log_.contents().history,
          .on_records = [this](std::span<const HubRecord> records) { append(records); },
          .on_note =
              [this](Rank from, std::span<const std::byte> bytes) {
                push(Said{from, {bytes.begin(), bytes.end()}});
              },
          .on_lost =
              [this](Rank site, const std::string& why) {
                push(Lost{site, why});
              },
          .on_back = [this](Rank site) { push(Back{site}); },
          .on_epoch = [this](const Epoch& epoch) { push(epoch); },
          .on_failure = [this](const std::exception_ptr& failure) { push(failure); },
          .moves_shares = config_.net.shares == "measured",
          .on_shares =
              [this](const ShareMove& move) {
                std::vector<std::string> sites;
                for (const SiteConfig& site : config_.sites) sites.push_back(site.name);
                log_info("{}", words_of(move, sites));
              }});
}

void HubRun::push(Event event) {
  queue_->update([&] { events_.push_back(std::move(event)); });
}

HubRun::End HubRun::run() {
  std::vector<std::string> endpoints = routes_->endpoints();
  endpoints.push_back("tcp://" + config_.hub.address);
  if (keys_ != nullptr) {
    keys_version_ = keys_->book().version;
    transport_->set_keys(keys_->table());
  }
  transport_->join(endpoints, routes_->detours());
  static_cast<void>(transport_->await_members(now(), {}));  // each is news when it comes
  open_exchange();
  TimePoint looked = now();
  while (true) {
    std::deque<Event> events;
    (void)queue_->wait([&] { return !events_.empty(); }, now() + kLook);
    queue_->update([&] { events = std::exchange(events_, {}); });
    if (now() - looked > config_.net.dead_after / 2) {
      log_warning("this process stood still for {:.1f} s: beginning anew from the log",
                  std::chrono::duration<double>(now() - looked).count());
      return End::kAnew;
    }
    looked = now();
    look_at_keys();
    for (const Event& event : events) {
      std::visit([this](const auto& each) { take(each); }, event);
    }
    if (stopped_()) {
      return End::kStopped;
    }
    if (nobody_left_ || all_gone()) {
      log_warning("all sites are gone: beginning anew from the log");
      return End::kAnew;
    }
    count_the_lost();
    leave_out_who_stays_away();
    if (anybody_stands() && exchange_->all_left()) {
      log_.end();
      routes_->finish_in_order();
      return End::kAllLeft;
    }
    // By then sites have told what they need no more.
    if (first_stands_ && now() - *first_stands_ >= kFindBack && log_.has_grown()) {
      exchange_->with_history([this](std::span<const HubRecord> all) { log_.compact(all); });
    }
    say_who_is_awaited();
    tell_board();
  }
}

void HubRun::append(std::span<const HubRecord> records) {
  const TimePoint begin = now();
  log_.append(records);
  if (board_ == nullptr) return;
  const auto commits = std::ranges::count(records, HubRecord::Kind::kCommit, &HubRecord::kind);
  board_->wrote(static_cast<std::uint64_t>(commits), now() - begin, now());
}

void HubRun::tell_board() {
  if (board_ == nullptr) return;
  std::vector<bool> here(sites_.size());
  for (std::size_t m = 0; m < here.size(); ++m) {
    here[m] = live_[m] && sites_[m].standing && !sites_[m].lost;
  }
  board_->see(here);
  board_->run(session_ ? session_->run_id : "");
}

/// Told to all, whoever has changed them: a command beside this process, or an invitation.
void HubRun::look_at_keys() {
  if (keys_ == nullptr) return;
  static_cast<void>(keys_->look());
  if (const std::uint64_t version = keys_->book().version; version != keys_version_) {
    keys_version_ = version;
    transport_->set_keys(keys_->table());
    log_info("who is let in has changed: `isthmus hub keys` tells");
  }
  if (!anybody_stands() && !first_stands_ && all_have_come()) begin_session();
}

bool HubRun::is_awaited(Rank rank) const {
  if (keys_ == nullptr) return true;
  const SiteConfig& each = config_.sites[static_cast<std::size_t>(rank.value())];
  const HubKeyBook book = keys_->book();
  return !book.key_of(each.name, each.key).empty() ||
         book.is_invited(each.name, static_cast<std::int64_t>(unix_now()));
}

bool HubRun::all_have_come() const {
  int here = 0;
  for (std::size_t m = 0; m < sites_.size(); ++m) {
    const bool said = sites_[m].hello.has_value();
    if (!said && is_awaited(Rank(static_cast<int>(m)))) return false;
    here += said ? 1 : 0;
  }
  return here >= std::max(1, config_.min_sites());
}

bool HubRun::anybody_stands() const {
  return std::ranges::any_of(sites_, [](const Site& each) { return each.standing; });
}

/// All who stood are lost, and none has left in order.
bool HubRun::all_gone() const {
  bool any = false;
  for (std::size_t m = 0; m < sites_.size(); ++m) {
    if (!live_[m] || !sites_[m].standing || exchange_->has_left(Rank(static_cast<int>(m))))
      continue;
    if (!sites_[m].lost || now() - sites_[m].lost->first < others_follow_) return false;
    any = true;
  }
  return any;
}

void HubRun::count_the_lost() {
  for (std::size_t m = 0; m < sites_.size(); ++m) {
    const Rank rank(static_cast<int>(m));
    Site& each = sites_[m];
    if (each.lost && now() - each.lost->first >= others_follow_) {
      const std::string why = each.lost->second;
      each.lost.reset();
      if (!exchange_->has_left(rank)) exchange_->exclude(rank, why);
    }
  }
}

/// Sites of the log that have not found this process.
void HubRun::leave_out_who_stays_away() {
  if (!first_stands_ || now() - *first_stands_ < config_.net.dead_after + kFindBack) {
    return;
  }
  for (std::size_t m = 0; m < sites_.size(); ++m) {
    if (live_[m] && !sites_[m].standing && !sites_[m].lost) {
      exchange_->exclude(Rank(static_cast<int>(m)), "it has not come back to the hub");
      live_[m] = false;  // told once
    }
  }
}

void HubRun::say_who_is_awaited() {
  const bool all = !std::ranges::count(live_, true);  // a start
  std::vector<std::string> missing;
  for (std::size_t m = 0; m < sites_.size(); ++m) {
    if ((live_[m] || all) && !sites_[m].standing && !sites_[m].hello &&
        is_awaited(Rank(static_cast<int>(m))))
      missing.push_back(config_.sites[m].name);
  }
  // Sites of a run under way wait for their hub as long as for a round.
  const bool longer = session_ && config_.outer.patience > config_.net.gather;
  if (!anybody_stands() &&
      now() - begin_ > (longer ? config_.outer.patience : config_.net.gather)) {
    throw PeerError(
        fmt::format("no run within {}: waiting for {}", longer ? "net.patience" : "net.gather",
                    missing.empty() ? "nobody" : fmt::format("{}", fmt::join(missing, ", "))));
  }
  if (!missing.empty() && now() >= next_word_) {
    log_info("waiting for {}", fmt::join(missing, ", "));
    next_word_ = now() + kBetweenWords;
  }
}

}  // namespace isthmus::app
