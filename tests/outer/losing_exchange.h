// SPDX-License-Identifier: Apache-2.0
// An exchange that loses what its member sends after some steps. One thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "isthmus/transport.h"

namespace isthmus::testing_support {

/// The member takes in the lost rounds without giving. Borrows `real`.
class LosingExchange final : public Exchange {
 public:
  LosingExchange(Exchange& real, std::set<std::int64_t> lost)
      : real_(real), lost_(std::move(lost)) {}
  [[nodiscard]] WorkerId self() const override { return real_.self(); }
  [[nodiscard]] int members() const override { return real_.members(); }
  [[nodiscard]] EncodeKey key(const SyncId& id) const override { return real_.key(id); }
  Ticket begin(Contribution contribution) override {
    weights.push_back(contribution.weight);
    if (lost_.contains(contribution.id.sent.value())) {
      contribution.weight = 0;
    } else if (contribution.weight > 0) {
      sent.resize(contribution.encoded.values);
      EXPECT_TRUE(decode_add(*contribution.codec, contribution.encoded.bytes, sent));
    }
    return real_.begin(std::move(contribution));
  }
  [[nodiscard]] bool poll(const Ticket& ticket) override { return real_.poll(ticket); }
  [[nodiscard]] Expected<Reduced, ExchangeError> wait(const Ticket& ticket,
                                                      Duration patience) override {
    return real_.wait(ticket, patience);
  }
  [[nodiscard]] ByteCounts bytes() const override { return real_.bytes(); }
  [[nodiscard]] Merges* merges() override { return real_.merges(); }

  std::vector<double> weights;  // as the method gave them
  std::vector<float> sent;      // decoded, the sum of what was not lost (of one fragment)

 private:
  Exchange& real_;
  std::set<std::int64_t> lost_;
};

}  // namespace isthmus::testing_support
