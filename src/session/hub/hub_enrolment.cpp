// SPDX-License-Identifier: Apache-2.0
#include "session/hub/hub_enrolment.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/log.h"

namespace isthmus::app {

HubEnrolment::HubEnrolment(Runtime& runtime, Answer answer)
    : answer_(std::move(answer)),
      queue_(runtime.make_wait_queue()),
      task_(runtime.spawn("enrolment", [this] { serve(); })) {}

HubEnrolment::~HubEnrolment() { stop(); }

void HubEnrolment::stop() {
  queue_->update([&] { ends_ = true; });
  task_.reset();
}

EnrolAnswer HubEnrolment::ask(const std::string& invitation, std::span<const std::byte> request) {
  EnrolAnswer answer;
  queue_->update([&] {
    const auto found = questions_.find(invitation);
    if (found != questions_.end() && std::ranges::equal(found->second.request, request)) {
      if (!found->second.answer) return;
      answer = *std::move(found->second.answer);
      questions_.erase(found);
      return;
    }
    questions_[invitation] = {
        .request = {request.begin(), request.end()}, .number = ++asked_, .answer = std::nullopt};
  });
  return answer;
}

void HubEnrolment::serve() {
  while (true) {
    std::string invitation;
    Question question;
    bool ends = false;
    (void)queue_->wait(
        [&] {
          ends = ends_;
          const Question* first = nullptr;
          for (const auto& [of, each] : questions_) {
            if (each.answer || (first != nullptr && first->number < each.number)) continue;
            first = &each;
            invitation = of;
          }
          if (first != nullptr) question = *first;
          return ends || first != nullptr;
        },
        kNever);
    if (ends) return;
    EnrolAnswer answer;
    try {
      answer = answer_(invitation, question.request);
    } catch (const std::exception& error) {  // of a full disk, say; the next one may be answered
      log_warning("a site that holds an invitation could not be let in: {}", error.what());
      answer = {.welcome = false, .why = fmt::format("the hub could not do it: {}", error.what())};
    }
    queue_->update([&] {
      const auto found = questions_.find(invitation);
      if (found != questions_.end() && found->second.number == question.number) {
        found->second.answer = std::move(answer);
      }
    });
  }
}

}  // namespace isthmus::app
