// SPDX-License-Identifier: Apache-2.0
// An Exchange around another one: facts about the member and its bytes are those of the wrapped
// exchange; a derived class says what becomes of the rounds. One thread.
#pragma once

#include "isthmus/transport.h"

namespace isthmus {

class WrappedExchange : public Exchange {
 public:
  /// Borrows `real`.
  explicit WrappedExchange(Exchange& real) : real_(real) {}
  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }
  [[nodiscard]] bool uncommitted() const override { return real_.uncommitted(); }
  StepIndex go_back() override { return real_.go_back(); }
  [[nodiscard]] Merges* merges() override { return real_.merges(); }

 protected:
  Exchange& real_;
};

}  // namespace isthmus
