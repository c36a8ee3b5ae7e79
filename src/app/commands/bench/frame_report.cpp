// SPDX-License-Identifier: Apache-2.0
#include "app/commands/bench/frame_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <tuple>
#include <utility>

#include "core/base/units.h"

namespace isthmus::app {
namespace {

double seconds_of(const FrameRecord& record) { return static_cast<double>(record.time_ns) * 1e-9; }

std::size_t place(WorkerId rank) { return static_cast<std::size_t>(rank.value()); }

/// The identity of a frame to or from one peer; a repetition has the same.
using FrameKey = std::tuple<std::size_t, FrameKind, SyncId, std::uint32_t, std::uint32_t>;

FrameKey key_of(const FrameRecord& r) { return {place(r.peer), r.kind, r.id, r.part, r.crc}; }

/// How long frames of one way waited between two events.
class Waits {
 public:
  void begin(const FrameRecord& record) { since_[key_of(record)].push_back(seconds_of(record)); }
  /// RETURNS: whether this frame had been begun and not ended.
  bool end(const FrameRecord& record) {
    const auto found = since_.find(key_of(record));
    if (found == since_.end()) return false;
    waits_[place(record.peer)].push_back(seconds_of(record) - found->second.front());
    found->second.pop_front();
    if (found->second.empty()) since_.erase(found);
    return true;
  }
  void tell(std::size_t peer, FramesOfWay& way) {
    std::vector<double>& waits = waits_[peer];
    if (waits.empty()) return;
    std::ranges::sort(waits);
    way.waited_median_s = waits[waits.size() / 2];
    way.waited_longest_s = waits.back();
  }

