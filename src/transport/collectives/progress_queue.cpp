// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/progress_queue.h"

#include <exception>
#include <utility>

namespace isthmus {

struct ProgressQueue::Started {
  std::function<void()> function;
  std::exception_ptr error;  // before `done`
  std::atomic<bool> done{false};
};

class ProgressQueue::StartedWork final : public Work {
 public:
  StartedWork(std::shared_ptr<WaitQueue> changed, std::shared_ptr<Started> started)
      : changed_(std::move(changed)), started_(std::move(started)) {}
  ~StartedWork() override { await(); }

  [[nodiscard]] bool done() const override {
    return started_->done.load(std::memory_order_acquire);
  }
  void wait() override {
    await();
    if (started_->error) std::rethrow_exception(std::exchange(started_->error, nullptr));
  }

 private:
  void await() {
    if (!done()) (void)changed_->wait([this] { return done(); }, kNever);
  }

  std::shared_ptr<WaitQueue> changed_;
  std::shared_ptr<Started> started_;
};

ProgressQueue::ProgressQueue(Runtime& runtime, std::string name)
    : runtime_(runtime), name_(std::move(name)), changed_(runtime.make_wait_queue()) {}

ProgressQueue::~ProgressQueue() {
  changed_->update([&] { closing_ = true; });
  task_.reset();
}

std::unique_ptr<Work> ProgressQueue::start(std::function<void()> function) {
  if (!task_) task_ = runtime_.spawn(name_, [this] { serve(); });
  auto started = std::make_shared<Started>();
  started->function = std::move(function);
  unfinished_.fetch_add(1, std::memory_order_relaxed);
  changed_->update([&] { waiting_.push_back(started); });
  return std::make_unique<StartedWork>(changed_, std::move(started));
}

void ProgressQueue::drain() {
  const auto idle = [&] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (!idle()) (void)changed_->wait(idle, kNever);
}

void ProgressQueue::serve() {
  while (true) {
    std::shared_ptr<Started> next;
    (void)changed_->wait(
        [&] {
          if (!waiting_.empty()) {
            next = std::move(waiting_.front());
            waiting_.pop_front();
          }
          return next != nullptr || closing_;
        },
        kNever);
    if (!next) return;
    try {
      next->function();
    } catch (...) {
      next->error = std::current_exception();
    }
    next->function = nullptr;  // objects that it holds are destroyed before its end is told
    changed_->update([&] {
      next->done.store(true, std::memory_order_release);
      unfinished_.fetch_sub(1, std::memory_order_release);
    });
  }
}

}  // namespace isthmus
