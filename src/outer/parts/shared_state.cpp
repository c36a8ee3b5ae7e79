// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/shared_state.h"

#include <span>
#include <string_view>

#include "core/state/state_memory.h"

namespace isthmus::outer {
namespace {

void take_in(Xxh3Stream& stream, std::span<const float> values) {
  StateWalk walk(values.size(), ranges_of(values, StateUse::kRead));
  walk.run([&](std::size_t begin, std::size_t end) {
    stream.update(std::as_bytes(values.subspan(begin, end - begin)));
  });
}

/// The part of a method's saved state that its outer optimizer keeps (outer_fragment.h).
class MomentaDigest final : public StateWriter {
 public:
  explicit MomentaDigest(Xxh3Stream& stream) : stream_(stream) {}
  void tensor(std::string_view name, std::span<const float> values) override {
    if (name.starts_with("momentum/") || name.starts_with("summed/")) take_in(stream_, values);
  }
  void bytes(std::string_view, std::span<const std::byte>) override {}
  void integer(std::string_view, std::int64_t) override {}
  void real(std::string_view, double) override {}
  void text(std::string_view, std::string_view) override {}

 private:
  Xxh3Stream& stream_;
};

}  // namespace

Digest128 shared_digest(const OuterStrategy& strategy, std::size_t parameters) {
  Xxh3Stream stream;
  for (std::size_t i = 0; i < parameters; ++i) take_in(stream, strategy.values(i));
  MomentaDigest momenta(stream);
  strategy.save(momenta);
  return stream.digest();
}

}  // namespace isthmus::outer
