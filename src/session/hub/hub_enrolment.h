// SPDX-License-Identifier: Apache-2.0
// The hub's answers to holders of an invitation, computed by its own task: before a key is admitted
// it is written to disk, under a lock that a command may hold, and the hub's links must not wait
// for either. Requests are answered in order of arrival, only the last one of each invitation.
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
  /// `answer`: called by its own task, may block; an exception is a refusal with its text as the
  /// reason. Borrows the runtime.
  HubEnrolment(Runtime& runtime, Answer answer);
  /// As `stop`.
  ~HubEnrolment();
  HubEnrolment(const HubEnrolment&) = delete;
  HubEnrolment& operator=(const HubEnrolment&) = delete;

  /// RETURNS: the answer, once; before it is known, an answer without a welcome or a reason. Any
  /// task.
  [[nodiscard]] EnrolAnswer ask(const std::string& invitation, std::span<const std::byte> request);
  /// Blocks until the current request has been answered; later ones are not answered.
  void stop();

 private:
  void serve();

  struct Question {
    std::vector<std::byte> request;
    std::uint64_t number = 0;  // in order of arrival
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
