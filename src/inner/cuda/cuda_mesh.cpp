// SPDX-License-Identifier: Apache-2.0
#include "inner/cuda/cuda_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/check.h"
#include "core/base/log.h"
#include "inner/cuda/cuda_loop_memory.h"
#include "inner/cuda/cuda_mesh_model.h"
#include "inner/mesh/training_step.h"
#include "inner/model/samples.h"
#include "isthmus/errors.h"
#include "kernels/cuda/device_errors.h"

namespace isthmus {
namespace {

// Of the ranks' weights, which one pass reads: far less than a step's share of the time.
constexpr std::int64_t kStepsBetweenChecks = 64;

const LanguageModelOptions& checked(const LanguageModelOptions& options,
                                    const CudaMeshOptions& mesh) {
  check_cuda_options(options);
  static_cast<void>(checked_options(options));
  ISTHMUS_CHECK(static_cast<int>(mesh.devices.size()) == options.mesh.dp, mesh.devices.size(),
                options.mesh.dp);
  return options;
}

}  // namespace

/// A step's batch, read once for all ranks, which ask for it at the same time, and read ahead for
/// the next step. The batches of the last two steps are kept: a rank that asks for step t + 2 has
/// met all others in t + 1.
class CudaMesh::Batches {
 public:
  Batches(BatchProvider provider, int ranks) : provider_(std::move(provider)), ranks_(ranks) {}

  [[nodiscard]] TokenBatch share(StepIndex t, int rank) {
    const std::lock_guard lock(mutex_);
    const Step& step = at(t);
    const std::int64_t share = step.batch.sequences / ranks_;
    return samples_of(step.batch, rank * share, share);
  }
  [[nodiscard]] std::int64_t targets(StepIndex t) {
    const std::lock_guard lock(mutex_);
    return at(t).targets;
  }

 private:
  struct Step {
    std::optional<std::int64_t> index;
    std::vector<std::int32_t> inputs, all_targets;
    TokenBatch batch;
    std::int64_t targets = 0;  // that count
  };
  const Step& at(StepIndex t) {
    Step& step = steps_[static_cast<std::size_t>(t.value() % 2)];
    if (step.index == t.value()) return step;
    step.index.reset();
    const TokenBatch batch = provider_(t);
    ISTHMUS_CHECK(batch.sequences % ranks_ == 0, batch.sequences, ranks_);
    step.inputs.assign(batch.inputs.begin(), batch.inputs.end());
    step.all_targets.assign(batch.targets.begin(), batch.targets.end());
    step.batch = {step.inputs, step.all_targets, batch.sequences, batch.length};
    step.targets = counted_targets(step.batch);
    step.index = t.value();
    return step;
  }

  const BatchProvider provider_;
  const int ranks_;
  std::mutex mutex_;
  std::array<Step, 2> steps_;  // under mutex_, except for arrays that `share` has handed out
};

/// One rank's loop and its way to the others. Made and used on the rank's device.
class CudaMesh::Peer final : public CudaPeers {
 public:
  Peer(int index, int device, Batches& batches, Communicator& world, const DeviceSums& sums)
      : index_(index),
        batches_(batches),
        world_(world),
        group_(world.split(0, index), device, sums) {}

  void make_loop(const LanguageModelOptions& options, const CudaLoopSettings& settings) {
    loop_.emplace(
        options, [this](StepIndex t) { return batches_.share(t, index_); }, settings, this);
  }

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] CudaLoop& loop() { return *loop_; }

  [[nodiscard]] std::int64_t targets(StepIndex t) override { return batches_.targets(t); }
  void sum_on_device(std::span<const CudaBucket> buckets) override { group_.sum(buckets); }
  void sum(std::span<double> values) override {
    world_.all_reduce({values.data(), std::ssize(values), Dtype::kF64}, Reduce::kSum);
  }

 private:
  const int index_;
  Batches& batches_;
  Communicator& world_;
  CudaGroup group_;
  std::optional<CudaLoop> loop_;
};

