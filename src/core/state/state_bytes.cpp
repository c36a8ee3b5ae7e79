// SPDX-License-Identifier: Apache-2.0
#include "core/state/state_bytes.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/json_input.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

constexpr std::uint32_t kVersion = 1;

struct Head {
  std::array<char, 8> magic = {'I', 'S', 'T', 'H', 'S', 'T', 'A', 'T'};
  std::uint32_t version = kVersion;
  std::uint32_t scalars = 0;
  std::uint64_t whole = 0;
};
static_assert(sizeof(Head) == 24);

/// A file in memory.
class BytesFile final : public WritableFile {
 public:
  explicit BytesFile(std::vector<std::byte>& bytes) : bytes_(bytes) {}
  void append(std::span<const std::byte> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void sync() override {}

 private:
  std::vector<std::byte>& bytes_;
};

std::size_t tensor_bytes(const std::vector<TensorToWrite>& tensors) {
  std::size_t bytes = 0;
  for (const TensorToWrite& tensor : tensors) bytes += tensor.bytes.size();
  return bytes;
}

Unexpected<std::string> bad(const std::string& why) {
  return Unexpected<std::string>("state of a peer: " + why);
}

}  // namespace

std::vector<std::byte> write_state(const StateSnapshot& state) {
  const std::string scalars = state.scalars().dump();
  ISTHMUS_CHECK(scalars.size() <= std::numeric_limits<std::uint32_t>::max(), scalars.size());
  std::vector<TensorToWrite> tensors = state.tensors();
  std::vector<std::byte> bytes;
  constexpr std::size_t kNames = 256;  // an ample bound of a tensor's bytes in a header
  bytes.reserve(sizeof(Head) + scalars.size() + tensor_bytes(tensors) + kNames * tensors.size() +
                2 * sizeof(Digest128));
  bytes.resize(sizeof(Head));
  BytesFile file(bytes);
  file.append(as_bytes(scalars));
  write_safetensors(file, std::move(tensors));
  Head head;
  head.scalars = static_cast<std::uint32_t>(scalars.size());
  head.whole = bytes.size() + sizeof(Digest128);
  std::memcpy(bytes.data(), &head, sizeof head);
  const Digest128 digest = xxh3_128(bytes);
  file.append(std::as_bytes(std::span(digest.bytes)));
  return bytes;
}

std::vector<std::uint64_t> state_borders(std::span<const std::byte> state) {
  Head head;
  ISTHMUS_CHECK(state.size() >= sizeof head + sizeof(Digest128), state.size());
  std::memcpy(&head, state.data(), sizeof head);
  const std::span<const std::byte> file = state.subspan(
      sizeof head + head.scalars, state.size() - sizeof head - head.scalars - sizeof(Digest128));
  const Safetensors tensors = Safetensors::parse(file, "state of this worker");
  std::vector<std::uint64_t> borders;
  for (const SafetensorsEntry& entry : tensors.entries()) {
    const auto bytes = tensors.bytes(entry);
    const auto begin = static_cast<std::uint64_t>(bytes.data() - state.data());
    if (borders.empty() || borders.back() != begin) borders.push_back(begin);
    if (!bytes.empty()) borders.push_back(begin + bytes.size());
  }
  return borders;
}

Expected<std::unique_ptr<StateReader>, std::string> read_state(std::vector<std::byte> bytes) {
  Head head;
  const Head expected;
  Digest128 digest;
  if (bytes.size() < sizeof head + sizeof digest) {
    return bad(fmt::format("{} bytes are too few", bytes.size()));
  }
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != expected.magic || head.version != expected.version) {
    return bad(fmt::format("it does not begin like one of version {}", kVersion));
  }
  if (head.whole != bytes.size()) {
    return bad(fmt::format("it has {} bytes, {} have come", head.whole, bytes.size()));
  }
  const std::size_t end = bytes.size() - sizeof digest;
  std::memcpy(digest.bytes.data(), bytes.data() + end, sizeof digest);
  bytes.resize(end);
  if (xxh3_128(bytes) != digest) return bad("its digest does not hold");
  if (head.scalars > end - sizeof head) {
    return bad(fmt::format("{} bytes of scalars in {}", head.scalars, end));
  }
  try {
    const std::string label = "state of a peer";
    const std::string text = as_text(std::span(bytes).subspan(sizeof head, head.scalars));
    const nlohmann::json scalars = parse_json(text, label);
    return make_state_reader(Safetensors::keep(std::move(bytes), sizeof head + head.scalars, label),
                             scalars);
  } catch (const Error& error) {
    return Unexpected<std::string>(error.what());
  }
}

}  // namespace isthmus
