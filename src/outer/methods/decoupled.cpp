// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/decoupled.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "outer/parts/flat_view.h"
#include "outer/parts/start_check.h"
#include "transport/wire/byte_fields.h"
#include "transport/wire/frame.h"

namespace isthmus::outer {
namespace {

constexpr std::int64_t kNobody = -1;  // merges of a worker that is not there

Merges& merges_of(Exchange& exchange) {
  Merges* const merges = exchange.merges();
  if (merges == nullptr) {
    throw ConfigError(
        "outer.method = decoupled: this exchange has no merges: processes need a hub "
        "(PeerExchange's "
        "options `hub` and `merges`); else train in one process or simulate");
  }
  return *merges;
}

}  // namespace

Decoupled::Decoupled(FragmentedSettings settings, const MergeRule& rule, InnerLoop& inner,
                     Exchange& exchange)
    : settings_(std::move(settings)),
      rule_(rule),
      inner_(inner),
      exchange_(exchange),
      merges_(merges_of(exchange)),
      places_(inner.parameters().size()),
      guard_(settings_.fragments.size(), settings_.outlier) {
  if (rule.quorum > exchange.members()) {
    throw ConfigError(fmt::format("outer.quorum = {}: must be at most the {} workers", rule.quorum,
                                  exchange.members()));
  }
  for (const Fragment& fragment : settings_.fragments) {
    std::size_t begin = 0;
    for (const std::size_t i : fragment.parameters) {
      places_[i] = {fragments_.size(), begin};
      begin += inner.parameters()[i].values.size();
    }
    fragments_.push_back(std::make_unique<Learned>(Learned{
        .state =
            FragmentState(fragment, inner, settings_.optimizer, settings_.codec->error_feedback()),
        .window = {},
        .due = false,
        .offered = {},
        .merged = std::vector<StepIndex>(static_cast<std::size_t>(exchange.members()))}));
  }
}

StepReport Decoupled::step() {
  const StepIndex t(steps_.value() + 1);
  begin(t);
  collect();
  const bool skips = behind();
  StepReport report{
      .step = t, .inner = skips ? InnerStep{.idle = true} : inner_.train_step(t), .rounds = {}};
  for (const auto& fragment : fragments_) {
    if (report.inner.idle) break;
    fragment->window.tokens += report.inner.tokens;
    ++fragment->window.steps;
  }
  steps_ = t;
  collect();
  apply_arrived(false, report.rounds);
  for (const Sync& sync : settings_.schedule.due_to_send(t)) at(sync.fragment).due = true;
  if (behind()) return report;
  for (const Fragment& fragment : settings_.fragments) {
    if (std::exchange(at(fragment.id).due, false)) offer(fragment.id, false);
  }
  await_own(report.rounds);
  return report;
}

void Decoupled::begin(StepIndex t) {
  if (std::exchange(takes_part_, true)) return;
  if (t == StepIndex(1)) agree_on_parameters(inner_, exchange_);
  if (std::exchange(meets_, false)) meet();
  merges_.follow(applied_);
  for (const auto& fragment : fragments_) {
    if (fragment->offered) send(fragment->state.fragment().id, *fragment->offered);
  }
}

void Decoupled::collect() {
  for (Merge& merge : merges_.take()) arrived_.push_back(std::move(merge));
}

// Merges are applied in order, so one that this worker may not apply yet holds up the later ones.
bool Decoupled::behind() const {
  return std::ranges::any_of(arrived_, [&](const Merge& merge) { return merge.step > steps_; });
}

void Decoupled::apply_arrived(bool all, std::vector<RoundReport>& reports) {
  while (!arrived_.empty() && (all || arrived_.front().step <= steps_)) {
    reports.push_back(apply(arrived_.front()));
    arrived_.pop_front();
  }
}

RoundReport Decoupled::apply(const Merge& merge) {
  Learned& fragment = at(merge.fragment);
  std::optional<OnItsWay> own;
  RoundReport report{.fragment = merge.fragment,
                     .sent = merge.step,
                     .applied = steps_,
                     .members = static_cast<int>(merge.offers.size()),
                     .counted = false,
                     .delta_norm = l2_norm(merge.values),
                     .merge = ++applied_};
  for (const MergedOffer& offer : merge.offers) {
    fragment.merged.at(index(offer.worker)) = offer.sent;
    report.tokens += offer.tokens;
    if (is_own(offer, fragment)) own = std::exchange(fragment.offered, std::nullopt);
  }
  const bool usable = std::isfinite(report.delta_norm);
  if (settings_.rates.vary()) fragment.state.use_rates(settings_.rates.at(merge.step));
  if (!own) {
    if (usable) fragment.state.step_and_rebase(merge.values);
    return report;
  }
  std::vector<float> since;  // trained since the offer
  if (fragment.window.steps > 0) {
    since = fragment.state.beyond();
    for (std::size_t i = 0; i < own->beyond.size(); ++i) since[i] -= own->beyond[i];
  }
  if (usable) fragment.state.step(merge.values);
  fragment.state.merge(0);
  if (!since.empty()) fragment.state.add_to_local(since);
  report.counted = usable;
  report.payload_bytes = report.wire_bytes = own->encoded.bytes.size();
  report.codec_error = own->sample.codec_error();
  report.cosine = own->sample.cosine(merge.values);
  report.waited = own->waited;
  report.closing = own->closing;
  return report;
}

void Decoupled::offer(FragmentId id, bool closing) {
  Learned& fragment = at(id);
  if (fragment.offered || fragment.window.weight() == 0) return;
  // A former process of this worker has offered at this step or later. Offers are told apart by
  // their steps.
  if (steps_ <= fragment.merged[index(exchange_.self())]) return;
  OuterGradient delta =
      fragment.state.outer_gradient(*settings_.codec, exchange_.key({id, steps_}),
                                    [&](double norm) { return guard_.accepts(id, norm); });
  if (!delta.fit) return give_up(id, delta.norm);
  const Window window = std::exchange(fragment.window, {});
  fragment.offered =
      OnItsWay{.sent = steps_,
               .window = window,
               .weight = window.weight() * window.weight() / static_cast<double>(window.steps),
               .encoded = std::move(delta.encoded),
               .beyond = fragment.state.beyond(),
               .sample = std::move(delta.sample),
               .closing = closing};
  send(id, *fragment.offered);
}

void Decoupled::send(FragmentId id, const OnItsWay& offer) {
  merges_.offer({.id = {id, offer.sent},
                 .encoded = offer.encoded,
                 .codec = settings_.codec,
                 .weight = offer.weight,
                 .tokens = offer.window.tokens,
                 .rule = rule_});
}

// A value that is not finite would be in every fragment after the next step.
void Decoupled::give_up(FragmentId id, double norm) {
  log_warning(
      "worker {}: its outer gradient of step {}, fragment {}, has the norm {}: {} tokens "
      "of its training are dropped",
      exchange_.self().value(), steps_.value(), id.value(), norm, at(id).window.tokens);
  for (const auto& fragment : fragments_) {
    if (std::isfinite(norm) && fragment->state.fragment().id != id) continue;
    fragment->state.merge(0);
    fragment->window = {};
    if (fragment->offered) fragment->offered->beyond.clear();
  }
  if (!std::isfinite(norm)) inner_.reset_optimizer();
}

// A former process of this worker may have offered too, and its offer may be merged later.
bool Decoupled::is_own(const MergedOffer& offer, const Learned& fragment) const {
  return offer.worker == exchange_.self() && fragment.offered &&
         fragment.offered->sent == offer.sent;
}

bool Decoupled::on_its_way(const Learned& fragment) const {
  return fragment.offered && std::ranges::none_of(arrived_, [&](const Merge& merge) {
           return merge.fragment == fragment.state.fragment().id &&
                  std::ranges::any_of(merge.offers, [&](const MergedOffer& offer) {
                    return is_own(offer, fragment);
                  });
         });
}

// Never with grace = "auto"; else once an offer, for at most the grace window. Offers are waited
// for together, and the first of them tells of the wait.
void Decoupled::await_own(std::vector<RoundReport>& reports) {
  if (!rule_.grace) return;
  while (!behind()) {
    std::vector<OnItsWay*> awaited;
    Duration left = *rule_.grace;
    for (const auto& fragment : fragments_) {
      if (!on_its_way(*fragment)) continue;
      OnItsWay& own = *fragment->offered;
      if (own.awaited >= *rule_.grace) continue;
      if (own.sent.value() + settings_.schedule.overlap() > steps_.value()) continue;
      awaited.push_back(&own);
      left = std::min(left, *rule_.grace - own.awaited);
    }
    if (awaited.empty()) return;
    const Duration waited = merges_.wait(left);
    awaited.front()->waited += waited;
    for (OnItsWay* const own : awaited) own->awaited += waited;
    collect();
    apply_arrived(false, reports);
  }
}

std::vector<RoundReport> Decoupled::finish() {
  begin(StepIndex(steps_.value() + 1));
  std::vector<RoundReport> reports;
  bool stopped = false, finished = false;
  while (!merges_.ended() || !arrived_.empty()) {
    collect();
    apply_arrived(true, reports);
    bool done = true;
    for (const Fragment& fragment : settings_.fragments) {
      offer(fragment.id, true);
      done = done && !at(fragment.id).offered;
    }
    // After the offers: nobody waits for this worker's from here on.
    if (!std::exchange(stopped, true)) merges_.stop_training();
    if (done && !std::exchange(finished, true)) merges_.finish();
    if (merges_.wait(settings_.patience) >= settings_.patience) {
      throw PeerError(fmt::format(
          "worker {}: no merge within {:.1f} s of its last one, and not all workers have finished; "
          "where they take that long, raise OuterOptions::patience (of a configuration file: "
          "net.patience)",
          exchange_.self().value(), in_seconds(settings_.patience)));
    }
  }
  return reports;
}

std::span<const float> Decoupled::values(std::size_t parameter) const {
  const auto [fragment, begin] = places_.at(parameter);
  return std::as_const(fragments_.at(fragment)->state)
      .anchor()
      .subspan(begin, inner_.parameters()[parameter].values.size());
}

// What the state's worker has offered is that worker's, which offers it again where all meet.
void Decoupled::forget_own_work() {
  for (const auto& fragment : fragments_) {
    fragment->state.forget_own_work();
    fragment->window = {};
    fragment->offered.reset();
  }
  meets_ = false;
}

void Decoupled::save(StateWriter& writer) const {
  save_identity(identity_of(settings_, inner_.parameters()), writer);
  writer.integer("step", steps_.value());
  writer.integer("merges", applied_);
  guard_.save(writer);
  for (std::size_t p = 0; p < fragments_.size(); ++p) {
    const Learned& fragment = *fragments_[p];
    fragment.state.save(writer);
    writer.integer(fmt::format("last_sent/{}", p),
                   fragment.merged[index(exchange_.self())].value());
    writer.integer(fmt::format("window/{}/tokens", p), fragment.window.tokens);
    writer.integer(fmt::format("window/{}/steps", p), fragment.window.steps);
    for (std::size_t m = 0; m < fragment.merged.size(); ++m) {
      writer.integer(fmt::format("merged/{}/{}", p, m), fragment.merged[m].value());
    }
    if (fragment.due) writer.integer(fmt::format("due/{}", p), 1);
    if (!fragment.offered) continue;
    const std::string prefix = fmt::format("offered/{}/", p);
    writer.integer(prefix + "sent", fragment.offered->sent.value());
    writer.integer(prefix + "tokens", fragment.offered->window.tokens);
    writer.integer(prefix + "steps", fragment.offered->window.steps);
    writer.real(prefix + "weight", fragment.offered->weight);
    writer.bytes(prefix + "encoded", fragment.offered->encoded.bytes);
    writer.tensor(prefix + "beyond", fragment.offered->beyond.empty()
                                         ? std::vector<float>(fragment.state.size())
                                         : fragment.offered->beyond);
    fragment.offered->sample.save(writer, prefix);
  }
}

void Decoupled::load(StateReader& reader) {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  check_identity(identity_of(settings_, inner_.parameters()), reader);
  steps_ = StepIndex(reader.integer("step"));
  applied_ = saved_number(reader, "merges", 0, kAny);
  guard_.load(reader);
  for (std::size_t p = 0; p < fragments_.size(); ++p) {
    Learned& fragment = *fragments_[p];
    fragment.state.load(reader);
    fragment.window = {.tokens = saved_number(reader, fmt::format("window/{}/tokens", p), 0, kAny),
                       .steps = saved_number(reader, fmt::format("window/{}/steps", p), 0, kAny)};
    for (std::size_t m = 0; m < fragment.merged.size(); ++m) {
      fragment.merged[m] =
          StepIndex(saved_number(reader, fmt::format("merged/{}/{}", p, m), 0, steps_.value()));
    }
    fragment.due = reader.contains(fmt::format("due/{}", p));
    const std::string prefix = fmt::format("offered/{}/", p);
    if (!reader.contains(prefix + "sent")) continue;
    Encoded encoded{.values = fragment.state.size(), .bytes = reader.bytes(prefix + "encoded")};
    if (encoded.bytes.size() != encoded_bytes(*settings_.codec, encoded.values)) {
      throw RunError(fmt::format("checkpoint: {}encoded has {} bytes; {} values in {} take {}",
                                 prefix, encoded.bytes.size(), encoded.values,
                                 settings_.codec->name(),
                                 encoded_bytes(*settings_.codec, encoded.values)));
    }
    OnItsWay own{.sent = StepIndex(saved_number(reader, prefix + "sent", 1, steps_.value())),
                 .window = {.tokens = saved_number(reader, prefix + "tokens", 0, kAny),
                            .steps = saved_number(reader, prefix + "steps", 1, kAny)},
                 .weight = reader.real(prefix + "weight"),
                 .encoded = {},
                 .beyond = std::vector<float>(encoded.values),
                 .sample = ContributionSample::load(reader, prefix, *settings_.codec, encoded)};
    if (own.weight == 0 || !is_weight(own.weight)) {
      throw RunError(
          fmt::format("checkpoint: {}weight is {}, which is no weight", prefix, own.weight));
    }
    saved_finite(reader, prefix + "beyond", own.beyond);
    own.encoded = std::move(encoded);
    fragment.offered = std::move(own);
  }
  meets_ = true;
}

Reduced Decoupled::result_of(Contribution contribution) {
  auto result = exchange_.wait(exchange_.begin(std::move(contribution)), settings_.patience);
  if (!result) throw_round_failure(exchange_.self(), "outer sync", result.error());
  return *std::move(result);
}

/// By worker: the merges that it has applied, then by fragment and worker the latest merged offer.
std::vector<std::int64_t> Decoupled::all_progress() {
  std::vector<std::int64_t> own{applied_};
  for (const auto& fragment : fragments_) {
    for (const StepIndex step : fragment->merged) own.push_back(step.value());
  }
  std::vector<std::byte> bytes(own.size() * sizeof(std::int64_t));
  FieldWriter out(bytes);
  for (const std::int64_t number : own) out.put(static_cast<std::uint64_t>(number));
  const Reduced all = result_of({.id = {FragmentId(0), steps_},
                                 .encoded = {.values = bytes.size(), .bytes = bytes},
                                 .codec = plain_bytes(),
                                 .kind = ReductionKind::kCollect});
  std::vector<std::int64_t> numbers;
  for (const Encoded& each : all.contributions) {
    if (each.bytes.empty()) {  // a site that is not there
      numbers.insert(numbers.end(), own.size(), kNobody);
      continue;
    }
    FieldReader in(each.bytes);
    for (std::size_t i = 0; i < own.size(); ++i) {
      numbers.push_back(static_cast<std::int64_t>(in.get<std::uint64_t>()));
    }
  }
  return numbers;
}

/// The values that worker `ahead` has. `place`: a number of its own for each call.
std::vector<float> Decoupled::all_have(std::span<const float> own, WorkerId ahead, int place) {
  const std::shared_ptr<const Codec> fp32 = make_codec("fp32");
  return result_of({.id = {FragmentId(place), steps_},
                    .encoded = encode(*fp32, own),
                    .codec = fp32,
                    .weight = exchange_.self() == ahead ? 1.0 : 0.0,
                    .kind = ReductionKind::kGather})
      .values;
}

// The states of a checkpoint are of one step, not of one moment: some workers may have applied
// merges that others had not. Work that is in no state of the most merges comes again.
void Decoupled::meet() {
  const std::vector<std::int64_t> all = all_progress();
  const auto workers = static_cast<std::size_t>(exchange_.members());
  const std::size_t each = all.size() / workers;
  std::size_t ahead = 0;
  bool alike = true;
  for (std::size_t m = 0; m < workers; ++m) {
    alike = alike && (all[m * each] == applied_ || all[m * each] == kNobody);
    if (all[m * each] > all[ahead * each]) ahead = m;
  }
  if (!alike) {
    const bool own_is_behind = applied_ < all[ahead * each];
    for (std::size_t p = 0; p < fragments_.size() && own_is_behind; ++p) {
      for (std::size_t m = 0; m < workers; ++m) {
        fragments_[p]->merged[m] = StepIndex(all[ahead * each + 1 + p * workers + m]);
      }
    }
    adopt(WorkerId(static_cast<int>(ahead)), own_is_behind);
    applied_ = all[ahead * each];
  }
}

void Decoupled::adopt(WorkerId ahead, bool own_is_behind) {
  int place = 0;
  for (const auto& fragment : fragments_) {
    FragmentState& state = fragment->state;
    const std::vector<float> anchor = all_have(state.anchor(), ahead, ++place);
    std::vector<float> momentum;
    if (!state.momentum().empty()) momentum = all_have(state.momentum(), ahead, ++place);
    if (!own_is_behind) continue;
    std::vector<float> work = state.beyond();
    if (fragment->offered && fragment->merged[index(exchange_.self())] >= fragment->offered->sent) {
      const std::vector<float>& beyond = fragment->offered->beyond;  // empty: forgotten
      for (std::size_t i = 0; i < beyond.size(); ++i) work[i] -= beyond[i];
      fragment->offered.reset();
    }
    std::ranges::copy(anchor, state.anchor().begin());
    std::ranges::copy(momentum, state.momentum().begin());
    state.merge(0);
    state.add_to_local(work);
  }
}

}  // namespace isthmus::outer
