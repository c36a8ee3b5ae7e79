// SPDX-License-Identifier: Apache-2.0
// One communicator over several back ends of the same ranks: each operation runs on the one that a
// measured table names for its kind and size.
//
// No deadlock: the choice is a pure function of what the ranks agree on, the table's digest is
// compared when the communicator is made, and a rank ends one operation before it begins the next,
// whatever back end runs it; so all ranks make the same calls on each back end in the same order.
// Messages go by kind alone, whatever their size, and so keep their order; so does an all-to-all
// whose caller does not know what all ranks give. A group that is split goes by the times of its
// own size.
// Ranks that call unlike operations may wait in different back ends and hear of it at the deadline.
// An error of one back end ends all.
//
// DETERMINISM: results have the same bits on all back ends, so the table changes none. NCCL adds
// floats in an order of its own: with it, the table decides bits, which has to be asked for.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/collectives/communicator.h"
#include "transport/collectives/mix_table.h"

namespace isthmus {

struct NamedCommunicator {
  std::string name;  // as the table has it
  std::unique_ptr<Communicator> communicator;
};

enum class MixedSums {
  kRankOrder,  // all back ends add in rank order
  kAny,        // the back end that the table names for a size decides its bits
};

/// Collective over `ranks`: compares the table's digest, 0 of a rank that has no table. To be asked
/// over the first communicator that there is, before more back ends are made by a table's names:
/// ranks with unlike names would wait for one another in unlike back ends, till the deadline.
/// THROWS: CommunicatorError naming the last rank whose table is unlike that of rank 0.
void check_same_table(Communicator& ranks, const MixTable* table);

/// Collective. REQUIRES: at least one back end, all of the same rank and size. THROWS:
/// CommunicatorError when the ranks have unlike tables, the table has no times of groups of this
/// size, or a back end does not add in rank order as `sums` wants.
[[nodiscard]] std::unique_ptr<Communicator> make_mixed_communicator(
    std::vector<NamedCommunicator> backends, MixTable table,
    MixedSums sums = MixedSums::kRankOrder);

}  // namespace isthmus