CudaMesh::CudaMesh(const LanguageModelOptions& options, BatchProvider batches,
                   const CudaMeshOptions& mesh)
    : batches_(std::make_unique<Batches>(std::move(batches), checked(options, mesh).mesh.dp)),
      team_(options.mesh, mesh.devices, options.patience),
      ranks_(team_.size()) {
  team_.run([&](std::size_t i) {
    ranks_[i] = std::make_unique<Peer>(static_cast<int>(i), team_.device(i), *batches_,
                                       team_.world(i), mesh.sums);
    ranks_[i]->make_loop(cuda_rank_options(options), mesh.loop);
  });
}

// NCCL's ends wait for one another, so they come side by side, each on its device.
CudaMesh::~CudaMesh() {
  try {
    team_.run([&](std::size_t i) { ranks_[i].reset(); });
  } catch (const cuda::DeviceLost&) {  // which has ended the mesh
  } catch (const std::exception& error) {
    log_warning("a mesh of devices ends: {}", error.what());
  }
}

CudaLoop& CudaMesh::first() const { return ranks_.front()->loop(); }

CudaLoop& CudaMesh::loop_of(int rank) { return ranks_[static_cast<std::size_t>(rank)]->loop(); }

void CudaMesh::run(const std::function<void(Peer&)>& body) {
  team_.run([&](std::size_t i) { body(*ranks_[i]); });
}

std::span<const Parameter> CudaMesh::parameters() const { return first().parameters(); }

void CudaMesh::read_values(CanonicalRange elements) { first().read_values(elements); }

void CudaMesh::wrote_values(CanonicalRange elements) {
  first().wrote_values(elements);
  keep_written(elements);
}

void CudaMesh::read_moments(CanonicalRange elements) { first().read_moments(elements); }

void CudaMesh::wrote_moments(CanonicalRange elements) {
  first().wrote_moments(elements);
  moments_written_ = moments_written_ || elements.size() > 0;
}

float* CudaMesh::device_values() { return first().device_values(); }

cuda::Stream& CudaMesh::stream() { return first().stream(); }

void CudaMesh::wrote_device_values(CanonicalRange elements) {
  first().wrote_device_values(elements);
  keep_written(elements);
}

void CudaMesh::keep_written(CanonicalRange elements) {
  if (written_.size() > 0 && elements.size() > 0) {
    elements = {std::min(written_.begin, elements.begin), std::max(written_.end, elements.end)};
  }
  if (elements.size() > 0) written_ = elements;
}

bool CudaMesh::go_beside(cuda::OverlapHooks*) { return false; }

float* CudaMesh::device_gradients() { return first().device_gradients(); }

void CudaMesh::keep_gradients_on_device(bool keep) { first().keep_gradients_on_device(keep); }

float* CudaMesh::device_moment(int index) { return first().device_moment(index); }

void CudaMesh::wrote_device_moments() {
  first().wrote_device_moments();
  moments_written_ = true;
}

// Blocks until the others have the values: the first rank's next update writes over them.
void CudaMesh::hand_out() {
  const CanonicalRange range = std::exchange(written_, {0, 0});
  if (range.size() == 0) return;
  first().stream().synchronize();
  run([&](Peer& rank) {
    if (rank.index() == 0) return;
    CudaLoop& loop = rank.loop();
    cuda::copy<float>(loop.stream(), loop.device_values() + range.begin,
                      first().device_values() + range.begin,
                      static_cast<std::size_t>(range.size()));
    loop.wrote_device_values(range);
    loop.stream().synchronize();
  });
}

void CudaMesh::hand_out_moments() {
  if (!std::exchange(moments_written_, false)) return;
  first().settle_moments();
  run([&](Peer& rank) {
    if (rank.index() > 0) rank.loop().take_optimizer(first());
  });
}

