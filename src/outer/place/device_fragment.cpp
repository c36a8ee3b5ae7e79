// SPDX-License-Identifier: Apache-2.0
#include "outer/place/device_fragment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/log.h"
#include "kernels/cuda/device_errors.h"
#include "kernels/cuda/outer_arithmetic.h"
#include "kernels/cuda/outer_step.h"
#include "outer/parts/settings.h"
#include "outer/place/device_encoder.h"
#include "outer/place/device_places.h"
#include "quant/codecs/error_feedback.h"

namespace isthmus::outer {
namespace {

DeviceFragmentArrays arrays_of(const kernels::OuterStep& optimizer, const Codec& codec) {
  return {.momentum = optimizer.rule != kernels::OuterStepRule::kSgd,
          .summed = optimizer.every > 1,
          .residual = codec.error_feedback()};
}

class DeviceFragment final : public OuterFragment, public AsyncFragment {
 public:
  /// encoder: co-owned by the worker's fragments.
  DeviceFragment(Fragment fragment, const kernels::OuterStep& optimizer,
                 std::span<const Parameter> parameters, cuda::ResidentValues& values,
                 std::shared_ptr<DeviceEncoder> encoder, KeptIn kept);
  ~DeviceFragment() override;
  DeviceFragment(const DeviceFragment&) = delete;
  DeviceFragment& operator=(const DeviceFragment&) = delete;

  [[nodiscard]] OuterGradient outer_gradient(const Codec& codec, const EncodeKey& key,
                                             const Accepts& accepts) override;
  void take_back(const Codec& codec, const Encoded& sent) override;
  void keep_residual() override;
  void forget_kept_residual() override { residual_is_kept_ = false; }
  bool recall_residual() override;
  void forget_own_work() override;
  [[nodiscard]] std::vector<float> beyond() const override;
  void add_to_local(std::span<const float> values) override;
  void use_rates(const kernels::OuterStep& now) override;
  void step(std::span<const float> mean) override;
  void merge(float alpha) override;
  void step_and_rebase(std::span<const float> mean) override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  [[nodiscard]] AsyncFragment* beside() override { return this; }
  void begin_gradient() override;
  [[nodiscard]] double gradient_norm() override { return norm_ = encoder_->norm(); }
  void begin_encoding(const EncodeKey& key, bool fit) override;
  [[nodiscard]] OuterGradient finish_encoding() override;
  void expect_anchor() override { static_cast<void>(anchor_on_device()); }
  void expect_step(std::span<const float> mean) override;
  [[nodiscard]] const Fragment& fragment() const override { return fragment_; }
  [[nodiscard]] std::span<const float> anchor() const override;

 private:
  /// A part of the fragment whose local values are contiguous.
  struct Piece {
    std::size_t begin = 0;  // in the fragment
    CanonicalRange elements;
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(elements.size()); }
  };
  [[nodiscard]] std::size_t size() const { return anchor_.size(); }
  [[nodiscard]] cuda::Stream& stream() const { return encoder_->stream(); }
  [[nodiscard]] float* local(const Piece& piece) const {
    return values_.device_values() + piece.elements.begin;
  }
  [[nodiscard]] std::string name_of(const char* what) const {
    return fmt::format("{}/{}", what, fragment_.id.value());
  }
  [[nodiscard]] float* anchor_on_device() const {
    return anchor_.bring(stream(), encoder_->anchor);
  }
  [[nodiscard]] float* residual_on_device() const {
    return residual_.bring(stream(), encoder_->residual);
  }
  /// `work` writes local values of a piece, on the stream, after the loop's queued work and before
  /// its later work.
  void change_local(const std::function<void(const Piece& piece)>& work);

  /// A copy on the host. Blocks.
  [[nodiscard]] std::vector<float> on_host(const KeptArray& array) const;
  [[nodiscard]] std::vector<float> local_on_host() const;

