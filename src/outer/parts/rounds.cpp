// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "isthmus/errors.h"
#include "outer/parts/flat_view.h"
#include "transport/wire/frame.h"

namespace isthmus::outer {

namespace {

void save_window(const Window& window, StateWriter& writer, const std::string& prefix) {
  writer.integer(prefix + "tokens", window.tokens);
  writer.integer(prefix + "steps", window.steps);
  if (window.partial) writer.integer(prefix + "partial", 1);
}

}  // namespace

Rounds::Rounds(const FragmentedSettings& settings, Exchange& exchange, std::int64_t lag)
    : settings_(settings),
      exchange_(exchange),
      lag_(lag),
      windows_(settings.fragments.size()),
      last_sent_(settings.fragments.size()),
      failed_(settings.fragments.size()) {}

void Rounds::count(const InnerStep& step) {
  if (step.idle) return;
  for (Window& window : windows_) {
    window.tokens += step.tokens;
    ++window.steps;
  }
}

const Window& Rounds::window(FragmentId id) const { return windows_.at(index(id)); }
StepIndex Rounds::last_sent(FragmentId id) const { return last_sent_.at(index(id)); }

std::optional<StepIndex> Rounds::next_due() const {
  if (in_flight_.empty()) return std::nullopt;
  return std::ranges::min_element(in_flight_, {},
                                  [](const InFlight& round) { return round.sync.apply; })
      ->sync.apply;
}

EncodeKey Rounds::key(FragmentId id, StepIndex sent) const { return exchange_.key({id, sent}); }

void Rounds::launch(const Sync& sync, OuterGradient delta, double weight) {
  InFlight round{.sync = sync,
                 .ticket = {},
                 .encoded = {},
                 .window = delta.fit ? windows_.at(index(sync.fragment)) : Window{},
                 .weight = delta.fit && !windows_[index(sync.fragment)].partial ? weight : 0,
                 .sample = std::move(delta.sample)};
  if (!delta.fit) {
    log_warning(
        "worker {}: step {}: the outer gradient of fragment {} has norm {:.6g} and is withheld; "
        "its window is given up",
        exchange_.self().value(), sync.sent.value(), sync.fragment.value(), delta.norm);
  }
  begin(std::move(round), std::move(delta.encoded));
  windows_[index(sync.fragment)] = {};
  last_sent_[index(sync.fragment)] = sync.sent;
}

void Rounds::begin(InFlight round, Encoded encoded) {
  if (round.sync.apply > round.sync.sent || settings_.exchange == ReductionKind::kCollect ||
      settings_.codec->error_feedback()) {
    round.encoded = encoded;
  }
  round.ticket = exchange_.begin({.id = {round.sync.fragment, round.sync.sent},
                                  .encoded = std::move(encoded),
                                  .codec = settings_.codec,
                                  .weight = round.weight,
                                  .kind = settings_.exchange,
                                  .commit = true});
  in_flight_.push_back(std::move(round));
}

Settled Rounds::settle_oldest() {
  ISTHMUS_CHECK(!in_flight_.empty());
  return settle(in_flight_.begin());
}

std::optional<Settled> Rounds::settle_due(StepIndex step, LateRound late) {
  const auto found = std::ranges::find_if(in_flight_, [&](const InFlight& round) {
    return round.sync.apply <= step && (late == LateRound::kWait || exchange_.poll(round.ticket));
  });
  if (found == in_flight_.end()) return std::nullopt;
  return settle(found);
}

std::optional<Rounds::Arrived> Rounds::take_in(StepIndex step) {
  std::optional<Arrived> first;
  for (InFlight& round : in_flight_) {
    if (round.sync.apply > step) continue;
    if (!round.result && exchange_.poll(round.ticket)) round.result = result_of(round);
    if (first || !round.result || !round.result->mean) continue;
    const Reduced& reduced = *round.result->mean;
    if (!reduced.contributors.empty() && std::isfinite(round.result->norm)) {
      first = {.fragment = round.sync.fragment, .mean = reduced.values};
    }
  }
  return first;
}

std::optional<Settled> Rounds::settle_of(FragmentId id) {
  const auto found = std::ranges::find_if(
      in_flight_, [&](const InFlight& round) { return round.sync.fragment == id; });
  if (found == in_flight_.end()) return std::nullopt;
  return settle(found);
}

Rounds::Result Rounds::result_of(const InFlight& round) {
  Result result{.mean = exchange_.wait(round.ticket, settings_.patience), .cosine = {}};
  if (!result.mean) return result;
  const Reduced& mean = *result.mean;
  result.norm = l2_norm(mean.values);
  result.counted =
      std::isfinite(result.norm) &&
      std::ranges::find(mean.contributors, exchange_.self()) != mean.contributors.end();
  // A collect has no mean yet; the caller that computes one asks the sample.
  if (result.counted && !mean.values.empty()) result.cosine = round.sample.cosine(mean.values);
  return result;
}

Settled Rounds::settle(std::vector<InFlight>::iterator where) {
  InFlight round = std::move(*where);
  in_flight_.erase(where);
  Result result = round.result ? *std::move(round.result) : result_of(round);
  Expected<Reduced, ExchangeError>& mean = result.mean;
  if (!mean) {
    failed_[index(round.sync.fragment)] = round.window;
    throw_round_failure(exchange_.self(), "outer sync", mean.error());
  }
  // All members hold the same bytes, so all of them turn a bad result away alike.
  const bool usable = !mean->contributors.empty() && std::isfinite(result.norm);
  const bool counted = result.counted;
  const bool given = round.weight > 0;
  const bool lost = !counted && (given || round.window.partial);
  if (lost && given) {
    log_warning("worker {}: its outer gradient of step {}, fragment {}, was not counted",
                exchange_.self().value(), round.sync.sent.value(), round.sync.fragment.value());
  }
  if (lost && !given && round.window.weight() > 0 && settings_.carry != LostContribution::kCarry) {
    log_warning(
        "worker {}: its first window of fragment {} had begun before the worker joined; its {} "
        "tokens are given up (outer.carry)",
        exchange_.self().value(), round.sync.fragment.value(), round.window.tokens);
  }
  return {.report = {.fragment = round.sync.fragment,
                     .sent = round.sync.sent,
                     .applied = {},
                     .members = static_cast<int>(mean->contributors.size()),
                     .counted = counted,
                     .payload_bytes = mean->payload_bytes,
                     .wire_bytes = mean->wire_bytes,
                     .delta_norm = result.norm,
                     .codec_error = counted ? round.sample.codec_error() : std::nullopt,
                     .cosine = result.cosine,
                     .waited = mean->waited},
          .mean = usable ? std::move(mean->values) : std::vector<float>{},
          .contributions = std::move(mean->contributions),
          .own = std::move(round.encoded),
          .window = round.window,
          .sample = std::move(round.sample),
          .lost = lost};
}

void Rounds::give_up_windows() {
  for (Window& window : windows_) window = {.partial = window.partial};
  for (InFlight& round : in_flight_) round.window = {.partial = round.window.partial};
}

void Rounds::forget_own_work(StepIndex now) {
  for (InFlight& round : in_flight_) {
    round.window = {};
    round.weight = 0;
    round.sample = {};
    if (round.result) round.result->cosine.reset();
  }
  for (std::size_t p = 0; p < windows_.size(); ++p) {
    windows_[p] = {.partial = last_sent_[p] != now};
  }
}

// One without steps stays as it is: methods that weigh all contributions alike would count it.
void Rounds::count_partial_windows() {
  for (Window& window : windows_) {
    if (window.weight() > 0) window.partial = false;
  }
}

void Rounds::warn_of_losses(std::span<const RoundReport> last) const {
  for (const RoundReport& round : last) {
    if (!round.closing || round.members > 0) continue;
    log_warning(
        "worker {}: nobody has contributed to the closing round of fragment {}: what was trained "
        "since its last round is in no outer parameters",
        exchange_.self().value(), round.fragment.value());
  }
  for (std::size_t p = 0; p < windows_.size(); ++p) {
    if (windows_[p].weight() == 0) continue;
    log_warning(
        "worker {}: the run has ended, and no round has taken {} steps of {} tokens that this "
        "worker has trained fragment {} on: they are in no outer parameters",
        exchange_.self().value(), windows_[p].steps, windows_[p].tokens, p);
  }
}

bool Rounds::in_flight(FragmentId id) const {
  return std::ranges::any_of(in_flight_,
                             [&](const InFlight& round) { return round.sync.fragment == id; });
}

void Rounds::carry_window(const Settled& lost) {
  Window& window = windows_.at(index(lost.report.fragment));
  window.tokens += lost.window.tokens;
  window.steps += lost.window.steps;
}

void Rounds::take_up(FragmentId id, std::int64_t tokens, std::int64_t steps) {
  windows_.at(index(id)).tokens += tokens;
  windows_.at(index(id)).steps += steps;
}

std::optional<Window> Rounds::unknown(FragmentId id) const {
  const auto found = std::ranges::find_if(
      in_flight_, [&](const InFlight& round) { return round.sync.fragment == id; });
  return found != in_flight_.end() ? found->window : failed_.at(index(id));
}

void Rounds::save(StateWriter& writer) const {
  for (std::size_t p = 0; p < windows_.size(); ++p) {
    writer.integer(fmt::format("last_sent/{}", p), last_sent_[p].value());
    save_window(windows_[p], writer, fmt::format("window/{}/", p));
  }
  writer.integer("in_flight", static_cast<std::int64_t>(in_flight_.size()));
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    const std::string prefix = fmt::format("in_flight/{}/", i);
    writer.integer(prefix + "fragment", in_flight_[i].sync.fragment.value());
    writer.integer(prefix + "sent", in_flight_[i].sync.sent.value());
    save_window(in_flight_[i].window, writer, prefix);
    writer.real(prefix + "weight", in_flight_[i].weight);
    writer.bytes(prefix + "encoded", in_flight_[i].encoded.bytes);
    in_flight_[i].sample.save(writer, prefix);
  }
}

