// SPDX-License-Identifier: Apache-2.0
#include "transport/links/probe/link_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "core/base/units.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using std::chrono::milliseconds;

constexpr Duration kSilence = std::chrono::seconds(30);  // of the other end, in the midst of it
constexpr Duration kLongestEcho = std::chrono::seconds(1);
constexpr std::size_t kFewestEchoes = 8, kMostEchoes = 1000, kFirstEchoes = 2;  // not counted
constexpr std::size_t kSmallestFrame = std::size_t{4} << 10;
constexpr std::size_t kLargestFrame = std::size_t{512} << 10;  // as the parts of an exchange
constexpr std::uint64_t kFirstWindow = std::uint64_t{64} << 10;
constexpr Duration kFrameTime = milliseconds(20);  // that a frame takes at most, small ones apart
constexpr std::uint64_t kFramesInWindow = 4;       // at least
constexpr int kWindowRoundTrips = 4;
constexpr Duration kWindowTime = milliseconds(200);  // ... and this much on top
constexpr Duration kBetweenProbeLooks = milliseconds(50);
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36;  // of a transfer
// A transfer lasts at least this many round trips, or it would end before it reached its rate; and
// on no link longer than if a round trip took a second.
constexpr int kScanRoundTrips = 8, kLastRoundTrips = 16;
constexpr Duration kLongestRoundTrip = std::chrono::seconds(1);
constexpr int kAttempts = 3;  // at a transfer of which too little came, each twice as long

/// How much may be on its way, and in frames of which size, while a transfer runs.
class Window {
 public:
  Window(TimePoint begin, Duration rtt) : rtt_(rtt), recent_{{begin, 0}} {}

  [[nodiscard]] std::uint64_t bytes() const { return window_; }
  [[nodiscard]] std::size_t frame_bytes() const { return frame_; }

  /// `taken` bytes in all have arrived. The window opens as fast as TCP's does, up to the bytes
  /// that arrive in a few round trips.
  void taken(TimePoint now, std::uint64_t taken) {
    const std::uint64_t fresh = taken - recent_.back().second;
    recent_.emplace_back(now, taken);
    const Duration span = std::max<Duration>(kWindowTime, kWindowRoundTrips * rtt_);
    while (recent_.size() > 2 && now - recent_[1].first >= span) recent_.pop_front();
    const Duration took = std::max<Duration>(now - recent_.front().first, milliseconds(1));
    const double rate = static_cast<double>(taken - recent_.front().second) / in_seconds(took);
    const double limit = rate * in_seconds(kWindowRoundTrips * rtt_ + kWindowTime);
    window_ = std::clamp(window_ + fresh, kFirstWindow,
                         std::max(kFirstWindow, static_cast<std::uint64_t>(limit)));
    // Several frames fit the window, or it would idle between two of them.
    const double fits =
        std::min(rate * in_seconds(kFrameTime), static_cast<double>(window_ / kFramesInWindow));
    const auto most = std::clamp(static_cast<std::size_t>(fits), kSmallestFrame, kLargestFrame);
    frame_ = std::max(frame_, std::bit_floor(most));
  }

 private:
  const Duration rtt_;
  std::deque<std::pair<TimePoint, std::uint64_t>> recent_;
  std::uint64_t window_ = kFirstWindow;
  std::size_t frame_ = kSmallestFrame;
};

}  // namespace

std::vector<std::uint32_t> streams_to_try(std::uint32_t most) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t k = 1; k < most; k *= 2) all.push_back(k);
  all.push_back(most);
  return all;
}

Duration longest_pair(const ProbePlan& plan) {
  const auto transfers = static_cast<int>(streams_to_try(plan.streams).size());
  const Duration extended = (kScanRoundTrips * transfers + kLastRoundTrips) * kLongestRoundTrip;
  return 2 * (1 << kAttempts) * (plan.budget + extended) + 4 * kSilence;
}

LinkProbe::LinkProbe(ProbeMailbox& mailbox, LinkGauge* gauge, const ProbePlan& plan,
                     std::uint32_t pair, std::function<void(const std::string&)> say)
    : mailbox_(mailbox),
      gauge_(gauge),
      plan_(plan),
      pair_(pair),
      say_(std::move(say)),
      end_(mailbox.now() + longest_pair(plan)) {}

void LinkProbe::refuse(WorkerId peer, const std::string& what) const {
  throw PeerError(
      fmt::format("site {} sends {} while the link to it is measured", mailbox_.name(peer), what));
}

ProbeMailbox::Received LinkProbe::next(WorkerId peer) {
  const TimePoint now = mailbox_.now();
  auto received = mailbox_.receive(peer, std::min(end_, now + kSilence));
  if (!received) {
    throw PeerError(fmt::format(
        "site {} has {} while the link to it was measured; is it stopped, or is the link down?",
        mailbox_.name(peer),
        mailbox_.now() >= end_ ? "not come to an end"
                               : fmt::format("said nothing for {:.0f} s", in_seconds(kSilence))));
  }
  return std::move(*received);
}

