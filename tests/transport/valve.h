// SPDX-License-Identifier: Apache-2.0
// What lies between two members on this machine, where a test wants to have a hand in it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/tcp/tcp_socket.h"
#include "transport/links/tcp/tcp_splice.h"

namespace isthmus::testing_support {

/// Stands before a member's port.
class Valve {
 public:
  Valve(Runtime& runtime, const std::string& endpoint)
      : to_(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))),
        listener_(TcpSocket::listen_at("127.0.0.1", 0)),
        task_(runtime.spawn("valve", [this, &runtime] { serve(runtime); })) {}
  ~Valve() {
    stop_.ring();
    task_.reset();
  }
  Valve(const Valve&) = delete;
  Valve& operator=(const Valve&) = delete;
  [[nodiscard]] std::string endpoint() const {
    return "tcp://127.0.0.1:" + std::to_string(listener_.port());
  }
  void shut(bool is) { shut_ = is; }
  /// One of the connections through here ends at both ends, with what is on its way over it.
  void cut_one() { ++cuts_; }
  [[nodiscard]] int cut() const { return cut_; }

 private:
  void serve(Runtime& runtime) {
    while (true) {
      std::vector<Waited> all = {{.descriptor = stop_.descriptor(), .to_read = true}};
      const bool open = !shut_;
      if (open) {
        all.push_back({.descriptor = listener_.descriptor(), .to_read = true});
        for (TcpSplice& each : through_) each.add_to(all);
      }
      wait_for_any(all, 0.02);
      if (all[0].ready) return;
      if (!open || shut_) continue;
      const TimePoint now = runtime.clock().now();
      through_.remove_if([&](TcpSplice& each) { return !each.advance(all, now); });
      while (cuts_ > cut_ && !through_.empty()) {  // the one that stands longest
        through_.pop_front();
        ++cut_;
      }
      bool failed = false;
      while (auto socket = listener_.accept(failed)) {
        auto there = TcpSocket::start_connect(resolve_tcp("127.0.0.1", to_)->front());
        ASSERT_TRUE(there);
        through_.emplace_back(*std::move(socket), *std::move(there), "", "",
                              std::chrono::minutes(1));
      }
    }
  }

  const int to_;
  TcpSocket listener_;
  Alarm stop_;
  std::atomic<bool> shut_{false};
  std::atomic<int> cuts_{0}, cut_{0};
  std::list<TcpSplice> through_;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus::testing_support
