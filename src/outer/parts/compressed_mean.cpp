// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/compressed_mean.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/log.h"
#include "isthmus/errors.h"
#include "outer/parts/flat_view.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {

HostWorkerEnd::HostWorkerEnd(std::vector<std::size_t> buckets, std::shared_ptr<const Codec> codec)
    : buckets_(std::move(buckets)), codec_(std::move(codec)) {
  if (!codec_->error_feedback()) return;
  for (const std::size_t values : buckets_) residual_.emplace_back(values);
}

WorkerEnd::Sent HostWorkerEnd::encode(std::size_t bucket, const EncodeKey& key, bool fit) {
  const FillTile values = [&](std::size_t begin, std::span<float> tile) {
    if (fit) {
      fill_(bucket, begin, tile);
    } else {
      std::ranges::fill(tile, 0.0f);
    }
  };
  ErrorFeedback* const feedback = fit && !residual_.empty() ? &residual_[bucket] : nullptr;
  Sent sent{.encoded = {}, .sample = ContributionSample(buckets_[bucket])};
  sent.encoded =
      encode_tiles(*codec_, buckets_[bucket], values, key, feedback, fit ? &sent.sample : nullptr);
  return sent;
}

void HostWorkerEnd::forget(std::size_t bucket) {
  if (!residual_.empty()) residual_[bucket].reset();
}

std::span<const float> HostWorkerEnd::residual(std::size_t bucket) const {
  return residual_.empty() ? std::span<const float>{} : residual_.at(bucket).residual();
}

void HostWorkerEnd::restore(std::size_t bucket, std::span<const float> residual) {
  residual_.at(bucket).restore(residual);
}

CompressedMean::CompressedMean(std::vector<std::size_t> buckets, BucketSettings settings,
                               Exchange& exchange, WorkerEnd& worker)
    : buckets_(std::move(buckets)),
      settings_(std::move(settings)),
      exchange_(exchange),
      worker_(worker) {
  if (!settings_.codec->error_feedback()) return;
  for (std::size_t k = 0; k < buckets_.size(); ++k) {
    owner_.push_back(std::make_shared<OwnerResidual>());
  }
}

std::vector<RoundReport> CompressedMean::run(StepIndex t, bool fit, bool commit, const Take& take) {
  std::vector<Ticket> tickets;
  std::vector<ContributionSample> samples;
  for (std::size_t k = 0; k < buckets_.size(); ++k) {
    const SyncId id{FragmentId(static_cast<int>(k)), t};
    WorkerEnd::Sent sent = worker_.encode(k, exchange_.key(id), fit);
    samples.push_back(std::move(sent.sample));
    tickets.push_back(exchange_.begin({.id = id,
                                       .encoded = std::move(sent.encoded),
                                       .codec = settings_.codec,
                                       .weight = fit ? 1.0 : 0.0,
                                       .owner_residual = owner_.empty() ? nullptr : owner_[k],
                                       .kind = settings_.exchange,
                                       .commit = commit && k + 1 == buckets_.size()}));
  }
  std::vector<RoundReport> reports;
  for (std::size_t k = 0; k < buckets_.size(); ++k) {
    const Expected<Reduced, ExchangeError> mean = exchange_.wait(tickets[k], settings_.patience);
    if (!mean) {
      throw_round_failure(exchange_.self(), "momentum exchange", mean.error());
    }
    const double norm = l2_norm(mean->values);
    const bool usable = std::isfinite(norm);
    const bool measured =
        fit && usable &&
        std::ranges::find(mean->contributors, exchange_.self()) != mean->contributors.end();
    if (usable && !mean->contributors.empty()) {
      take(k, mean->values);
    } else if (!owner_.empty()) {
      if (fit) worker_.forget(k);
      owner_[k]->values.clear();
    }
    if (!usable) {
      log_warning("worker {}: step {}: the mean of part {} has norm {} and is left out",
                  exchange_.self().value(), t.value(), k, norm);
    }
    reports.push_back({.fragment = tickets[k].id.fragment,
                       .sent = t,
                       .applied = t,
                       .members = static_cast<int>(mean->contributors.size()),
                       .counted = fit,
                       .payload_bytes = mean->payload_bytes,
                       .wire_bytes = mean->wire_bytes,
                       .delta_norm = norm,
                       .codec_error = measured ? samples[k].codec_error() : std::nullopt,
                       .cosine = measured ? samples[k].cosine(mean->values) : std::nullopt,
                       .waited = mean->waited});
  }
  return reports;
}

void CompressedMean::forget() {
  for (std::size_t k = 0; k < buckets_.size(); ++k) worker_.forget(k);
  for (const std::shared_ptr<OwnerResidual>& residual : owner_) {
    residual->values.clear();
  }
}

void CompressedMean::save(StateWriter& writer) const {
  writer.integer("residuals", static_cast<std::int64_t>(owner_.size()));
  writer.integer("residuals/members", exchange_.members());
  for (std::size_t k = 0; k < owner_.size(); ++k) {
    writer.tensor(fmt::format("residual/worker/{}", k), worker_.residual(k));
    writer.integer(fmt::format("residual/owner/{}/size", k),
                   static_cast<std::int64_t>(owner_[k]->values.size()));
    writer.integer(fmt::format("residual/owner/{}/first", k),
                   static_cast<std::int64_t>(owner_[k]->first));
    writer.tensor(fmt::format("residual/owner/{}", k), owner_[k]->values);
  }
}

void CompressedMean::load(StateReader& reader) {
  const bool same_members = reader.integer("residuals/members") == exchange_.members();
  // A run that is resumed with feedback from a run without it starts the feedback from zero.
  const auto saved = static_cast<std::size_t>(reader.integer("residuals"));
  for (std::size_t k = 0; k < std::min(saved, owner_.size()); ++k) {
    std::vector<float> residual(buckets_[k]);
    saved_finite(reader, fmt::format("residual/worker/{}", k), residual);
    worker_.restore(k, residual);
    if (same_members) {
      const std::int64_t size = reader.integer(fmt::format("residual/owner/{}/size", k));
      if (size < 0 || static_cast<std::size_t>(size) > buckets_[k]) {
        throw RunError(fmt::format(
            "checkpoint: the owner's residual of bucket {} has {} values, 0 to {} are possible; "
            "resume from another one",
            k, size, buckets_[k]));
      }
      const std::string first = fmt::format("residual/owner/{}/first", k);
      if (!reader.contains(first)) {
        continue;  // of a build that did not say: from zero
      }
      owner_[k]->first = static_cast<std::size_t>(
          saved_number(reader, first, 0, static_cast<std::int64_t>(buckets_[k])));
      owner_[k]->values.resize(static_cast<std::size_t>(size));
      saved_finite(reader, fmt::format("residual/owner/{}", k), owner_[k]->values);
    }
  }
}

std::span<const float> CompressedMean::owner_residual(std::size_t bucket) const {
  return owner_.empty() ? std::span<const float>{}
                        : std::span<const float>(owner_.at(bucket)->values);
}

}  // namespace isthmus::outer
