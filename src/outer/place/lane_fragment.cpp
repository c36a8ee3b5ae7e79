// SPDX-License-Identifier: Apache-2.0
#include "outer/place/lane_fragment.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/state/own_pages.h"
#include "outer/place/lane_state.h"

namespace isthmus::outer {
namespace {

/// The first rank's lanes and how it reaches the others; co-owned by the worker's fragments.
struct FirstRank {
  RanksCall call;
  Lanes lanes;
};

class LaneFragment final : public OuterFragment {
 public:
  LaneFragment(Fragment fragment, InnerLoop& inner, std::shared_ptr<FirstRank> ranks);

  [[nodiscard]] OuterGradient outer_gradient(const Codec& codec, const EncodeKey& key,
                                             const Accepts& accepts) override;
  void take_back(const Codec& codec, const Encoded& sent) override;
  void keep_residual() override;
  void forget_kept_residual() override;
  bool recall_residual() override;
  void forget_own_work() override;
  [[nodiscard]] std::vector<float> beyond() const override;
  void add_to_local(std::span<const float> values) override;
  void use_rates(const kernels::OuterStep& now) override { rates_ = now; }
  void step(std::span<const float> mean) override;
  void merge(float alpha) override;
  void step_and_rebase(std::span<const float> mean) override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  void drop_anchor_copy() override { forget_anchor(); }
  [[nodiscard]] const Fragment& fragment() const override { return fragment_; }
  [[nodiscard]] std::span<const float> anchor() const override;

 private:
  [[nodiscard]] bool has_residual() const {
    return ranks_->lanes.settings().codec->error_feedback();
  }
  void ask(const LaneRequest& request, LaneData data) const;
  void ask(LaneAsk what, LaneData data, float alpha = 0, const EncodeKey& key = {}) const {
    ask({.ask = what, .fragment = fragment_.id, .alpha = alpha, .key = key}, std::move(data));
  }
  void ask(LaneAsk what, std::int64_t number, LaneData data = {}) const {
    ask({.ask = what, .fragment = fragment_.id, .number = number}, std::move(data));
  }
  /// A request that steps the anchor, at the rates in use.
  [[nodiscard]] LaneRequest stepping(LaneAsk what) const {
    return {.ask = what, .fragment = fragment_.id, .eta = rates_.eta, .mu = rates_.mu};
  }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(fragment_.elements); }
  /// The fragment's values in the inner loop, as many as they are contiguous there.
  [[nodiscard]] std::vector<std::span<float>> local() const;
  void fetch_local() const;
  void wrote_local() const;
  void forget_anchor();