  Fragment fragment_;
  kernels::OuterStep optimizer_;
  cuda::ResidentValues& values_;
  std::shared_ptr<DeviceEncoder> encoder_;
  std::vector<Piece> pieces_;
  std::size_t elements_;
  KeptArray anchor_, momentum_, summed_, residual_, kept_residual_;  // empty: none
  std::int64_t summed_rounds_ = 0;
  bool residual_is_kept_ = false;
  double norm_ = 0;                    // of the outer gradient on its way,
  bool fit_ = false;                   // and whether it is to be counted
  mutable std::vector<float> mirror_;  // of an anchor on the device, once it is asked for
  mutable bool mirror_is_right_ = false;
};

DeviceFragment::DeviceFragment(Fragment fragment, const kernels::OuterStep& optimizer,
                               std::span<const Parameter> parameters, cuda::ResidentValues& values,
                               std::shared_ptr<DeviceEncoder> encoder, KeptIn kept)
    : fragment_(std::move(fragment)),
      optimizer_(optimizer),
      values_(values),
      encoder_(std::move(encoder)),
      elements_(static_cast<std::size_t>(fragment_.elements)),
      anchor_(kept, elements_),
      momentum_(kept, arrays_of(optimizer_, encoder_->codec()).momentum ? elements_ : 0),
      summed_(kept, arrays_of(optimizer_, encoder_->codec()).summed ? elements_ : 0),
      residual_(kept, arrays_of(optimizer_, encoder_->codec()).residual ? elements_ : 0),
      kept_residual_(kept, residual_.size()) {
  std::size_t begin = 0;
  for (const std::size_t i : fragment_.parameters) {
    const CanonicalRange elements = parameters[i].elements;
    if (elements.size() == 0) continue;
    if (!pieces_.empty() && pieces_.back().elements.end == elements.begin) {
      pieces_.back().elements.end = elements.end;
    } else {
      pieces_.push_back({begin, elements});
    }
    begin += static_cast<std::size_t>(elements.size());
  }
  ISTHMUS_CHECK(begin == elements_, begin, elements_);
  // All that may not fit is there before anything is queued for it.
  float* const zeros = encoder_->mean_place();
  cuda::fill_zero(stream(), zeros, size());
  momentum_.take(stream(), zeros, encoder_->momentum);
  summed_.take(stream(), zeros, encoder_->summed);
  residual_.take(stream(), zeros, encoder_->residual);
  encoder_->begin_after(values_.stream());
  for (const Piece& piece : pieces_) {
    cuda::copy<float>(stream(), zeros + piece.begin, local(piece), piece.size());
  }
  anchor_.take(stream(), zeros, encoder_->anchor);
  encoder_->go_before(values_.stream());
}

// The arrays are freed first, and queued work may still use them.
DeviceFragment::~DeviceFragment() {
  try {
    stream().synchronize();
  } catch (const cuda::DeviceLost&) {  // the code that has used the device reports it
  } catch (const std::exception& error) {
    log_warning("fragment {} on a device: {}", fragment_.id.value(), error.what());
  }
}

OuterGradient DeviceFragment::outer_gradient(const Codec& codec, const EncodeKey& key,
                                             const Accepts& accepts) {
  ISTHMUS_CHECK(codec.name() == encoder_->codec().name(), codec.name());
  begin_gradient();
  begin_encoding(key, accepts(gradient_norm()));
  return finish_encoding();
}

void DeviceFragment::begin_gradient() {
  const float* const anchor = anchor_on_device();
  encoder_->begin_after(values_.stream());
  for (const Piece& piece : pieces_) {
    cuda::outer_gradient(stream(), piece.size(), anchor + piece.begin, local(piece), nullptr,
                         encoder_->vector() + piece.begin);
  }
  encoder_->begin_norm(size());
}

void DeviceFragment::begin_encoding(const EncodeKey& key, bool fit) {
  fit_ = fit;
  encoder_->begin_encoding(key, fit ? residual_on_device() : nullptr);
}

OuterGradient DeviceFragment::finish_encoding() {
  auto [encoded, sample] = encoder_->finish_encoding();
  if (fit_) residual_.put_back(stream(), encoder_->residual);
  return {.encoded = std::move(encoded), .norm = norm_, .fit = fit_, .sample = std::move(sample)};
}

void DeviceFragment::expect_step(std::span<const float> mean) {
  static_cast<void>(encoder_->bring_mean(mean));
  static_cast<void>(momentum_.bring(stream(), encoder_->momentum));
  static_cast<void>(summed_.bring(stream(), encoder_->summed));
}

// By way of the host: a round that was lost with its work does not come often.
void DeviceFragment::take_back(const Codec& codec, const Encoded& sent) {
  if (residual_.empty()) return;
  ErrorFeedback feedback(size());
  feedback.restore(on_host(residual_));
  check_own_contribution(feedback.take_back(codec, sent.bytes));
  residual_.take(stream(), feedback.residual().data(), encoder_->residual);
  stream().synchronize();  // `feedback` ends here
}

void DeviceFragment::keep_residual() {
  if (residual_.empty()) return;
  const float* const now = residual_on_device();
  kept_residual_.take(stream(), now, encoder_->residual);
  residual_is_kept_ = true;
}

bool DeviceFragment::recall_residual() {
  if (!residual_is_kept_) return false;
  // Not by way of the place, where another fragment's may be in use.
  residual_.take(stream(), kept_residual_.data(), encoder_->residual);
  residual_is_kept_ = false;
  return true;
}

void DeviceFragment::forget_own_work() {
  merge(0);
  if (!residual_.empty()) {
    cuda::fill_zero(stream(), residual_on_device(), size());
    residual_.put_back(stream(), encoder_->residual);
  }
  residual_is_kept_ = false;
}

// These two by way of the host: a site that was cut off and comes back, once.
std::vector<float> DeviceFragment::beyond() const {
  std::vector<float> values = local_on_host();
  const std::span<const float> anchors = anchor();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= anchors[i];
  return values;
}

void DeviceFragment::add_to_local(std::span<const float> values) {
  ISTHMUS_CHECK(values.size() == size(), values.size(), size());
  std::vector<float> sums = local_on_host();
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  change_local([&](const Piece& piece) {
    cuda::copy<float>(stream(), local(piece), sums.data() + piece.begin, piece.size());
  });
  stream().synchronize();
}

void DeviceFragment::change_local(const std::function<void(const Piece& piece)>& work) {
  encoder_->begin_after(values_.stream());
  for (const Piece& piece : pieces_) work(piece);
  encoder_->go_before(values_.stream());
  for (const Piece& piece : pieces_) values_.wrote_device_values(piece.elements);
}

void DeviceFragment::use_rates(const kernels::OuterStep& now) {
  ISTHMUS_CHECK(now.rule == optimizer_.rule && now.every == optimizer_.every, now.every);
  optimizer_ = now;
}

void DeviceFragment::step(std::span<const float> mean) {
  ISTHMUS_CHECK(mean.size() == size(), mean.size(), size());
  const float* const delta = encoder_->bring_mean(mean);
  encoder_->forget_mean();
  mirror_is_right_ = false;
  float* const anchor = anchor_on_device();
  float* const momentum = momentum_.bring(stream(), encoder_->momentum);
  if (optimizer_.every == 1) {
    cuda::outer_step(stream(), optimizer_, size(), anchor, delta, momentum);
  } else {
    summed_rounds_ = (summed_rounds_ + 1) % optimizer_.every;
    cuda::delayed_nesterov_step(stream(), optimizer_, summed_rounds_ == 0, size(), anchor, delta,
                                momentum, summed_.bring(stream(), encoder_->summed));
    summed_.put_back(stream(), encoder_->summed);
  }
  momentum_.put_back(stream(), encoder_->momentum);
  anchor_.put_back(stream(), encoder_->anchor);
}

void DeviceFragment::merge(float alpha) {
  if (alpha == 1) return;
  const float* const anchor = anchor_on_device();
  change_local([&](const Piece& piece) {
    cuda::mix(stream(), piece.size(), alpha, anchor + piece.begin, local(piece));
  });
}

// By way of the host: a lost contribution may come where the device has no room left. The mean that
// `step` left in its place has been used by the time the old anchor comes there.
void DeviceFragment::step_and_rebase(std::span<const float> mean) {
  const std::vector<float> before = on_host(anchor_);
  step(mean);
  float* const old = encoder_->mean_place();
  cuda::copy(stream(), old, before.data(), size());
  const float* const anchor = anchor_on_device();
  change_local([&](const Piece& piece) {
    cuda::rebase(stream(), piece.size(), anchor + piece.begin, old + piece.begin, local(piece));
  });
  stream().synchronize();
}

std::span<const float> DeviceFragment::anchor() const {
  if (anchor_.on_host()) {
    stream().synchronize();
    return {anchor_.data(), size()};
  }
  mirror_.resize(size());
  if (!mirror_is_right_) {
    cuda::copy<float>(stream(), mirror_.data(), anchor_.data(), size());
    stream().synchronize();
    mirror_is_right_ = true;
  }
  return mirror_;
}

std::vector<float> DeviceFragment::on_host(const KeptArray& array) const {
  std::vector<float> host(array.size());
  cuda::copy<float>(stream(), host.data(), array.data(), host.size());
  stream().synchronize();
  return host;
}

std::vector<float> DeviceFragment::local_on_host() const {
  std::vector<float> host(size());
  encoder_->begin_after(values_.stream());
  for (const Piece& piece : pieces_) {
    cuda::copy<float>(stream(), host.data() + piece.begin, local(piece), piece.size());
  }
  stream().synchronize();
  return host;
}

void DeviceFragment::save(StateWriter& writer) const {
  writer.tensor(name_of("anchor"), anchor());
  if (!momentum_.empty()) writer.tensor(name_of("momentum"), on_host(momentum_));
  if (!summed_.empty()) {
    writer.tensor(name_of("summed"), on_host(summed_));
    writer.integer(name_of("summed") + "/rounds", summed_rounds_);
  }
  if (!residual_.empty()) writer.tensor(name_of("residual"), on_host(residual_));
  if (residual_is_kept_) writer.tensor(name_of("residual_kept"), on_host(kept_residual_));
}

void DeviceFragment::load(StateReader& reader) {
  std::vector<float> host(size());
  encoder_->forget_mean();
  const auto put = [&](KeptArray& array, DevicePlace& place) {
    array.take(stream(), host.data(), place);
    stream().synchronize();  // before `host` is written again
  };
  reader.tensor(name_of("anchor"), host);
  put(anchor_, encoder_->anchor);
  mirror_is_right_ = false;
  // A run that is resumed with momentum from a run without it starts the momentum from zero.
  if (!momentum_.empty() && reader.contains(name_of("momentum"))) {
    reader.tensor(name_of("momentum"), host);
    put(momentum_, encoder_->momentum);
  }
  if (!summed_.empty()) {
    reader.tensor(name_of("summed"), host);
    put(summed_, encoder_->summed);
    summed_rounds_ = saved_number(reader, name_of("summed") + "/rounds", 0, optimizer_.every - 1);
  }
  if (residual_.empty()) return;
  saved_finite(reader, name_of("residual"), host);
  put(residual_, encoder_->residual);
  if (reader.contains(name_of("residual_kept"))) {
    saved_finite(reader, name_of("residual_kept"), host);
    put(kept_residual_, encoder_->residual);
    residual_is_kept_ = true;
  }
}

}  // namespace

FragmentMaker fragments_on_device(const FragmentedSettings& settings,
                                  std::span<const Parameter> parameters,
                                  cuda::ResidentValues& values, KeptIn kept) {
  std::int64_t largest = 0;
  for (const Fragment& fragment : settings.fragments) {
    largest = std::max(largest, fragment.elements);
  }
  const auto encoder =
      std::make_shared<DeviceEncoder>(*settings.codec, static_cast<std::size_t>(largest), kept,
                                      arrays_of(settings.optimizer, *settings.codec));
  return [optimizer = settings.optimizer, parameters, &values, encoder,
          kept](const Fragment& fragment) {
    return std::make_unique<DeviceFragment>(fragment, optimizer, parameters, values, encoder, kept);
  };
}

}  // namespace isthmus::outer
