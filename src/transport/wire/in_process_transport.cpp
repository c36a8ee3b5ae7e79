// SPDX-License-Identifier: Apache-2.0
#include "transport/wire/in_process_transport.h"

#include <cstddef>
#include <utility>

#include "core/base/check.h"
#include "transport/wire/mailbox.h"

namespace isthmus {
namespace {

using Mailboxes = std::vector<std::unique_ptr<Mailbox>>;

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(WorkerId self, std::shared_ptr<const Mailboxes> boxes)
      : self_(self), boxes_(std::move(boxes)) {}
  ~InProcessTransport() override { close_boxes(); }

  [[nodiscard]] WorkerId self() const override { return self_; }
  [[nodiscard]] int size() const override { return static_cast<int>(boxes_->size()); }

  void send(WorkerId to, FrameBytes frame) override {
    ISTHMUS_CHECK(to != self_, to.value());
    box(to).deliver(self_, std::move(frame));
  }
  [[nodiscard]] Expected<ReceivedFrame, TransportError> receive(TimePoint deadline) override {
    return box(self_).receive(deadline);
  }
  void close() override { close_boxes(); }

 private:
  [[nodiscard]] Mailbox& box(WorkerId rank) const {
    return *boxes_->at(static_cast<std::size_t>(rank.value()));
  }
  void close_boxes() {
    box(self_).close();
    for (int peer = 0; peer < size(); ++peer) {
      if (WorkerId(peer) != self_) box(WorkerId(peer)).mark_lost(self_);
    }
  }

  WorkerId self_;
  std::shared_ptr<const Mailboxes> boxes_;  // co-owned by the endpoints, which send to one another
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_transports(Runtime& runtime, int members) {
  ISTHMUS_CHECK(members >= 1, members);
  auto boxes = std::make_shared<Mailboxes>();
  for (int rank = 0; rank < members; ++rank) {
    boxes->push_back(std::make_unique<Mailbox>(runtime, members));
  }
  std::vector<std::unique_ptr<Transport>> endpoints;
  endpoints.reserve(static_cast<std::size_t>(members));
  for (int rank = 0; rank < members; ++rank) {
    endpoints.push_back(std::make_unique<InProcessTransport>(WorkerId(rank), boxes));
  }
  return endpoints;
}

}  // namespace isthmus