  Fragment fragment_;
  InnerLoop& inner_;
  std::shared_ptr<FirstRank> ranks_;
  kernels::OuterStep rates_;  // of the steps to come
  mutable OwnPages anchor_;   // empty: not asked for since it changed or was dropped
};

LaneFragment::LaneFragment(Fragment fragment, InnerLoop& inner, std::shared_ptr<FirstRank> ranks)
    : fragment_(std::move(fragment)),
      inner_(inner),
      ranks_(std::move(ranks)),
      rates_(ranks_->lanes.settings().optimizer) {
  fetch_local();
  ask(LaneAsk::kMake, {.local = local()});
}

void LaneFragment::ask(const LaneRequest& request, LaneData data) const {
  ranks_->call([&](Communicator& ranks) { ranks_->lanes.take_part(request, ranks, data); });
}

std::vector<std::span<float>> LaneFragment::local() const {
  std::vector<std::span<float>> stretches;
  for (const std::size_t i : fragment_.parameters) {
    const std::span<float> values = inner_.parameters()[i].values;
    if (values.empty()) continue;
    if (!stretches.empty() && stretches.back().data() + stretches.back().size() == values.data()) {
      stretches.back() = {stretches.back().data(), stretches.back().size() + values.size()};
    } else {
      stretches.push_back(values);
    }
  }
  return stretches;
}

void LaneFragment::fetch_local() const {
  for (const CanonicalRange& elements : elements_of(fragment_, inner_.parameters())) {
    inner_.read_values(elements);
  }
}

void LaneFragment::wrote_local() const {
  for (const CanonicalRange& elements : elements_of(fragment_, inner_.parameters())) {
    inner_.wrote_values(elements);
  }
}

void LaneFragment::forget_anchor() { anchor_ = {}; }

OuterGradient LaneFragment::outer_gradient(const Codec& codec, const EncodeKey& key,
                                           const Accepts& accepts) {
  ISTHMUS_CHECK(codec.name() == ranks_->lanes.settings().codec->name(), codec.name());
  fetch_local();
  OuterGradient delta;
  ask(LaneAsk::kGradient, {.local = local(), .accepts = &accepts, .gradient = &delta}, 0, key);
  return delta;
}

void LaneFragment::take_back(const Codec&, const Encoded& sent) {
  if (has_residual()) ask(LaneAsk::kTakeBack, {.sent = sent.bytes});
}

void LaneFragment::keep_residual() {
  if (has_residual()) ask(LaneAsk::kKeepResidual, {});
}

void LaneFragment::forget_kept_residual() {
  if (has_residual()) ask(LaneAsk::kForgetKeptResidual, {});
}

bool LaneFragment::recall_residual() {
  bool recalled = false;
  if (has_residual()) ask(LaneAsk::kRecallResidual, {.recalled = &recalled});
  return recalled;
}

void LaneFragment::forget_own_work() {
  ask(LaneAsk::kForgetOwnWork, {.local = local()});
  wrote_local();
}

// These two at the first rank: a site that was cut off and comes back, once.
std::vector<float> LaneFragment::beyond() const {
  fetch_local();
  const std::span<const float> anchors = anchor();
  std::vector<float> values(anchors.size());
  std::size_t at = 0;
  for (const std::span<float> stretch : local()) {
    for (const float value : stretch) {
      values[at] = value - anchors[at];
      ++at;
    }
  }
  return values;
}

void LaneFragment::add_to_local(std::span<const float> values) {
  fetch_local();
  std::size_t at = 0;
  for (const std::span<float> stretch : local()) {
    for (float& value : stretch) value += values[at++];
  }
  ISTHMUS_CHECK(at == values.size(), at, values.size());
  wrote_local();
}

void LaneFragment::step(std::span<const float> mean) {
  forget_anchor();
  ask(stepping(LaneAsk::kStep), {.mean = mean});
}

void LaneFragment::merge(float alpha) {
  if (alpha == 1) return;
  if (alpha != 0) fetch_local();
  ask(LaneAsk::kMerge, {.local = local()}, alpha);
  wrote_local();
}

void LaneFragment::step_and_rebase(std::span<const float> mean) {
  forget_anchor();
  fetch_local();
  ask(stepping(LaneAsk::kStepAndRebase), {.local = local(), .mean = mean});
  wrote_local();
}

void LaneFragment::save(StateWriter& writer) const {
  std::int64_t tensors = 0;
  LaneWriter each(
      {.tensor =
           [&](std::string_view name, std::span<const float>) {
             const OwnPages whole(size());
             ask(LaneAsk::kGatherTensor, tensors++, {.whole = whole.span()});
             writer.tensor(name, whole.span());
           },
       .integer = [&](std::string_view name, std::int64_t value) { writer.integer(name, value); }});
  std::as_const(ranks_->lanes).lane(fragment_.id).state().save(each);
}

// The first rank's lane reads, and passes its values on to the other lanes: a file may be slow, and
// damage is found here, before any other lane has the values.
void LaneFragment::load(StateReader& reader) {
  forget_anchor();
  ask(LaneAsk::kBeginLoad, {});
  const auto tell = [&](std::int64_t number) {
    ask(LaneAsk::kTellNumber, number);
    return number;
  };
  LaneReader each(
      {.contains = [&](std::string_view name) { return tell(reader.contains(name) ? 1 : 0) != 0; },
       .tensor =
           [&](std::string_view name, std::span<float> own) {
             const OwnPages whole(size());
             if (name.starts_with("residual")) {  // a lane looks at its own part alone
               saved_finite(reader, std::string(name), whole.span());
             } else {
               reader.tensor(name, whole.span());
             }
             ask(LaneAsk::kTellTensor, {.whole = whole.span(), .part = own});
           },
       .integer = [&](std::string_view name) { return tell(reader.integer(name)); }});
  ranks_->lanes.lane(fragment_.id).state().load(each);
  ask(LaneAsk::kEndLoad, {});
}

std::span<const float> LaneFragment::anchor() const {
  if (anchor_.empty() && fragment_.elements > 0) {
    OwnPages whole(size());
    ask(LaneAsk::kAnchor, {.whole = whole.span()});
    anchor_ = std::move(whole);
  }
  return anchor_.span();
}

}  // namespace

FragmentMaker fragments_on_ranks(const FragmentedSettings& settings, InnerLoop& inner,
                                 RanksCall call) {
  return [&inner, first = std::make_shared<FirstRank>(FirstRank{std::move(call), Lanes(settings)})](
             const Fragment& fragment) {
    return std::make_unique<LaneFragment>(fragment, inner, first);
  };
}

}  // namespace isthmus::outer
