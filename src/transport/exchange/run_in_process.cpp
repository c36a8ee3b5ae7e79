// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/run_in_process.h"

#include <fmt/format.h>

#include <exception>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/system_runtime.h"
#include "isthmus/errors.h"
#include "transport/wire/in_process_transport.h"

namespace isthmus {
namespace {

/// How long a worker that has finished serves the others; they finish together unless one hangs.
constexpr Duration kLeavePatience = std::chrono::hours(1);

/// The exception that came first in time: later ones mostly come from workers that lost that
/// worker.
class FirstFailure {
 public:
  explicit FirstFailure(Runtime& runtime) : queue_(runtime.make_wait_queue()) {}
  void record(const std::exception_ptr& failure) {
    queue_->update([&] { failure_ = failure_ ? failure_ : failure; });
  }
  void rethrow() const {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  std::unique_ptr<WaitQueue> queue_;
  std::exception_ptr failure_;
};

/// The terms with which the workers of one process start. Any thread.
class StartTable {
 public:
  explicit StartTable(Runtime& runtime) : queue_(runtime.make_wait_queue()) {}

  /// A worker counts once for each term: a method that is made again, from a saved state, may
  /// differ. THROWS: ConfigError for the first term that another worker has named with another
  /// value.
  void compare(WorkerId self, const StartTerms& terms) {
    std::string unlike;
    queue_->update([&] {
      for (const auto& [name, value] : terms) {
        Term& term = terms_.try_emplace(name, Term{self, value, {}}).first->second;
        if (term.named_by.insert(self).second && term.value != value && unlike.empty()) {
          unlike =
              fmt::format("worker {}: {} = {}: worker {} has {}; all workers of a run start alike",
                          self.value(), name, value, term.first.value(), term.value);
        }
      }
    });
    if (!unlike.empty()) throw ConfigError(unlike);
  }

 private:
  struct Term {
    WorkerId first;
    std::string value;
    std::set<WorkerId> named_by;
  };
  std::unique_ptr<WaitQueue> queue_;
  std::map<std::string, Term> terms_;
};

}  // namespace

void run_in_process(int workers, const std::function<void(WorkerContext&)>& body) {
  SystemRuntime runtime;
  StartTable starts(runtime);
  const auto compare = [&](WorkerId self, const StartTerms& terms) { starts.compare(self, terms); };
  run_in_process(workers, {.retry_interval = kNothingIsLost, .on_start = compare}, body);
}

void run_in_process(int workers, const PeerExchangeOptions& options,
                    const std::function<void(WorkerContext&)>& body) {
  if (workers < 1) {
    throw ConfigError(fmt::format("workers = {}: must be >= 1", workers));
  }
  SystemRuntime runtime;
  run_over(runtime, make_in_process_transports(runtime, workers), options, body);
}

void run_over(Runtime& runtime, const std::vector<std::unique_ptr<Transport>>& transports,
              const PeerExchangeOptions& options, const std::function<void(WorkerContext&)>& body) {
  const auto workers = static_cast<int>(transports.size());
  FirstFailure failure(runtime);
  const auto work = [&](int rank) {
    Transport& transport = *transports[static_cast<std::size_t>(rank)];
    try {
      PeerExchange exchange(transport, runtime, options);
      WorkerContext context{WorkerId(rank), workers, exchange, runtime};
      try {
        body(context);
        exchange.leave(kLeavePatience);
      } catch (...) {
        failure.record(std::current_exception());  // before the exchange closes and others fail
      }
    } catch (...) {  // no thread for the exchange
      failure.record(std::current_exception());
      transport.close();
    }
  };
  std::vector<std::unique_ptr<Task>> tasks;
  try {
    for (int rank = 0; rank < workers; ++rank) {
      tasks.push_back(runtime.spawn(fmt::format("worker {}", rank), [&work, rank] { work(rank); }));
    }
  } catch (...) {
    for (const std::unique_ptr<Transport>& transport : transports) {
      transport->close();
    }
    throw;
  }
  for (const std::unique_ptr<Task>& task : tasks) {
    task->join();
  }
  failure.rethrow();
}

}  // namespace isthmus
