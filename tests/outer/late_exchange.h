// SPDX-License-Identifier: Apache-2.0
// An exchange on which results are late when a test says so, whatever threads do meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "isthmus/transport.h"

namespace isthmus::testing_support {

/// `ready(id)` answers every poll; a wait for what is "not ready" ends as the real one does.
class LateExchange final : public Exchange {
 public:
  LateExchange(Exchange& real, std::function<bool(const SyncId&)> ready)
      : real_(real), ready_(std::move(ready)) {}
  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  Ticket begin(Contribution contribution) override { return real_.begin(std::move(contribution)); }
  [[nodiscard]] bool poll(const Ticket& ticket) override { return ready_(ticket.id); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override {
    return real_.wait(ticket, patience);
  }
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }

 private:
  Exchange& real_;
  std::function<bool(const SyncId&)> ready_;
};

}  // namespace isthmus::testing_support
