// SPDX-License-Identifier: Apache-2.0
// Runs a template. Work, output and nested calls are bounded here; the size of values in value.h. A
// pure function of its arguments; any thread.
#pragma once

#include <cstdint>
#include <ctime>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/nodes.h"
#include "text/jinja/value.h"

namespace isthmus::jinja {

struct RenderOptions {
  std::tm now = {};  // for strftime_now
  /// Bound of steps plus bytes and values traversed; about a nanosecond each.
  std::int64_t most_work = std::int64_t{1} << 30;
};

struct Rendered {
  std::string text;
  /// Ranges [begin, end) of `text` that came from {% generation %} blocks, in order.
  std::vector<std::pair<std::size_t, std::size_t>> generations;
};

/// Cause and place of a failed rendering.
class RenderError : public std::runtime_error {
 public:
  RenderError(const std::string& what, int line, bool raised)
      : std::runtime_error(what), line_(line), raised_(raised) {}
  [[nodiscard]] int line() const { return line_; }
  /// True if the template called raise_exception: the text is the template's own.
  [[nodiscard]] bool raised() const { return raised_; }

 private:
  int line_;
  bool raised_;
};

/// variables: a dict. THROWS: RenderError.
[[nodiscard]] Rendered render(const Nodes& nodes, const Value& variables,
                              const RenderOptions& options);

}  // namespace isthmus::jinja