EchoSummary LinkProbe::echo(WorkerId peer) {
  const TimePoint end = mailbox_.now() + std::min<Duration>(kLongestEcho, plan_.budget / 4);
  std::vector<Duration> samples;
  for (std::uint64_t number = 0; number < kFirstEchoes + kMostEchoes; ++number) {
    const TimePoint begin = mailbox_.now();
    if (begin >= end && samples.size() >= kFewestEchoes) break;
    mailbox_.send(peer, ProbePing{.pair = pair_, .number = number});
    const ProbeMailbox::Received answer = next(peer);
    const auto* pong = std::get_if<ProbePong>(&answer.message);
    if (pong == nullptr || pong->pair != pair_ || pong->number != number) {
      refuse(peer, fmt::format("{} for an answer to a ping", name_of(answer.message)));
    }
    if (number >= kFirstEchoes) samples.push_back(mailbox_.now() - begin);
  }
  return summarise_echoes(samples);
}

std::optional<double> LinkProbe::transfer(WorkerId peer, Duration time, Duration rtt,
                                          DirectionMeasurement& into, bool watch) {
  const std::uint32_t number = transfers_++;
  const TimePoint begin = mailbox_.now();
  const TimePoint end = begin + time;
  TimePoint next_look = begin + time / 2;
  Window window(begin, rtt);
  std::uint64_t sent = 0, taken = 0;
  const auto take = [&](const ProbeMailbox::Received& received) {
    const auto* told = std::get_if<ProbeTaken>(&received.message);
    if (told == nullptr || told->pair != pair_ || told->transfer != number ||
        told->bytes <= taken || told->bytes > sent) {
      refuse(peer, fmt::format("{} for a receipt of more than {} and at most {} bytes",
                               name_of(received.message), taken, sent));
    }
    taken = told->bytes;
    window.taken(mailbox_.now(), taken);
  };
  for (TimePoint now = begin; now < end; now = mailbox_.now()) {
    const std::size_t frame_bytes = window.frame_bytes();
    while (sent - taken + frame_bytes <= window.bytes() && sent < kMostBytes) {
      mailbox_.send_frame(peer, load_frame({.pair = pair_, .transfer = number}, sent, frame_bytes));
      sent += frame_bytes;
    }
    if (watch && now >= next_look) {
      next_look = now + kBetweenProbeLooks;
      if (const auto counted = gauge_ == nullptr ? std::nullopt : gauge_->counters(peer)) {
        loaded_.push_back(counted->rtt);
      }
    }
    if (const auto received = mailbox_.receive(peer, std::min(end, now + kBetweenProbeLooks))) {
      take(*received);
    }
  }
  mailbox_.send(peer, ProbeEnd{.pair = pair_, .transfer = number, .bytes = sent});
  while (true) {
    const ProbeMailbox::Received received = next(peer);
    const auto* report = std::get_if<ProbeReport>(&received.message);
    if (report == nullptr) {
      take(received);
      continue;
    }
    std::string fault = fault_of(report->arrivals, sent, mailbox_.now() - begin);
    if (report->pair != pair_ || report->transfer != number) fault = "of another transfer";
    if (!fault.empty()) refuse(peer, "a report that cannot be: " + fault);
    into.bytes += sent;
    // If all bytes came at once, the reader had been away: that tells nothing of the link.
    if (report->arrivals.elapsed < time / 2) return std::nullopt;
    return steady_rate(report->arrivals);
  }
}

