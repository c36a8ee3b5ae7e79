// SPDX-License-Identifier: Apache-2.0
// One communicator over several back ends of the same ranks: a measured table names the back end
// for each operation and size.
//
// No deadlock: the choice is a pure function of values on which the ranks agree, the tables'
// digests are compared at creation, and a rank ends one operation before it begins the next,
// whatever the back end. So all ranks make the same calls on each back end in the same order.
// Messages choose by operation alone, whatever their size, and so keep their order; so does an
// all-to-all whose caller does not know the total. A group that is split off uses the times of its
// own size.
// Ranks that call different operations may wait in different back ends until the deadline. An error
// of one back end ends all.
//
// DETERMINISM: all back ends give the same bits, so the table changes none. NCCL adds floats in its
// own order: with it the table decides bits, which must be requested.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/collectives/communicator.h"
#include "transport/collectives/mix_table.h"

namespace isthmus {

struct NamedCommunicator {
  std::string name;  // as in the table
  std::unique_ptr<Communicator> communicator;
};

enum class MixedSums {
  kRankOrder,  // all back ends add in rank order
  kAny,        // the back end that the table names for a size decides its bits
};

/// Collective over `ranks`: compares the tables' digests, 0 for a rank without a table. Call it
/// over the first communicator, before more back ends are made from a table: ranks with different
/// tables would wait for one another in different back ends until the deadline. THROWS:
/// CommunicatorError naming the last rank whose table differs from that of rank 0.
void check_same_table(Communicator& ranks, const MixTable* table);

/// Collective. REQUIRES: at least one back end, all of the same rank and size. THROWS:
/// CommunicatorError when the ranks' tables differ, the table has no times for this group size, or
/// a back end does not add in rank order although `sums` requires it.
[[nodiscard]] std::unique_ptr<Communicator> make_mixed_communicator(
    std::vector<NamedCommunicator> backends, MixTable table,
    MixedSums sums = MixedSums::kRankOrder);

}  // namespace isthmus