// A loss that is not finite is so on all ranks, which then still agree: it does not end the mesh.
InnerStep CudaMesh::step_on_all(StepIndex t, const std::function<InnerStep(CudaLoop&)>& part) {
  hand_out();
  std::vector<InnerStep> steps(ranks_.size());
  std::vector<std::exception_ptr> failures(ranks_.size());
  run([&](Peer& rank) {
    const auto i = static_cast<std::size_t>(rank.index());
    try {
      steps[i] = part(rank.loop());
    } catch (const RunError&) {
      failures[i] = std::current_exception();
    }
  });
  if (failures.front()) std::rethrow_exception(failures.front());
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (!failures[i] && steps[i].grad_norm == steps.front().grad_norm) continue;
    throw RunError(fmt::format(
        "step {}: rank {} of the mesh, on cuda:{}, has another sum of the gradients than rank 0, "
        "on cuda:{} (norms {} and {}), so their weights differ now; go on from the newest "
        "checkpoint with parallel.communicators = \"threads\"",
        t.value(), i, team_.device(i), team_.device(0), steps[i].grad_norm,
        steps.front().grad_norm));
  }
  return steps.front();
}

InnerStep CudaMesh::train_step(StepIndex t) {
  static_cast<void>(batches_->targets(t));  // a read that fails ends no rank
  hand_out_moments();
  const InnerStep step = step_on_all(t, [&](CudaLoop& loop) { return loop.train_step(t); });
  if (t.value() % kStepsBetweenChecks == 0) check_weights(t);
  return step;
}

void CudaMesh::check_weights(StepIndex t) {
  std::vector<double> squares(ranks_.size());
  run([&](Peer& rank) {
    squares[static_cast<std::size_t>(rank.index())] = rank.loop().squares_of_values();
  });
  for (std::size_t i = 1; i < squares.size(); ++i) {
    if (squares[i] == squares.front()) continue;
    throw RunError(fmt::format(
        "step {}: rank {} of the mesh, on cuda:{}, has other weights than rank 0, on cuda:{}: an "
        "update had other bits there; go on from the newest checkpoint with the cpu, with devices "
        "of one kind, or with dp = 1",
        t.value(), i, team_.device(i), team_.device(0)));
  }
}

InnerStep CudaMesh::gradients(StepIndex t, const GradientReady& on_ready) {
  static_cast<void>(batches_->targets(t));
  CudaLoop& own = first();
  const InnerStep step = step_on_all(
      t, [&](CudaLoop& loop) { return &loop == &own ? loop.gradients(t, {}) : loop.pass(t); });
  for (std::size_t i = parameters().size(); on_ready && i-- > 0;) on_ready(i);
  return step;
}

std::span<float> CudaMesh::gradient(std::size_t parameter) { return first().gradient(parameter); }

double CudaMesh::apply_gradients(StepIndex t) {
  hand_out_moments();
  const float* const gradients = gradient(0).data();
  return step_on_all(t,
                     [&](CudaLoop& loop) {
                       return InnerStep{.grad_norm = loop.apply_gradients(t, gradients)};
                     })
      .grad_norm;
}

double CudaMesh::loss(const TokenBatch& batch, const ParameterSource& source) {
  return first().loss(batch, source);
}

double CudaMesh::learning_rate(StepIndex t) const { return first().learning_rate(t); }

AdamSettings CudaMesh::adam_settings() const { return first().adam_settings(); }

AdamMoments CudaMesh::adam_moments(std::size_t parameter) {
  return first().adam_moments(parameter);
}

void CudaMesh::reset_optimizer() {
  run([](Peer& rank) { rank.loop().reset_optimizer(); });
  moments_written_ = false;
}

void CudaMesh::save(StateWriter& writer) const { first().save(writer); }

void CudaMesh::load(StateReader& reader) {
  first().load(reader);
  moments_written_ = true;
  hand_out_moments();
}

std::unique_ptr<InnerLoop> make_cuda_mesh(const LanguageModelOptions& options,
                                          BatchProvider batches, const CudaMeshOptions& mesh) {
  if (options.mesh.tp * options.mesh.pp > 1) {
    return make_cuda_mesh_of_shares(options, std::move(batches), mesh);
  }
  return std::make_unique<CudaMesh>(options, std::move(batches), mesh);
}

}  // namespace isthmus
