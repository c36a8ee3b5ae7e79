// SPDX-License-Identifier: Apache-2.0
// The hub's answers to those who hold an invitation, worked out by a task of its own: whom it lets
// in it writes to its disk first, under a lock that a command may hold, and its links wait for
// neither. Questions are answered in the order in which they come, of each invitation the last one.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "isthmus/runtime.h"
#include "transport/links/key_table.h"

namespace isthmus::app {

class HubEnrolment {
 public:
  using Answer =
      std::function<EnrolAnswer(const std::string& invitation, std::span<const std::byte> request)>;
  /// `answer`: by its own task, and may block; what it throws is a refusal, with the reason.
  /// Borrows the runtime.
  HubEnrolment(Runtime& runtime, Answer answer);
  /// As `stop`.
  ~HubEnrolment();
  HubEnrolment(const HubEnrolment&) = delete;
  HubEnrolment& operator=(const HubEnrolment&) = delete;

  /// RETURNS: the answer, once; until it is known one without a welcome or a reason. Any task.
  [[nodiscard]] EnrolAnswer ask(const std::string& invitation, std::span<const std::byte> request);
  /// Blocks until the question at hand has been answered; no other will be.
  void stop();

 private:
  void serve();

  struct Question {
    std::vector<std::byte> request;
    std::uint64_t number = 0;  // in the order in which they came
    std::optional<EnrolAnswer> answer;
  };
  const Answer answer_;
  std::unique_ptr<WaitQueue> queue_;
  // Under queue_'s lock:
  std::map<std::string, Question> questions_;  // by invitation
  std::uint64_t asked_ = 0;
  bool ends_ = false;
  std::unique_ptr<Task> task_;
};

}  // namespace isthmus::app
