// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/ddp.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "outer/parts/flat_view.h"
#include "outer/parts/settings.h"
#include "outer/parts/start_check.h"

namespace isthmus::outer {
namespace {

SyncId id_of(std::size_t bucket, StepIndex t) { return {FragmentId(static_cast<int>(bucket)), t}; }

FlatView gradients_of(const Bucket& bucket, InnerLoop& inner) {
  FlatView view;
  for (const Slice& slice : bucket.slices) {
    view.append(inner.gradient(slice.parameter).subspan(slice.begin, slice.size));
  }
  return view;
}

}  // namespace

Ddp::Ddp(const MethodInfo& method, const OuterOptions& options, InnerLoop& inner,
         Exchange& exchange, std::size_t bucket_values)
    : settings_(resolve_buckets(method, options)),
      inner_(inner),
      exchange_(exchange),
      buckets_(make_buckets(inner.parameters(), bucket_values)) {
  for (const Bucket& bucket : buckets_) {
    if (settings_.codec->error_feedback()) residuals_.emplace_back(bucket.values);
  }
}

StepReport Ddp::step() {
  const StepIndex t(steps_.value() + 1);
  if (t == StepIndex(1)) agree_on_parameters(inner_, exchange_);
  tickets_.clear();
  ready_.assign(inner_.parameters().size(), false);
  StepReport report{.step = t, .inner = {}, .rounds = {}};
  report.inner = inner_.gradients(t, [&](std::size_t parameter) {
    ready_[parameter] = true;
    launch_ready(t);
  });
  ready_.assign(ready_.size(), true);  // those the inner loop did not announce
  launch_ready(t);
  for (std::size_t k = 0; k < buckets_.size(); ++k) {
    report.rounds.push_back(take_mean(k, t));
  }
  report.inner.grad_norm = inner_.apply_gradients(t);
  steps_ = t;
  return report;
}

// In bucket order whatever order gradients come in, so that all workers begin rounds alike.
void Ddp::launch_ready(StepIndex t) {
  while (tickets_.size() < buckets_.size()) {
    const Bucket& next = buckets_[tickets_.size()];
    const bool final = std::ranges::all_of(
        next.slices, [&](const Slice& slice) { return ready_[slice.parameter]; });
    if (!final) {
      return;
    }
    launch(tickets_.size(), t);
  }
}

void Ddp::launch(std::size_t bucket, StepIndex t) {
  const FlatView gradients = gradients_of(buckets_[bucket], inner_);
  const bool last = bucket + 1 == buckets_.size();
  const EncodeKey key = exchange_.key(id_of(bucket, t));
  const auto fill = [&](std::size_t begin, std::span<float> tile) { gradients.read(begin, tile); };
  tickets_.push_back(exchange_.begin(
      {.id = id_of(bucket, t),
       .encoded = encode_tiles(*settings_.codec, gradients.size(), fill, key, residual_of(bucket)),
       .codec = settings_.codec,
       .weight = 1,
       .kind = settings_.exchange,
       .commit = last && t.value() % settings_.commit_every == 0}));
}

Reduced Ddp::settle(const Ticket& ticket) {
  Expected<Reduced, ExchangeError> mean = exchange_.wait(ticket, settings_.patience);
  if (!mean) {
    throw_round_failure(exchange_.self(), "gradient exchange", mean.error());
  }
  return std::move(*mean);
}

RoundReport Ddp::take_mean(std::size_t bucket, StepIndex t) {
  const Reduced mean = settle(tickets_[bucket]);
  gradients_of(buckets_[bucket], inner_)
      .for_each([&](std::size_t begin, std::span<float> gradient) {
        std::ranges::copy(std::span(mean.values).subspan(begin, gradient.size()), gradient.begin());
      });
  return {.fragment = FragmentId(static_cast<int>(bucket)),
          .sent = t,
          .applied = t,
          .members = static_cast<int>(mean.contributors.size()),
          .payload_bytes = mean.payload_bytes,
          .wire_bytes = mean.wire_bytes,
          .delta_norm = l2_norm(mean.values),
          .waited = mean.waited};
}

ErrorFeedback* Ddp::residual_of(std::size_t bucket) {
  return residuals_.empty() ? nullptr : &residuals_[bucket];
}

// Nothing is in flight between steps.
std::vector<RoundReport> Ddp::finish() {
  commit_open_rounds(steps_);
  return {};
}

void Ddp::commit_open_rounds(StepIndex last) {
  if (last.value() % settings_.commit_every != 0) commit_after(last);
}

void Ddp::commit_retractable(StepIndex last) {
  if (exchange_.uncommitted()) commit_after(last);
}

// An empty round commits the digests still open.
void Ddp::commit_after(StepIndex last) {
  (void)settle(exchange_.begin({.id = id_of(buckets_.size(), last),
                                .encoded = {},
                                .codec = settings_.codec,
                                .weight = 1,
                                .kind = settings_.exchange,
                                .commit = true}));
}

std::span<const float> Ddp::values(std::size_t parameter) const {
  inner_.read_values(inner_.parameters()[parameter].elements);
  return inner_.parameters()[parameter].values;
}

Identity Ddp::identity() const {
  return {{"method", settings_.method}, {"codec", settings_.codec->name()}};
}

void Ddp::save(StateWriter& writer) const {
  save_identity(identity(), writer);
  writer.integer("step", steps_.value());
  for (std::size_t k = 0; k < residuals_.size(); ++k) {
    writer.tensor(fmt::format("residual/{}", k), residuals_[k].residual());
  }
}

void Ddp::load(StateReader& reader) {
  check_identity(identity(), reader);
  steps_ = StepIndex(reader.integer("step"));
  for (std::size_t k = 0; k < residuals_.size(); ++k) {
    std::vector<float> residual(buckets_[k].values);
    saved_finite(reader, fmt::format("residual/{}", k), residual);
    residuals_[k].restore(residual);
  }
}

// Every step is a separate window.
void Ddp::forget_own_work() {
  for (ErrorFeedback& residual : residuals_) {
    residual.reset();
  }
}

}  // namespace isthmus::outer
