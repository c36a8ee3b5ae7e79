// SPDX-License-Identifier: Apache-2.0
#include "transport/links/name_lookup.h"

#include <algorithm>
#include <utility>

namespace isthmus {

NameLookup::NameLookup(Runtime& runtime, LookUp look_up)
    : look_up_(std::move(look_up)),
      queue_(runtime.make_wait_queue()),
      task_(runtime.spawn("lookup of names", [this] { serve(); })) {}

NameLookup::~NameLookup() {
  queue_->update([&] { ends_ = true; });
  task_.reset();
}

void NameLookup::ask(std::size_t place, const std::string& host, int port) {
  if (is_numeric_host(host)) {
    Found found = look_up_(host, port);
    queue_->update([&] { found_.insert_or_assign(place, std::move(found)); });
    return;
  }
  queue_->update([&] {
    if (std::ranges::find(asked_, place, &Question::place) != asked_.end() ||
        found_.contains(place)) {
      return;
    }
    asked_.push_back({.place = place, .host = host, .port = port});
  });
}

bool NameLookup::under_way(std::size_t place) const {
  bool asked = false;
  queue_->update(
      [&] { asked = std::ranges::find(asked_, place, &Question::place) != asked_.end(); });
  return asked;
}

std::optional<NameLookup::Found> NameLookup::take(std::size_t place) {
  std::optional<Found> found;
  queue_->update([&] {
    if (auto node = found_.extract(place)) found = std::move(node.mapped());
  });
  return found;
}

void NameLookup::serve() {
  while (true) {
    Question question;
    bool ends = false;
    (void)queue_->wait(
        [&] {
          ends = ends_;
          if (!asked_.empty()) question = asked_.front();
          return ends || !asked_.empty();
        },
        kNever);
    if (ends) return;
    Found found = look_up_(question.host, question.port);
    queue_->update([&] {
      asked_.pop_front();
      found_.insert_or_assign(question.place, std::move(found));
    });
  }
}

}  // namespace isthmus
