// SPDX-License-Identifier: Apache-2.0
#include "outer/device_fragment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/log.h"
#include "isthmus/errors.h"
#include "kernels/cuda/outer_arithmetic.h"
#include "kernels/cuda/outer_step.h"
#include "outer/device_encoder.h"
#include "outer/settings.h"
#include "quant/error_feedback.h"

namespace isthmus::outer {
namespace {

class DeviceFragment final : public OuterFragment {
 public:
  /// encoder: co-owned by the worker's fragments.
  DeviceFragment(Fragment fragment, const kernels::OuterStep& optimizer,
                 std::span<const Parameter> parameters, cuda::ResidentValues& values,
                 std::shared_ptr<DeviceEncoder> encoder);
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
  void step(std::span<const float> mean) override;
  void merge(float alpha) override;
  void step_and_rebase(std::span<const float> mean) override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;
  [[nodiscard]] const Fragment& fragment() const override { return fragment_; }
  [[nodiscard]] std::span<const float> anchor() const override;

 private:
  /// A stretch of the fragment whose local values are contiguous.
  struct Piece {
    std::size_t begin = 0;  // in the fragment
    CanonicalRange elements;
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(elements.size()); }
  };
  [[nodiscard]] std::size_t size() const { return anchor_.size(); }
  [[nodiscard]] cuda::Stream& stream() const { return values_.stream(); }
  [[nodiscard]] float* local(const Piece& piece) const {
    return values_.device_values() + piece.elements.begin;
  }
  [[nodiscard]] std::string name_of(const char* what) const {
    return fmt::format("{}/{}", what, fragment_.id.value());
  }

  /// A copy on the host. Blocks.
  [[nodiscard]] std::vector<float> on_host(const cuda::DeviceArray<float>& array) const;
  [[nodiscard]] std::vector<float> local_on_host() const;

