// SPDX-License-Identifier: Apache-2.0
#include "plan/run_program.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "core/base/check.h"
#include "plan/prediction.h"
#include "transport/exchange/reduction.h"

namespace isthmus {
namespace {

using ActKind = ProgramAct::Kind;

/// Place of `value` in `values`, added when it is new.
template <typename Value>
int place_of(std::vector<Value>& values, const Value& value) {
  const auto found = std::ranges::find(values, value);
  const auto place = found - values.begin();
  if (found == values.end()) values.push_back(value);
  return static_cast<int>(place);
}

/// The acts of the step under way; a finished step becomes one of the program's bodies.
class Recorder {
 public:
  void act(ActKind kind, double share, int which = 0) {
    // Of several moments to stand by for without anything between, the last one counts.
    const bool again =
        kind == ActKind::kSleep && !body_.empty() && body_.back().kind == ActKind::kSleep;
    if (again) body_.pop_back();
    body_.push_back({kind, share, which});
  }
  void begin(const RoundShape& shape) {
    act(ActKind::kBegin, 0, place_of(program.shapes, shape));
    ++begun_;
  }
  void wait(std::int64_t round) { act(ActKind::kWait, 0, static_cast<int>(begun_ - 1 - round)); }
  void end_step() { program.steps.push_back(place_of(program.bodies, std::exchange(body_, {}))); }
  [[nodiscard]] std::int64_t begun() const { return begun_; }

  RunProgram program;

 private:
  std::vector<ProgramAct> body_;
  std::int64_t begun_ = 0;
};

/// Learns nothing. Gradients and means are ones, so that variances stay above zero and nothing is
/// masked. Gradients become final as the clock of `simulate` announces them: from the last tensor
/// to the first, forward a third and backward by size.
class RecordedLoop final : public InnerLoop {
 public:
  RecordedLoop(std::span<const Parameter> parameters, Recorder& recorder) : recorder_(recorder) {
    for (const Parameter& parameter : parameters) {
      values_.emplace_back(static_cast<std::size_t>(parameter.elements.size()), 0.0F);
      parameters_.push_back(parameter);
      parameters_.back().values = values_.back();
      total_ += parameter.elements.size();
    }
  }
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex) override {
    recorder_.act(ActKind::kStep, 1);
    return {.tokens = 1};
  }
  InnerStep gradients(StepIndex, const GradientReady& on_ready) override {
    for (std::vector<float>& gradient : lazily(gradients_)) std::ranges::fill(gradient, 1.0F);
    recorder_.act(ActKind::kCompute, kForwardShare);
    std::int64_t done = 0;
    for (std::size_t i = on_ready ? parameters_.size() : 0; i-- > 0;) {
      done += parameters_[i].elements.size();
      const double backward = static_cast<double>(done) / static_cast<double>(total_);
      recorder_.act(ActKind::kSleep, kForwardShare + (1 - kForwardShare) * backward);
      on_ready(i);
    }
    recorder_.act(ActKind::kSleep, 1);
    return {.tokens = 1};
  }
  [[nodiscard]] std::span<float> gradient(std::size_t i) override {
    return lazily(gradients_).at(i);
  }
  double apply_gradients(StepIndex) override {
    recorder_.act(ActKind::kCompute, 0);
    return 1;
  }
  InnerStep train_loss(StepIndex t, SampleShare, const ParameterSource&) override {
    // A step's first share takes the whole of its time.
    t == loss_step_ ? recorder_.act(ActKind::kCompute, 0) : recorder_.act(ActKind::kCompute, 1);
    loss_step_ = t;
    return {.tokens = 1};
  }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0; }
  [[nodiscard]] AdamSettings adam_settings() const override { return {}; }
  [[nodiscard]] AdamMoments adam_moments(std::size_t i) override {
    return {lazily(first_).at(i), lazily(second_).at(i)};
  }
  void reset_optimizer() override {}

