// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/fragment_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "isthmus/errors.h"
#include "outer/parts/lanes.h"
#include "outer/parts/settings.h"

namespace isthmus::outer {

void check_own_contribution(const Expected<void, DecodeError>& decoded) {
  if (decoded) return;
  throw RunError(
      fmt::format("checkpoint: the contribution of this worker that was in flight does not decode: "
                  "{}; the checkpoint is damaged, go on from an earlier one",
                  decoded.error().what));
}

std::vector<CanonicalRange> elements_of(const Fragment& fragment,
                                        std::span<const Parameter> parameters) {
  std::vector<CanonicalRange> elements;
  for (const std::size_t i : fragment.parameters) {
    const CanonicalRange own = parameters[i].elements;
    if (!elements.empty() && elements.back().end == own.begin) {
      elements.back().end = own.end;
    } else {
      elements.push_back(own);
    }
  }
  return elements;
}

FragmentState::FragmentState(Fragment fragment, InnerLoop& inner,
                             const kernels::OuterStep& optimizer, bool with_feedback,
                             float feedback_decay)
    : fragment_(std::move(fragment)),
      inner_(inner),
      elements_(elements_of(fragment_, inner.parameters())),
      optimizer_(optimizer) {
  for (const std::size_t i : fragment_.parameters) local_.append(inner.parameters()[i].values);
  anchor_ = StateArray::unfilled(local_.size());
  fetch_local();
  StateWalk(size(), ranges({.local = StateUse::kRead, .anchor = StateUse::kWrite}))
      .run([&](std::size_t begin, std::size_t end) {
        local_.read(begin, anchor_.span().subspan(begin, end - begin));
      });
  momentum_ = StateArray(has_momentum() ? anchor_.size() : 0);
  summed_ = StateArray(sums() ? anchor_.size() : 0);
  if (with_feedback) {
    feedback_.emplace(anchor_.size(), feedback_decay);
  }
}

StateWalk::Ranges FragmentState::ranges(Touched touched) const {
  return [this, touched](std::size_t begin, std::size_t end, const StateWalk::Visit& visit) {
    const auto array = [&](std::span<const float> values, std::optional<StateUse> use) {
      if (use && !values.empty()) visit(values.subspan(begin, end - begin), *use);
    };
    array(anchor_.span(), touched.anchor);
    array(momentum_.span(), touched.momentum);
    array(summed_.span(), touched.momentum);
    if (feedback_) array(feedback_->residual(), touched.residual);
    if (!touched.local) return;
    local_.for_range(begin, end,
                     [&](std::size_t, std::span<float> values) { visit(values, *touched.local); });
  };
}

OuterGradient FragmentState::outer_gradient(const Codec& codec, const EncodeKey& key,
                                            const Accepts& accepts, std::span<const float> more) {
  double norm = 0;
  const Judge judge = [&](std::span<const double> squares) {
    norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
    return accepts(norm);
  };
  OuterGradient delta = encode_part(codec, key, judge, ContributionSample(size()), more);
  delta.norm = norm;
  return delta;
}

OuterGradient FragmentState::encode_part(const Codec& codec, const EncodeKey& key,
                                         const Judge& accepts, ContributionSample sample,
                                         std::span<const float> more) {
  ISTHMUS_CHECK(more.empty() || more.size() == anchor_.size(), more.size(), anchor_.size());
  fetch_local();
  std::vector<double> squares(tiles_of(size()));
  const StateWalk::Ranges touched = ranges({.local = StateUse::kRead,
                                            .anchor = StateUse::kRead,
                                            .momentum = {},
                                            .residual = StateUse::kWrite});
  std::optional<StateWalk> walk(std::in_place, size(), touched);
  const auto fill = [&](std::size_t begin, std::span<float> tile) {
    walk->at(begin);
    local_.read(begin, tile);
    const float* const anchor = anchor_.data() + begin;
    for (std::size_t i = 0; i < tile.size(); ++i) {
      tile[i] = anchor[i] - tile[i];
    }
    for (std::size_t i = 0; i < tile.size() && !more.empty(); ++i) {
      tile[i] += more[begin + i];
    }
    squares[begin / kTileValues] = sum_of_squares(tile);
  };
  OuterGradient delta;
  if (!feedback_) {
    delta.encoded = encode_tiles(codec, size(), fill, key, nullptr, &sample);
    delta.fit = accepts(squares);
  } else {
    // The norm comes first, since the residual moves on with the encoding.
    for_each_tile(size(), fill);
    delta.fit = accepts(squares);
    walk.emplace(size(), touched);
    delta.encoded =
        encode_tiles(codec, size(), fill, key, delta.fit ? &*feedback_ : nullptr, &sample);
  }
  delta.sample = std::move(sample);
  return delta;
}

void FragmentState::take_back(const Codec& codec, const Encoded& sent) {
  if (!feedback_) {
    return;
  }
  check_own_contribution(feedback_->take_back(codec, sent.bytes));
}

void FragmentState::keep_residual() {
  if (feedback_) {
    const std::span<const float> residual = feedback_->residual();
    kept_residual_.emplace(residual);
  }
}

bool FragmentState::recall_residual() {
  if (!kept_residual_) {
    return false;
  }
  feedback_->restore(kept_residual_->span());
  kept_residual_.reset();
  return true;
}

void FragmentState::forget_own_work() {
  merge(0);
  if (feedback_) feedback_->reset();
  kept_residual_.reset();
}

std::vector<float> FragmentState::beyond() const {
  std::vector<float> values(size());
  for_each([&](std::size_t begin, std::span<const float> anchor, std::span<const float> local) {
    for (std::size_t i = 0; i < local.size(); ++i) values[begin + i] = local[i] - anchor[i];
  });
  return values;
}

void FragmentState::add_to_local(std::span<const float> values) {
  ISTHMUS_CHECK(values.size() == size(), values.size(), size());
  change_local(true, [&](std::size_t begin, std::span<const float>, std::span<float> local) {
    for (std::size_t i = 0; i < local.size(); ++i) local[i] += values[begin + i];
  });
}

void FragmentState::fetch_local() const {
  for (const CanonicalRange& elements : elements_) inner_.read_values(elements);
}

void FragmentState::for_each(
    const std::function<void(std::size_t begin, std::span<const float> anchor,
                             std::span<const float> local)>& piece) const {
  fetch_local();
  StateWalk(size(), ranges({.local = StateUse::kRead, .anchor = StateUse::kRead}))
      .run([&](std::size_t first, std::size_t end) {
        local_.for_range(first, end, [&](std::size_t begin, std::span<float> local) {
          piece(begin, anchor().subspan(begin, local.size()), local);
        });
      });
}

void FragmentState::change_local(
    bool reads, const std::function<void(std::size_t begin, std::span<const float> anchor,
                                         std::span<float> local)>& piece) {
  if (reads) fetch_local();
  StateWalk(size(), ranges({.local = StateUse::kWrite, .anchor = StateUse::kRead}))
      .run([&](std::size_t first, std::size_t end) {
        local_.for_range(first, end, [&](std::size_t begin, std::span<float> local) {
          piece(begin, anchor_.span().subspan(begin, local.size()), local);
        });
      });
  for (const CanonicalRange& elements : elements_) inner_.wrote_values(elements);
}

void FragmentState::use_rates(const kernels::OuterStep& now) {
  ISTHMUS_CHECK(now.rule == optimizer_.rule && now.every == optimizer_.every, now.every);
  optimizer_ = now;
}

void FragmentState::step(std::span<const float> mean) {
  if (sums()) summed_rounds_ = (summed_rounds_ + 1) % optimizer_.every;
  StateWalk walk(
      size(),
      ranges(
          {.local = {}, .anchor = StateUse::kWrite, .momentum = StateUse::kWrite, .residual = {}}));
  walk.run([&](std::size_t begin, std::size_t end) {
    const auto part = [&](const StateArray& values) {
      return values.empty() ? values.span() : values.span().subspan(begin, end - begin);
    };
    const std::span<const float> mean_part = mean.subspan(begin, end - begin);
    if (optimizer_.every == 1) {
      kernels::outer_step(optimizer_, part(anchor_), mean_part, part(momentum_));
    } else {
      kernels::delayed_nesterov_step(optimizer_, summed_rounds_ == 0, part(anchor_), mean_part,
                                     part(momentum_), part(summed_));
    }
  });
}

void FragmentState::merge(float alpha) {
  if (alpha == 1) {
    return;
  }
  const float share = 1 - alpha;
  change_local(alpha != 0, [&](std::size_t, std::span<const float> anchor, std::span<float> local) {
    if (alpha == 0) {
      std::ranges::copy(anchor, local.begin());
      return;
    }
    for (std::size_t i = 0; i < local.size(); ++i) {
      local[i] = alpha * local[i] + share * anchor[i];
    }
  });
}

// A copy of the anchor, which only a lost contribution costs.
void FragmentState::step_and_rebase(std::span<const float> mean) {
  const StateArray before(anchor());
  step(mean);
  change_local(true, [&](std::size_t begin, std::span<const float> anchor, std::span<float> local) {
    for (std::size_t i = 0; i < local.size(); ++i) {
      local[i] += anchor[i] - before[begin + i];
    }
  });
}

void FragmentState::save(StateWriter& writer) const {
  writer.tensor(fmt::format("anchor/{}", fragment_.id.value()), anchor());
  if (has_momentum()) {
    writer.tensor(fmt::format("momentum/{}", fragment_.id.value()), momentum());
  }
  if (sums()) {
    writer.tensor(fmt::format("summed/{}", fragment_.id.value()), summed_.span());
    writer.integer(fmt::format("summed/{}/rounds", fragment_.id.value()), summed_rounds_);
  }
  if (feedback_) {
    writer.tensor(fmt::format("residual/{}", fragment_.id.value()), feedback_->residual());
  }
  if (kept_residual_) {
    writer.tensor(fmt::format("residual_kept/{}", fragment_.id.value()), kept_residual_->span());
  }
}

void FragmentState::load(StateReader& reader) {
  reader.tensor(fmt::format("anchor/{}", fragment_.id.value()), anchor());
  const std::string name = fmt::format("momentum/{}", fragment_.id.value());
  // A run that is resumed with momentum from a run without it starts the momentum from zero.
  if (has_momentum() && reader.contains(name)) {
    reader.tensor(name, momentum());
  }
  if (sums()) {
    reader.tensor(fmt::format("summed/{}", fragment_.id.value()), summed_.span());
    summed_rounds_ = saved_number(reader, fmt::format("summed/{}/rounds", fragment_.id.value()), 0,
                                  optimizer_.every - 1);
  }
  if (feedback_) {
    const StateArray residual = StateArray::unfilled(anchor_.size());
    saved_finite(reader, fmt::format("residual/{}", fragment_.id.value()), residual.span());
    feedback_->restore(residual.span());
    const std::string kept = fmt::format("residual_kept/{}", fragment_.id.value());
    if (reader.contains(kept)) {
      kept_residual_ = StateArray::unfilled(anchor_.size());
      saved_finite(reader, kept, kept_residual_->span());
    }
  }
}

void FragmentState::put_local(std::span<float> local) {
  ISTHMUS_CHECK(local.size() == size(), local.size(), size());
  local_ = {};
  local_.append(local);
}

FragmentMaker fragments_on_host(const FragmentedSettings& settings, InnerLoop& inner) {
  return [&inner, optimizer = settings.optimizer,
          feedback = settings.codec->error_feedback()](const Fragment& fragment) {
    return std::make_unique<FragmentState>(fragment, inner, optimizer, feedback);
  };
}

}  // namespace isthmus::outer