Window Rounds::load_window(StateReader& reader, const std::string& prefix) const {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  return {.tokens = saved_number(reader, prefix + "tokens", 0, kAny),
          .steps = saved_number(reader, prefix + "steps", 0, kAny),
          .partial = reader.contains(prefix + "partial")};
}

void Rounds::load(StateReader& reader, StepIndex now) {
  ISTHMUS_CHECK(in_flight_.empty(), in_flight_.size());
  const auto fragments = static_cast<std::int64_t>(windows_.size());
  for (std::size_t p = 0; p < windows_.size(); ++p) {
    last_sent_[p] = StepIndex(saved_number(reader, fmt::format("last_sent/{}", p), 0, now.value()));
    windows_[p] = load_window(reader, fmt::format("window/{}/", p));
  }
  const std::int64_t rounds = saved_number(reader, "in_flight", 0, fragments * (lag_ + 1));
  for (std::int64_t i = 0; i < rounds; ++i) {
    const std::string prefix = fmt::format("in_flight/{}/", i);
    const FragmentId id(
        static_cast<int>(saved_number(reader, prefix + "fragment", 0, fragments - 1)));
    // A round that has slipped is over before its fragment is sent again.
    const std::int64_t longest =
        settings_.late == LateRound::kSlip ? settings_.schedule.H() - 1 : lag_;
    const StepIndex sent(saved_number(
        reader, prefix + "sent", std::max<std::int64_t>(1, now.value() - longest), now.value()));
    const auto values = static_cast<std::size_t>(
        settings_.fragments.at(static_cast<std::size_t>(id.value())).elements);
    Encoded encoded{.values = values, .bytes = reader.bytes(prefix + "encoded")};
    if (encoded.bytes.size() != encoded_bytes(*settings_.codec, encoded.values)) {
      throw RunError(
          fmt::format("checkpoint: the sync in flight of fragment {} has {} bytes; {} values in {} "
                      "take {}; resume from another one",
                      id.value(), encoded.bytes.size(), encoded.values, settings_.codec->name(),
                      encoded_bytes(*settings_.codec, encoded.values)));
    }
    const double weight = reader.real(prefix + "weight");
    if (!is_weight(weight)) {
      throw RunError(fmt::format(
          "checkpoint: {}weight = {}: must be 0 or in [{}, {}]; resume from another one", prefix,
          weight, kSmallestWeight, kLargestWeight));
    }
    if (in_flight(id)) {
      throw RunError(
          fmt::format("checkpoint: {}fragment = {}: is in flight twice; resume from another one",
                      prefix, id.value()));
    }
    InFlight round{.sync = {id, sent, StepIndex(sent.value() + lag_)},
                   .ticket = {},
                   .encoded = {},
                   .window = load_window(reader, prefix),
                   .weight = weight,
                   .sample = ContributionSample::load(reader, prefix, *settings_.codec, encoded)};
    begin(std::move(round), std::move(encoded));
  }
}

void Rounds::take_up_dropped(StateReader& reader) {
  for (std::int64_t i = 0;; ++i) {
    const std::string prefix = fmt::format("in_flight/{}/", i);
    if (!reader.contains(prefix + "fragment")) return;
    const FragmentId id(static_cast<int>(saved_number(
        reader, prefix + "fragment", 0, static_cast<std::int64_t>(windows_.size()) - 1)));
    if (in_flight(id)) continue;
    const Window dropped = load_window(reader, prefix);
    windows_[index(id)].tokens += dropped.tokens;
    windows_[index(id)].steps += dropped.steps;
  }
}

}  // namespace isthmus::outer
