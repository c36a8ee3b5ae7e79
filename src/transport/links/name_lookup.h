// SPDX-License-Identifier: Apache-2.0
// Lookup of host names by its own task: the system's lookup blocks, for many seconds if a name
// server is silent. A numeric address is known at once. One task asks.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/tcp/tcp_socket.h"

namespace isthmus {

class NameLookup {
 public:
  using Found = Expected<std::vector<TcpAddress>, std::string>;
  using LookUp = std::function<Found(const std::string& host, int port)>;

  /// `look_up`: as resolve_tcp, called by its own task.
  NameLookup(Runtime& runtime, LookUp look_up);
  /// Blocks until the current lookup is over.
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  /// Starts the lookup with number `place`, unless it is running or its result has not been taken.
  void ask(std::size_t place, const std::string& host, int port);
  /// Whether the requested lookup is not finished.
  [[nodiscard]] bool under_way(std::size_t place) const;
  /// The result, once.
  [[nodiscard]] std::optional<Found> take(std::size_t place);

 private:
  struct Question {
    std::size_t place = 0;
    std::string host;
    int port = 0;
  };
  void serve();

  const LookUp look_up_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  std::deque<Question> asked_;  // the first is being looked up
  std::map<std::size_t, Found> found_;
  bool ends_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus
