// SPDX-License-Identifier: Apache-2.0
// Checkpoints of fragments in lanes: each rank's FragmentState writes and reads its lane under the
// names of a whole one, and between it and the first rank's writer or reader pieces become tensors
// and the other way round. So a checkpoint does not tell where its state was. All ranks make the
// same calls. One thread each.
#pragma once

#include <cstdint>
#include <vector>

#include "isthmus/state.h"
#include "outer/lane_exchange.h"

namespace isthmus::outer {

/// Tensors are lanes.
class LaneWriter final : public StateWriter {
 public:
  /// whole: where the first rank writes; null on the others. Borrows both.
  LaneWriter(std::size_t n, LaneExchange& exchange, StateWriter* whole);
  void tensor(std::string_view name, std::span<const float> values) override;
  void integer(std::string_view name, std::int64_t value) override;
  // A fragment has none of these.
  void bytes(std::string_view name, std::span<const std::byte> values) override;
  void real(std::string_view name, double value) override;
  void text(std::string_view name, std::string_view value) override;

 private:
  std::size_t n_;
  LaneExchange& exchange_;
  StateWriter* whole_;
};

class LaneReader final : public StateReader {
 public:
  LaneReader(std::size_t n, LaneExchange& exchange, StateReader* whole);
  [[nodiscard]] bool contains(std::string_view name) const override;
  void tensor(std::string_view name, std::span<float> values) override;
  [[nodiscard]] std::int64_t integer(std::string_view name) override;
  [[nodiscard]] std::vector<std::byte> bytes(std::string_view name) override;
  [[nodiscard]] double real(std::string_view name) override;
  [[nodiscard]] std::string text(std::string_view name) override;

 private:
  [[nodiscard]] std::int64_t told(std::int64_t value) const;

  std::size_t n_;
  LaneExchange& exchange_;
  StateReader* whole_;
};

}  // namespace isthmus::outer