  Fragment fragment_;
  kernels::OuterStep optimizer_;
  cuda::ResidentValues& values_;
  std::shared_ptr<DeviceEncoder> encoder_;
  std::vector<Piece> pieces_;
  cuda::DeviceArray<float> anchor_, momentum_, summed_, residual_, kept_residual_;  // empty: none
  std::int64_t summed_rounds_ = 0;
  bool residual_is_kept_ = false;
  mutable std::vector<float> mirror_;  // of the anchor, once it is asked for
  mutable bool mirror_is_right_ = false;
};

DeviceFragment::DeviceFragment(Fragment fragment, const kernels::OuterStep& optimizer,
                               std::span<const Parameter> parameters, cuda::ResidentValues& values,
                               std::shared_ptr<DeviceEncoder> encoder)
    : fragment_(std::move(fragment)),
      optimizer_(optimizer),
      values_(values),
      encoder_(std::move(encoder)) {
  std::size_t size = 0;
  for (const std::size_t i : fragment_.parameters) {
    const CanonicalRange elements = parameters[i].elements;
    if (elements.size() == 0) continue;
    if (!pieces_.empty() && pieces_.back().elements.end == elements.begin) {
      pieces_.back().elements.end = elements.end;
    } else {
      pieces_.push_back({size, elements});
    }
    size += static_cast<std::size_t>(elements.size());
  }
  const auto array = [&](bool wanted) { return cuda::DeviceArray<float>(wanted ? size : 0); };
  anchor_ = array(true);
  momentum_ = array(optimizer_.rule != kernels::OuterStepRule::kSgd);
  summed_ = array(optimizer_.every > 1);
  residual_ = array(encoder_->codec().error_feedback());
  kept_residual_ = array(!residual_.empty());
  // All that may not fit is there before anything is queued for it.
  for (const auto* const zeros : {&momentum_, &summed_, &residual_}) {
    cuda::fill_zero(stream(), zeros->data(), zeros->size());
  }
  for (const Piece& piece : pieces_) {
    cuda::copy<float>(stream(), anchor_.data() + piece.begin, local(piece), piece.size());
  }
}

// The arrays go first, and what is queued may use them.
DeviceFragment::~DeviceFragment() {
  try {
    stream().synchronize();
  } catch (const std::exception& error) {
    log_warning("fragment {} on a device: {}", fragment_.id.value(), error.what());
  }
}

OuterGradient DeviceFragment::outer_gradient(const Codec& codec, const EncodeKey& key,
                                             const Accepts& accepts) {
  ISTHMUS_CHECK(codec.name() == encoder_->codec().name(), codec.name());
  for (const Piece& piece : pieces_) {
    cuda::outer_gradient(stream(), piece.size(), anchor_.data() + piece.begin, local(piece),
                         nullptr, encoder_->vector() + piece.begin);
  }
  const double norm = encoder_->norm(stream(), size());
  const bool fit = accepts(norm);
  auto [encoded, sample] =
      encoder_->encode(stream(), size(), key, fit ? residual_.data() : nullptr);
  return {.encoded = std::move(encoded), .norm = norm, .fit = fit, .sample = std::move(sample)};
}

// By way of the host: a round that was lost with its work does not come often.
void DeviceFragment::take_back(const Codec& codec, const Encoded& sent) {
  if (residual_.empty()) return;
  ErrorFeedback feedback(size());
  feedback.restore(on_host(residual_));
  if (const auto taken = feedback.take_back(codec, sent.bytes); !taken) {
    throw RunError("own contribution in flight does not decode: " + taken.error().what);
  }
  cuda::copy(stream(), residual_.data(), feedback.residual().data(), size());
  stream().synchronize();  // `feedback` ends here
}

void DeviceFragment::keep_residual() {
  if (residual_.empty()) return;
  cuda::copy<float>(stream(), kept_residual_.data(), residual_.data(), size());
  residual_is_kept_ = true;
}

bool DeviceFragment::recall_residual() {
  if (!residual_is_kept_) return false;
  cuda::copy<float>(stream(), residual_.data(), kept_residual_.data(), size());
  residual_is_kept_ = false;
  return true;
}

void DeviceFragment::forget_own_work() {
  merge(0);
  cuda::fill_zero(stream(), residual_.data(), residual_.size());
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
  for (const Piece& piece : pieces_) {
    cuda::copy<float>(stream(), local(piece), sums.data() + piece.begin, piece.size());
    values_.wrote_device_values(piece.elements);
  }
  stream().synchronize();
}

void DeviceFragment::step(std::span<const float> mean) {
  ISTHMUS_CHECK(mean.size() == size(), mean.size(), size());
  float* const on_device = encoder_->vector();
  cuda::copy(stream(), on_device, mean.data(), size());
  stream().synchronize();  // `mean` is the caller's again
  mirror_is_right_ = false;
  if (optimizer_.every == 1) {
    cuda::outer_step(stream(), optimizer_, size(), anchor_.data(), on_device, momentum_.data());
    return;
  }
  summed_rounds_ = (summed_rounds_ + 1) % optimizer_.every;
  cuda::delayed_nesterov_step(stream(), optimizer_, summed_rounds_ == 0, size(), anchor_.data(),
                              on_device, momentum_.data(), summed_.data());
}

void DeviceFragment::merge(float alpha) {
  if (alpha == 1) return;
  for (const Piece& piece : pieces_) {
    cuda::mix(stream(), piece.size(), alpha, anchor_.data() + piece.begin, local(piece));
    values_.wrote_device_values(piece.elements);
  }
}

// By way of the host: a lost contribution may come where the device has no room left. The mean that
// `step` left in the shared vector has been used by the time the old anchor comes there.
void DeviceFragment::step_and_rebase(std::span<const float> mean) {
  const std::vector<float> before = on_host(anchor_);
  step(mean);
  float* const on_device = encoder_->vector();
  cuda::copy(stream(), on_device, before.data(), size());
  for (const Piece& piece : pieces_) {
    cuda::rebase(stream(), piece.size(), anchor_.data() + piece.begin, on_device + piece.begin,
                 local(piece));
    values_.wrote_device_values(piece.elements);
  }
  stream().synchronize();
}

std::span<const float> DeviceFragment::anchor() const {
  mirror_.resize(size());
  if (!mirror_is_right_) {
    cuda::copy<float>(stream(), mirror_.data(), anchor_.data(), size());
    stream().synchronize();
    mirror_is_right_ = true;
  }
  return mirror_;
}

std::vector<float> DeviceFragment::on_host(const cuda::DeviceArray<float>& array) const {
  std::vector<float> host(array.size());
  cuda::copy<float>(stream(), host.data(), array.data(), host.size());
  stream().synchronize();
  return host;
}

std::vector<float> DeviceFragment::local_on_host() const {
  std::vector<float> host(size());
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
  const auto put = [&](const cuda::DeviceArray<float>& array) {
    cuda::copy(stream(), array.data(), host.data(), size());
    stream().synchronize();  // before `host` is written again
  };
  reader.tensor(name_of("anchor"), host);
  put(anchor_);
  mirror_is_right_ = false;
  // A run that goes on with momentum where there was none starts it from zero.
  if (!momentum_.empty() && reader.contains(name_of("momentum"))) {
    reader.tensor(name_of("momentum"), host);
    put(momentum_);
  }
  if (!summed_.empty()) {
    reader.tensor(name_of("summed"), host);
    put(summed_);
    summed_rounds_ = saved_number(reader, name_of("summed") + "/rounds", 0, optimizer_.every - 1);
  }
  if (residual_.empty()) return;
  saved_finite(reader, name_of("residual"), host);
  put(residual_);
  if (reader.contains(name_of("residual_kept"))) {
    saved_finite(reader, name_of("residual_kept"), host);
    put(kept_residual_);
    residual_is_kept_ = true;
  }
}

}  // namespace

FragmentMaker fragments_on_device(const FragmentedSettings& settings,
                                  std::span<const Parameter> parameters,
                                  cuda::ResidentValues& values) {
  if (!cuda::DeviceCodec::has_kernels(*settings.codec)) {
    throw ConfigError(
        fmt::format("outer.placement = \"device\": outer.codec = \"{}\" has no kernels for a "
                    "device; take another codec, or outer.placement = \"host\"",
                    settings.codec->name()));
  }
  std::int64_t largest = 0;
  for (const Fragment& fragment : settings.fragments) {
    largest = std::max(largest, fragment.elements);
  }
  return [optimizer = settings.optimizer, parameters, &values,
          encoder = std::make_shared<DeviceEncoder>(
              *settings.codec, static_cast<std::size_t>(largest))](const Fragment& fragment) {
    return std::make_unique<DeviceFragment>(fragment, optimizer, parameters, values, encoder);
  };
}

}  // namespace isthmus::outer