 private:
  std::map<FrameKey, std::deque<double>> since_;
  std::map<std::size_t, std::vector<double>> waits_;
};

std::vector<FramesOfPeer> peers_of(const std::vector<FrameRecord>& records, std::size_t members) {
  std::vector<FramesOfPeer> peers(members);
  struct Times {
    std::uint64_t came = 0, taken = 0;
  };
  Waits out, in;
  std::map<FrameKey, Times> times;
  for (const FrameRecord& record : records) {
    FramesOfPeer& peer = peers[place(record.peer)];
    const bool outwards = record.event == FrameEvent::kQueued || record.event == FrameEvent::kLeft;
    FramesOfWay& way = outwards ? peer.out : peer.in;
    if (record.stream >= 0) way.streams.insert(record.stream);
    switch (record.event) {
      case FrameEvent::kQueued:
        ++way.frames;
        way.bytes += record.bytes;
        out.begin(record);
        break;
      case FrameEvent::kLeft:
        if (!out.end(record)) ++way.again;
        break;
      case FrameEvent::kCame: {
        Times& of = times[key_of(record)];
        if (of.came++ <= of.taken) in.begin(record);
        break;
      }
      case FrameEvent::kTaken:
        ++way.frames;
        way.bytes += record.bytes;
        ++times[key_of(record)].taken;
        (void)in.end(record);
        break;
      case FrameEvent::kLeftOut:
        break;  // no frame
    }
  }
  for (const auto& [key, of] : times) {  // a frame that came and was not taken had come before
    const std::uint64_t once = std::max<std::uint64_t>(of.taken, 1);
    if (of.came > once) peers[std::get<0>(key)].in.again += of.came - once;
  }
  for (std::size_t p = 0; p < members; ++p) {
    out.tell(p, peers[p].out);
    in.tell(p, peers[p].in);
  }
  return peers;
}

bool is_of_round(FrameKind kind) {
  return is_values(kind) || kind == FrameKind::kDone || kind == FrameKind::kCommit ||
         kind == FrameKind::kAbort;
}

void add_values(const FrameRecord& record, RecordedRound& round) {
  const double at = seconds_of(record);
  RoundOfPeer& of = round.of[place(record.peer)];
  switch (record.event) {
    case FrameEvent::kQueued:
      of.bytes_out += record.bytes;
      if (record.kind == FrameKind::kContribution && !round.begun) round.begun = at;
      [[fallthrough]];
    case FrameEvent::kLeft:
      of.last_out = at;
      break;
    case FrameEvent::kCame:
      if (!of.first_in) of.first_in = at;
      break;
    case FrameEvent::kTaken:
      of.bytes_in += record.bytes;
      if (!of.first_in) of.first_in = at;
      of.last_in = at;
      break;
    case FrameEvent::kLeftOut:
      break;
  }
}

void add_decision(const FrameRecord& record, RecordedRound& round) {
  const double at = seconds_of(record);
  const bool out = record.event == FrameEvent::kQueued;
  if (!out && record.event != FrameEvent::kTaken) return;
  if (record.kind == FrameKind::kDone) {
    if (out)
      round.done =
          round.done.value_or(at);  // reports of others about their own rounds are no news here
    return;
  }
  if (round.verdict) return;  // the first verdict counts; a member that missed it is told again
  round.verdict = at;
  round.aborted = record.kind == FrameKind::kAbort;
}

/// Of rounds without a verdict, by fragment and in order.
void find_through(std::map<SyncId, RecordedRound>& rounds) {
  bool before = false;  // a round of the fragment had none
  for (auto round = rounds.begin(); round != rounds.end(); ++round) {
    const auto next = std::next(round);
    const auto of_fragment = [&](const auto& other) {
      return other != rounds.end() && other->first.fragment == round->first.fragment;
    };
    const bool first = round == rounds.begin() || !of_fragment(std::prev(round));
    before = before && !first;
    if (round->second.verdict || !round->second.begun) continue;
    round->second.through = before || (of_fragment(next) && next->second.begun);
    before = before || round->second.through;
  }
}

std::string peer_name(const std::vector<std::string>& names, std::size_t peer) {
  return peer < names.size() ? names[peer] : fmt::format("member {}", peer);
}

std::string rate_words(std::uint64_t bytes, double seconds) {
  return seconds > 0 ? fmt::format(" ({})", human_rate(static_cast<double>(bytes) * 8 / seconds))
                     : "";
}

}  // namespace

FrameReport report_frames(const std::vector<FrameRecord>& records, std::size_t members) {
  FrameReport report;
  report.peers = peers_of(records, members);
  std::map<SyncId, RecordedRound> rounds;
  for (const FrameRecord& record : records) {
    const double at = seconds_of(record);
    report.begin_s = report.end_s == 0 ? at : std::min(report.begin_s, at);
    report.end_s = std::max(report.end_s, at);
    if (!is_of_round(record.kind)) continue;
    auto [found, fresh] = rounds.try_emplace(record.id);
    RecordedRound& round = found->second;
    if (fresh) {
      round.id = record.id;
      round.begin_s = at;
    }
    round.epoch = record.epoch;
    round.epochs.insert(record.epoch);
    round.end_s = std::max(round.end_s, at);
    is_values(record.kind) ? add_values(record, round) : add_decision(record, round);
  }
  find_through(rounds);
  for (auto& [id, round] : rounds) {
    if (round.begun) round.begin_s = *round.begun;  // frames from before waited for this member
    if (round.verdict) round.end_s = *round.verdict;
    report.rounds.push_back(std::move(round));
  }
  std::ranges::stable_sort(report.rounds, {}, &RecordedRound::begin_s);
  return report;
}

std::string words_of(const RecordedRound& round, const std::vector<std::string>& names) {
  if (!round.begun) return "this site had not begun it within the recording";
  // The peer whose values arrived last.
  std::size_t last = 0;
  Moment data_end;
  for (const auto& [peer, of] : round.of) {
    if (of.last_in && (!data_end || *of.last_in > *data_end)) {
      data_end = of.last_in;
      last = peer;
    }
  }
  std::string again =
      round.epochs.size() > 1 ? fmt::format("; it began {} times", round.epochs.size()) : "";
  if (round.aborted) again += "; it was given up";
  if (!data_end) return "no values came" + again;
  const RoundOfPeer& of = round.of.at(last);
  const double data_s = *data_end - *round.begun;
  const std::string who = peer_name(names, last);
  if (round.verdict && *round.verdict - *data_end > data_s) {
    return fmt::format("the verdict came {} after the last values (of {}){}",
                       human_time(*round.verdict - *data_end), who, again);
  }
  const double before_s = std::max(0.0, *of.first_in - *round.begun);
  const double coming_s = *data_end - std::max(*of.first_in, *round.begun);
  std::string words = before_s > coming_s
                          ? fmt::format("nothing came from {} for {}", who, human_time(before_s))
                          : fmt::format("values of {} came for {}{}", who, human_time(coming_s),
                                        rate_words(of.bytes_in, coming_s));
  for (const auto& [peer, to] : round.of) {
    const double out_s = to.last_out ? *to.last_out - *round.begun : 0;
    if (out_s > 0.7 * data_s && data_s > 0) {
      words += fmt::format("; own values went to {} for {}{}", peer_name(names, peer),
                           human_time(out_s), rate_words(to.bytes_out, out_s));
    }
  }
  if (!round.verdict && !round.through) words += "; no verdict yet";
  return words + again;
}

std::string_view name_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kContribution:
      return "contribution";
    case FrameKind::kResult:
      return "result";
    case FrameKind::kDone:
      return "done";
    case FrameKind::kCommit:
      return "commit";
    case FrameKind::kAbort:
      return "abort";
    case FrameKind::kProbe:
      return "probe";
    case FrameKind::kEcho:
      return "echo";
    case FrameKind::kRequest:
      return "request";
    case FrameKind::kBye:
      return "bye";
    case FrameKind::kNote:
      return "note";
    case FrameKind::kEpoch:
      return "epoch";
    case FrameKind::kGone:
      return "gone";
    case FrameKind::kPartial:
      return "partial";
    case FrameKind::kBegun:
      return "begun";
  }
  return "unknown";
}

std::string_view name_of(FrameEvent event) {
  switch (event) {
    case FrameEvent::kQueued:
      return "queued";
    case FrameEvent::kLeft:
      return "left";
    case FrameEvent::kCame:
      return "came";
    case FrameEvent::kTaken:
      return "taken";
    case FrameEvent::kLeftOut:
      return "left out";
  }
  return "unknown";
}

}  // namespace isthmus::app