DirectionMeasurement LinkProbe::drive(WorkerId peer, const EchoSummary& echo) {
  DirectionMeasurement found;
  const auto counters = [&] {
    return gauge_ == nullptr ? std::optional<LinkCounters>() : gauge_->counters(peer);
  };
  const std::optional<LinkCounters> before = counters();
  const std::string arrow =
      fmt::format("{} -> {}", mailbox_.name(mailbox_.self()), mailbox_.name(peer));
  const Duration rtt = std::min(echo.p50, kLongestRoundTrip);
  Duration last = plan_.budget;
  const TimePoint begin = mailbox_.now();
  if (gauge_ != nullptr) {
    const std::vector<std::uint32_t> all = streams_to_try(plan_.streams);
    last = plan_.budget / 2;
    const Duration each =
        std::max<Duration>(last / static_cast<int>(all.size()), kScanRoundTrips * rtt);
    for (const std::uint32_t streams : all) {
      if (!more_streams_may_help(found.scan)) break;
      gauge_->use_streams(peer, static_cast<int>(streams));
      if (const auto rate = transfer(peer, each, rtt, found, false)) {
        found.scan.push_back({.streams = streams, .bits_per_s = *rate});
        say_(fmt::format("{}: {} with {} connection{}", arrow, human_rate(*rate), streams,
                         streams == 1 ? "" : "s"));
      }
    }
    if (!found.scan.empty()) found.streams = enough_streams(found.scan);
    gauge_->use_streams(peer, static_cast<int>(found.streams == 0 ? plan_.streams : found.streams));
  }
  // The rest of the budget after the scan, and no less than half.
  last = std::max<Duration>({last, plan_.budget - (mailbox_.now() - begin), kLastRoundTrips * rtt});
  std::optional<double> rate;
  for (int i = 0; i < kAttempts && !rate; ++i, last *= 2) {
    rate = transfer(peer, last, rtt, found, true);
  }
  if (!rate) {
    throw PeerError(
        fmt::format("{}: too little came in {:.1f} s to tell a rate; give the measurement more "
                    "time (--seconds)",
                    arrow, in_seconds(last / 2)));
  }
  // After a try with too many connections TCP takes its time to open up again.
  found.bits_per_s = *rate;
  for (const StreamRate& each : found.scan) {
    if (each.streams == found.streams) found.bits_per_s = std::max(*rate, each.bits_per_s);
  }
  const std::optional<LinkCounters> after = counters();
  if (before && after && after->segments > before->segments &&
      after->retransmits >= before->retransmits) {
    const std::uint64_t segments = after->segments - before->segments;
    found.retransmits =
        Retransmits{.segments = segments,
                    .repeated = std::min(segments, after->retransmits - before->retransmits)};
  }
  if (after) found.congestion = after->congestion;
  if (!loaded_.empty()) found.loaded_rtt = quantile(loaded_, 0.5);
  // Other sites refuse impossible values as this site's word, although they are the peer's.
  if (const std::string fault = fault_of(found); !fault.empty()) {
    refuse(peer, "reports that give what cannot be: " + fault);
  }
  say_(fmt::format("{}: {}{}", arrow, human_rate(found.bits_per_s),
                   found.streams == 0 ? ""
                                      : fmt::format(", {} connection{}", found.streams,
                                                    found.streams == 1 ? "" : "s")));
  return found;
}

ProbeMessage LinkProbe::serve(WorkerId peer) {
  ArrivalSeries series;
  std::uint32_t begun = 0;  // transfers
  bool under_way = false;
  const auto check = [&](bool good, const ProbeMessage& message) {
    if (!good) refuse(peer, fmt::format("{} out of turn", name_of(message)));
  };
  while (true) {
    const ProbeMailbox::Received received = next(peer);
    const ProbeMessage& message = received.message;
    if (const auto* ping = std::get_if<ProbePing>(&message)) {
      check(ping->pair == pair_ && !under_way, message);
      mailbox_.send(peer, ProbePong{.pair = pair_, .number = ping->number});
    } else if (const auto* load = std::get_if<ProbeLoad>(&message)) {
      if (!under_way && load->transfer == begun) {
        series = ArrivalSeries();
        under_way = true;
        ++begun;
      }
      check(load->pair == pair_ && under_way && load->transfer + 1 == begun, message);
      series.add(mailbox_.now(), received.payload_bytes);
      if (series.bytes() > kMostBytes + kLargestFrame) refuse(peer, "more than anyone should");
      mailbox_.send(peer,
                    ProbeTaken{.pair = pair_, .transfer = load->transfer, .bytes = series.bytes()});
    } else if (const auto* end = std::get_if<ProbeEnd>(&message)) {
      check(end->pair == pair_ && under_way && end->transfer + 1 == begun &&
                end->bytes == series.bytes(),
            message);
      under_way = false;
      mailbox_.send(
          peer,
          ProbeReport{.pair = pair_, .transfer = end->transfer, .arrivals = series.summary()});
    } else {
      check(!under_way, message);
      return message;
    }
  }
}

PairMeasurement LinkProbe::lead(WorkerId b) {
  PairMeasurement result{.a = mailbox_.self(), .b = b, .echo = {}, .up = {}, .down = {}};
  result.echo = echo(b);
  say_(fmt::format("{} <-> {}: round trip {}", mailbox_.name(result.a), mailbox_.name(b),
                   human_time(in_seconds(result.echo.p50))));
  result.up = drive(b, result.echo);
  mailbox_.send(b, ProbeTurn{.pair = pair_, .echo = result.echo});
  const ProbeMessage message = serve(b);
  const auto* answer = std::get_if<ProbeDirection>(&message);
  if (answer == nullptr || answer->pair != pair_) {
    refuse(b, fmt::format("{} for its direction", name_of(message)));
  }
  result.down = answer->direction;
  return result;
}

PairMeasurement LinkProbe::follow(WorkerId a) {
  const ProbeMessage first = serve(a);
  const auto* turn = std::get_if<ProbeTurn>(&first);
  if (turn == nullptr || turn->pair != pair_) {
    refuse(a, fmt::format("{} for the turn of this site", name_of(first)));
  }
  const DirectionMeasurement found = drive(a, turn->echo);
  mailbox_.send(a, ProbeDirection{.pair = pair_, .direction = found});
  const ProbeMailbox::Received last = next(a);
  const auto* told = std::get_if<ProbeResult>(&last.message);
  if (told == nullptr || told->pair != pair_ || told->result.a != a ||
      told->result.b != mailbox_.self() || told->result.down != found) {
    refuse(a, fmt::format("{} that is not what both have measured", name_of(last.message)));
  }
  return told->result;
}

}  // namespace isthmus
