// SPDX-License-Identifier: Apache-2.0
// Expected<T, E>: a value, or the typed error that a wide-area run must be ready to read.
// The only includer of tl::expected, so that a later std::expected is a change of one file.
#pragma once

#include <tl/expected.hpp>

namespace isthmus {

template <typename T, typename E>
using Expected = tl::expected<T, E>;

template <typename E>
using Unexpected = tl::unexpected<E>;

}  // namespace isthmus