 private:
  using Tensors = std::vector<std::vector<float>>;
  Tensors& lazily(Tensors& tensors) {
    if (tensors.empty()) {
      for (const auto& values : values_) tensors.emplace_back(values.size(), 1.0F);
    }
    return tensors;
  }

  Recorder& recorder_;
  Tensors values_;
  Tensors gradients_, first_, second_;
  std::vector<Parameter> parameters_;
  std::int64_t total_ = 0;
  StepIndex loss_step_;
};

/// Answers at once, as if every member had contributed what this one has.
class RecordedExchange final : public Exchange {
 public:
  RecordedExchange(const ProgramInput& input, Recorder& recorder)
      : members_(input.workers), chunk_bytes_(input.chunk_bytes), recorder_(recorder) {}
  [[nodiscard]] WorkerId self() const override {
    return WorkerId(members_ - 1);
  }  // 0 also writes logs
  [[nodiscard]] int members() const override { return members_; }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return encode_key(id, 0); }

  Ticket begin(Contribution contribution) override {
    ISTHMUS_CHECK(contribution.weight > 0, contribution.id.sent.value());
    const ReductionKind kind = resolve_reduction(contribution.kind, *contribution.codec, members_);
    const std::size_t values = contribution.encoded.values;
    const ReductionPlan plan =
        make_reduction_plan(*contribution.codec, values, members_, kind, {}, chunk_bytes_);
    RoundShape shape{.fragment = contribution.id.fragment.value(),
                     .commits = contribution.commit,
                     .all_to_all = plan.all_to_all(),
                     .parts = {}};
    for (const Part& part : plan.parts) {
      shape.parts.push_back({part.owner.value(), part.bytes});
    }
    open_[contribution.id] = {recorder_.begun(), kind, std::move(contribution.encoded)};
    recorder_.begin(shape);
    return {contribution.id};
  }
  [[nodiscard]] bool poll(const Ticket&) override { return true; }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket, Duration) override {
    Open open = std::move(open_.extract(ticket.id).mapped());
    recorder_.wait(open.number);
    Reduced reduced;
    for (int m = 0; m < members_; ++m) reduced.contributors.emplace_back(m);
    if (open.kind == ReductionKind::kCollect) {
      reduced.contributions.assign(reduced.contributors.size(), open.encoded);
    } else {
      reduced.values.assign(open.encoded.values, 1.0F);
    }
    return reduced;
  }
  [[nodiscard]] ByteCounts bytes() const override { return {}; }

 private:
  struct Open {
    std::int64_t number = 0;
    ReductionKind kind = ReductionKind::kGather;
    Encoded encoded;
  };
  int members_;
  std::size_t chunk_bytes_;
  Recorder& recorder_;
  std::map<SyncId, Open> open_;
};

}  // namespace

std::optional<std::string> retiming_obstacle(std::string_view method, const OuterOptions& options) {
  if (method == "1bit-adam" && !options.one_bit_adam.freeze) {
    return "the end of its warm-up was found from the gradients, and with it what it sends: set "
           "outer.freeze";
  }
  if (options.late == LateRound::kSlip) {
    return "outer.late = \"slip\": after which step a result is applied, and with it what is "
           "learned, depends on the links";
  }
  for (const MethodInfo& info : methods()) {
    if (info.name != method || !info.by_arrival) continue;
    return "which contributions a merge holds, and with it what is learned, depends on the links";
  }
  return std::nullopt;
}

RunProgram record_program(const ProgramInput& input) {
  ISTHMUS_CHECK(input.workers >= 1, input.workers);
  Recorder recorder;
  recorder.program.workers = input.workers;
  RecordedLoop loop(input.parameters, recorder);
  RecordedExchange exchange(input, recorder);
  const std::unique_ptr<OuterStrategy> strategy =
      make_outer_strategy(input.method, input.options, loop, exchange);
  for (std::int64_t t = 1; t <= input.steps; ++t) {
    (void)strategy->step();
    if (t == input.steps) (void)strategy->finish();
    recorder.end_step();
  }
  return std::move(recorder.program);
}

}  // namespace isthmus
