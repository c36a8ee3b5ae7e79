// SPDX-License-Identifier: Apache-2.0
// Who has lost whom, as members report it to a coordinator that hears both, and who of them is to
// go. A member that nothing passes to or from any more reports all others, and they report it; so
// one report does not tell which of the two is cut off, but several do: the member that they have
// in common. (Pairs that hear each other and get no values through are those of rifts.h.) Pure; one
// task.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "isthmus/types.h"

namespace isthmus {

class Cuts {
 public:
  /// From the first report of a pair. Who loses several members at once looks at all of them at one
  /// heartbeat, of a second at most, or at two that follow each other; and the words travel.
  static constexpr Duration kGather = std::chrono::milliseconds(1250);

  struct Gone {
    Rank who;
    std::string why;
  };

  /// `from` has lost `to`, as `why` says. Said again it changes nothing.
  void note(Rank from, Rank to, const std::string& why, TimePoint now);
  /// Whether somebody has reported it.
  [[nodiscard]] bool reported(Rank member) const;
  /// Between these two it is something else.
  void forget(Rank a, Rank b);
  /// The member has gone, for whatever reason.
  void gone(Rank member);
  /// When `settle` has something to say; kNever: nothing was reported.
  [[nodiscard]] TimePoint due() const;
  /// Who is to go next, of the pair that is due: the one that has lost more others, or been lost by
  /// them, and where that tells nothing the one that was reported. A pair is due when it was
  /// reported long enough ago; and at once where several have reported one of the two, and each of
  /// those that one alone. (Who alone reports several may have seen them die before others have.)
  /// It is forgotten. RETURNS: nobody, when none is due.
  [[nodiscard]] std::optional<Gone> settle(TimePoint now);

 private:
  struct Cut {
    TimePoint seen;
    std::string why;
  };
  using Pairs = std::map<std::pair<Rank, Rank>, Cut>;  // by who reports and about whom

  [[nodiscard]] int pairs_of(Rank member) const;
  /// Whether several have reported it, and each of its others has that pair alone.
  [[nodiscard]] bool is_common(Rank member) const;
  [[nodiscard]] TimePoint due(const Pairs::value_type& cut) const;

  Pairs cuts_;
};

}  // namespace isthmus
