// SPDX-License-Identifier: Apache-2.0
// What a sync costs the training thread: Delta = anchor - local, its norm and its encoding
// (FragmentState::outer_gradient), beside a bare copy of Delta, which is what handing the
// encoding to another thread would cost instead; and, once the mean is back, its agreement with
// this contribution (ContributionSample::cosine). One thread, from memory; a JSON line a codec:
//   bench_sync [values [codec ...]]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/codec.h"
#include "isthmus/inner_loop.h"
#include "outer/parts/fragment_state.h"

namespace isthmus {
namespace {

constexpr int kRepetitions = 7;

double best_ms(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  for (int i = 0; i < kRepetitions; ++i) {
    const Clock::time_point begin = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  return best;
}

/// One tensor of values that nobody trains.
class StandingLoop final : public InnerLoop {
 public:
  explicit StandingLoop(std::span<float> values)
      : parameters_{{.name = "w",
                     .layer = 0,
                     .shape = {static_cast<std::int64_t>(values.size())},
                     .elements = {0, static_cast<std::int64_t>(values.size())},
                     .values = values}} {}
  [[nodiscard]] std::span<const Parameter> parameters() const override { return parameters_; }
  InnerStep train_step(StepIndex) override { return {}; }
  [[nodiscard]] double learning_rate(StepIndex) const override { return 0; }

 private:
  std::vector<Parameter> parameters_;
};

void measure(const std::string& spelling, std::vector<float>& local) {
  const auto codec = make_codec(spelling);
  const auto size = static_cast<std::int64_t>(local.size());
  StandingLoop loop(local);
  outer::FragmentState state({.id = FragmentId(0), .parameters = {0}, .elements = size}, loop, {},
                             codec->error_feedback());
  for (std::size_t i = 0; i < local.size(); ++i) {
    local[i] += 1e-3f * static_cast<float>(static_cast<int>(i * 2654435761u >> 16) % 1000 - 500);
  }
  const auto encode = [&] { return state.outer_gradient(*codec, {}, [](double) { return true; }); };
  const double fused = best_ms([&] { static_cast<void>(encode()); });
  std::vector<float> copy(local.size());
  const double snapshot = best_ms([&] {
    const std::span<const float> anchor = state.anchor();
    for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = anchor[i] - local[i];
  });
  const outer::OuterGradient delta = encode();
  const double agreement = best_ms([&] { static_cast<void>(delta.sample.cosine(copy)); });
  fmt::print(
      R"({{"bench":"sync","codec":"{}","values":{},"delta_encode_ms":{:.3f},"delta_copy_ms":{:.3f},)"
      R"("agreement_ms":{:.3f},"delta_encode_gb_s":{:.2f}}})"
      "\n",
      codec->name(), local.size(), fused, snapshot, agreement,
      8 * static_cast<double>(local.size()) / fused / 1e6);
}

}  // namespace
}  // namespace isthmus

int main(int argc, char** argv) {
  const std::size_t values = argc > 1 ? std::stoull(argv[1]) : std::size_t{9'000'000};
  std::vector<std::string> codecs(argv + std::min(argc, 2), argv + argc);
  if (codecs.empty()) {
    codecs = {"fp32", "bf16", "int8", "fp4-e2m1", "fp4-e3m0", "1bit:4096:ef", "topk:64"};
  }
  std::vector<float> local(values);
  for (const std::string& codec : codecs) isthmus::measure(codec, local);
}
