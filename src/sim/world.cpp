// SPDX-License-Identifier: Apache-2.0
#include "sim/world.h"

#include <utility>

#include "core/base/check.h"
#include "sim/scheduler.h"
#include "sim/wait_queue.h"

namespace isthmus {
namespace {

class SimTaskHandle final : public Task {
 public:
  SimTaskHandle(Scheduler& scheduler, std::shared_ptr<SimTask> task)
      : scheduler_(scheduler), task_(std::move(task)) {}
  ~SimTaskHandle() override { wait_for_end(); }
  void join() override {
    wait_for_end();
    if (task_->error) std::rethrow_exception(std::exchange(task_->error, nullptr));
  }

 private:
  void wait_for_end() {
    // After the run every task is done, and the world may be gone.
    if (task_->state != SimTask::State::kDone) scheduler_.join(*task_);
    if (task_->thread.joinable()) task_->thread.join();
  }

  Scheduler& scheduler_;
  std::shared_ptr<SimTask> task_;  // co-owned by the scheduler
};

}  // namespace

SimWorld::SimWorld(std::uint64_t seed, const SimWorldOptions& options)
    : scheduler_(std::make_unique<Scheduler>(seed, options)) {}
SimWorld::~SimWorld() = default;

void SimWorld::run(const std::function<void()>& body) { scheduler_->run(body); }

const Clock& SimWorld::clock() const { return *scheduler_; }

void SimWorld::sleep_until(TimePoint time) {
  scheduler_->require_outside_region("Runtime::sleep_until");
  scheduler_->sleep_until(time);
}

std::unique_ptr<Task> SimWorld::spawn(std::string name, std::function<void()> body) {
  scheduler_->require_outside_region("Runtime::spawn");
  const int group = scheduler_->current_group();
  return std::make_unique<SimTaskHandle>(
      *scheduler_, scheduler_->spawn(group, std::move(name), std::move(body)));
}

std::unique_ptr<Task> SimWorld::spawn_in_group(int group, std::string name,
                                               std::function<void()> body) {
  ISTHMUS_CHECK(group >= 0, group);
  scheduler_->require_outside_region("SimWorld::spawn_in_group");
  return std::make_unique<SimTaskHandle>(
      *scheduler_, scheduler_->spawn(group, std::move(name), std::move(body)));
}

std::unique_ptr<WaitQueue> SimWorld::make_wait_queue() {
  return std::make_unique<SimWaitQueue>(*scheduler_);
}

void SimWorld::compute(Duration duration, const std::function<void()>& work) {
  scheduler_->require_outside_region("Runtime::compute");
  scheduler_->compute(duration, work);
}

void SimWorld::at(TimePoint time, std::uint64_t kind, std::function<void()> action) {
  scheduler_->require_outside_region("SimWorld::at");
  scheduler_->at(time, kind, std::move(action));
}

void SimWorld::stop_group(int group, const std::exception_ptr& reason) {
  scheduler_->stop_group(group, reason);
}

void SimWorld::name_queue(WaitQueue& queue, std::string name) {
  dynamic_cast<SimWaitQueue&>(queue).set_name(std::move(name));
}

std::uint64_t SimWorld::seed() const { return scheduler_->seed(); }
std::uint64_t SimWorld::trace_hash() const { return scheduler_->trace_hash(); }
std::uint64_t SimWorld::switches() const { return scheduler_->switches(); }

}  // namespace isthmus
