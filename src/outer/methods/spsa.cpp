// SPDX-License-Identifier: Apache-2.0
#include "outer/methods/spsa.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/all_elements.h"
#include "isthmus/errors.h"
#include "kernels/spsa_code.h"
#include "outer/parts/spsa_replay.h"
#include "outer/parts/start_check.h"

namespace isthmus::outer {
namespace {

constexpr FragmentId kEntries{0};
constexpr FragmentId kChain{1};
constexpr std::int64_t kClipWindow = 64;  // the clip is a median of the entries of so many steps
constexpr int kFewestForClip = 16;        // entries; with fewer nothing is clipped

kernels::SpsaDirection direction(StepIndex t, WorkerId machine, int sample) {
  return {.step = static_cast<std::uint32_t>(t.value()),
          .machine = static_cast<std::uint32_t>(machine.value()),
          .sample = static_cast<std::uint32_t>(sample)};
}

std::int64_t elements_of(std::span<const Parameter> parameters) {
  std::int64_t elements = 0;
  for (const Parameter& p : parameters) {
    elements += p.elements.size();
  }
  return elements;
}

/// L2 norm of the decoded slopes.
double norm_of(const SpsaRecord& record, int scale_log2) {
  double sum = 0;
  for (const std::uint8_t code : record.codes) {
    const double g = kernels::spsa_decode(code, scale_log2);
    sum += g * g;
  }
  return std::sqrt(sum);
}

}  // namespace

Spsa::Spsa(const MethodInfo& method, const OuterOptions& options, InnerLoop& inner,
           Exchange& exchange, std::unique_ptr<SpsaWeights> weights)
    : method_(method.name),
      options_(options.spsa),
      inner_(inner),
      exchange_(exchange),
      patience_(options.patience),
      weights_(std::move(weights)),
      log_(header_at(StepIndex(0))) {}

StepReport Spsa::step() {
  const StepIndex t(steps_.value() + 1);
  if (t == StepIndex(1)) agree_on_parameters(inner_, exchange_);
  StepReport report{.step = t, .inner = {}, .rounds = {}};
  std::vector<std::byte> mine = measure(t, report.inner);
  SpsaRecord record = exchange_entries(t, std::move(mine), report);
  weights_->apply(log_.header(), record);
  seal(std::move(record), report);
  steps_ = t;
  return report;
}

// Central differences along z; the base weights are only read, and stay as they are until all
// entries are there.
std::vector<std::byte> Spsa::measure(StepIndex t, InnerStep& inner) {
  const auto eps = static_cast<float>(options_.eps);
  const double limit = slope_limit();
  std::vector<std::byte> codes;
  for (int sample = 0; sample < options_.samples; ++sample) {
    const SampleShare share{.index = sample, .count = options_.samples};
    const kernels::SpsaDirection z = direction(t, exchange_.self(), sample);
    const InnerStep above = inner_.train_loss(t, share, weights_->perturbed(z, eps));
    const InnerStep below = inner_.train_loss(t, share, weights_->perturbed(z, -eps));
    const double slope = (above.loss - below.loss) / (2 * static_cast<double>(eps));
    codes.push_back(static_cast<std::byte>(encode(slope, limit)));
    inner.loss += (above.loss + below.loss) / 2 / options_.samples;
    inner.tokens += above.tokens;
    inner.idle = above.idle;
  }
  return codes;
}

std::uint8_t Spsa::encode(double slope, double limit) const {
  if (options_.sign_only) {
    return kernels::spsa_encode_sign(static_cast<float>(slope));
  }
  const double clipped = std::isfinite(slope) ? std::clamp(slope, -limit, limit) : slope;
  return kernels::spsa_encode(static_cast<float>(clipped), options_.scale_log2);
}

// From the log alone, so that nothing more need be saved: codes grow with magnitudes.
double Spsa::slope_limit() const {
  std::vector<int> magnitudes;
  const std::int64_t base = log_.header().base_step.value();
  for (std::int64_t s = std::max(base, steps_.value() - kClipWindow); s < steps_.value(); ++s) {
    for (const std::uint8_t code : log_.record(StepIndex(s + 1)).codes) {
      if ((code & 0x7f) != 0) {
        magnitudes.push_back(code & 0x7f);
      }
    }
  }
  if (options_.clip == 0 || magnitudes.size() < kFewestForClip) {
    return std::numeric_limits<double>::max();
  }
  const auto middle = magnitudes.begin() + static_cast<std::ptrdiff_t>(magnitudes.size() / 2);
  std::ranges::nth_element(magnitudes, middle);
  return options_.clip * static_cast<double>(kernels::spsa_decode(
                             static_cast<std::uint8_t>(*middle), options_.scale_log2));
}

SpsaRecord Spsa::exchange_entries(StepIndex t, std::vector<std::byte> mine, StepReport& report) {
  const Reduced all = collect({kEntries, t}, std::move(mine));
  SpsaRecord record{.step = t, .lr = static_cast<float>(inner_.learning_rate(t))};
  for (std::size_t k = 0; k < all.contributors.size(); ++k) {
    record.machines.push_back(static_cast<std::uint32_t>(all.contributors[k].value()));
    record.counts.push_back(static_cast<std::uint16_t>(all.contributions[k].bytes.size()));
    for (const std::byte code : all.contributions[k].bytes) {
      record.codes.push_back(std::to_integer<std::uint8_t>(code));
    }
  }
  // E (z.grad)^2 = |grad|^2, and |sum z g|^2 is d sum g^2 on average.
  const double norm = norm_of(record, options_.scale_log2);
  const auto n = static_cast<double>(std::max<std::size_t>(1, record.codes.size()));
  report.inner.grad_norm = norm / std::sqrt(n);
  report.rounds.push_back(
      {.fragment = kEntries,
       .sent = t,
       .applied = t,
       .members = static_cast<int>(all.contributors.size()),
       .payload_bytes = all.payload_bytes,
       .wire_bytes = all.wire_bytes,
       .delta_norm = norm * std::sqrt(static_cast<double>(log_.header().elements)) / n,
       .waited = all.waited});
  return record;
}

void Spsa::seal(SpsaRecord record, StepReport& report) {
  const StepIndex t = record.step;
  const bool digest_due = t.value() % SpsaLog::kWeightsEvery == 0;
  if (digest_due) {
    inner_.read_values(all_elements(inner_));
    record.weights = weights_digest(inner_.parameters());
  }
  log_.append(record);
  if (digest_due) {
    compare_chains(t, report);
  }
}

// H covers every entry, learning rate and digest of the weights so far: equal chains are equal
// runs.
void Spsa::compare_chains(StepIndex t, StepReport& report) {
  const auto own = std::as_bytes(std::span(log_.chain().bytes));
  const Reduced all = collect({kChain, t}, {own.begin(), own.end()});
  for (std::size_t k = 0; k < all.contributors.size(); ++k) {
    if (!std::ranges::equal(all.contributions[k].bytes, own)) {
      throw PeerError(fmt::format(
          "worker {}: after step {} its log or weights differ from those of worker {}: unlike "
          "builds, settings or memory faults; compare `isthmus inspect` of their spsa logs",
          exchange_.self().value(), t.value(), all.contributors[k].value()));
    }
  }
  report.rounds.push_back({.fragment = kChain,
                           .sent = t,
                           .applied = t,
                           .members = static_cast<int>(all.contributors.size()),
                           .payload_bytes = all.payload_bytes,
                           .wire_bytes = all.wire_bytes,
                           .delta_norm = 0,
                           .waited = all.waited});
}

Reduced Spsa::collect(SyncId id, std::vector<std::byte> bytes) {
  const std::size_t values = bytes.size();
  const Ticket ticket = exchange_.begin({.id = id,
                                         .encoded = {values, std::move(bytes)},
                                         .codec = plain_bytes(),
                                         .weight = 1,
                                         .kind = ReductionKind::kCollect,
                                         .commit = true});
  Expected<Reduced, ExchangeError> all = exchange_.wait(ticket, patience_);
  if (!all) {
    throw_round_failure(exchange_.self(), "exchange of spsa entries", all.error());
  }
  return std::move(*all);
}

std::span<const float> Spsa::values(std::size_t parameter) const {
  inner_.read_values(inner_.parameters()[parameter].elements);
  return inner_.parameters()[parameter].values;
}

SpsaLogHeader Spsa::header_at(StepIndex step) const {
  inner_.read_values(all_elements(inner_));
  return {.run_key = options_.run_key,
          .scale_log2 = options_.scale_log2,
          .divide_by_sqrt = options_.divide_by_sqrt,
          .weight_decay = static_cast<float>(options_.weight_decay),
          .members = static_cast<std::uint32_t>(exchange_.members()),
          .elements = static_cast<std::uint64_t>(elements_of(inner_.parameters())),
          .layout = layout_digest(inner_.parameters()),
          .base_step = step,
          .base_weights = weights_digest(inner_.parameters())};
}

// The values that the log's header fixes; eps, samples, clip and sign_only may change from step to
// step.
Identity Spsa::identity() const {
  return {{"method", method_},
          {"run_key", fmt::format("{:016x}", options_.run_key)},
          {"divisor", options_.divide_by_sqrt ? "sqrt" : "mean"},
          {"weight_decay", fmt::format("{}", options_.weight_decay)},
          {"code_scale", fmt::format("2^{}", options_.scale_log2)}};
}

void Spsa::save(StateWriter& writer) const {
  save_identity(identity(), writer);
  writer.integer("step", steps_.value());
  writer.bytes("spsa_log", log_.bytes());
}

void Spsa::load(StateReader& reader) {
  check_identity(identity(), reader);
  steps_ = StepIndex(reader.integer("step"));
  Expected<SpsaLog, SpsaLogError> saved = SpsaLog::parse(reader.bytes("spsa_log"));
  if (!saved) {
    throw RunError(
        fmt::format("checkpoint: spsa log: {}; resume from another one", saved.error().what));
  }
  if (saved->last() != steps_ || saved->header().layout != log_.header().layout) {
    throw RunError("checkpoint: its spsa log is of another model or step; resume from another one");
  }
  const bool same_members = saved->header().members == log_.header().members;
  log_ = std::move(*saved);
  if (!same_members) {
    SpsaLogHeader header = header_at(steps_);
    header.base_chain = log_.chain();
    log_ = SpsaLog(header);
  }
}

}  // namespace isthmus::outer
