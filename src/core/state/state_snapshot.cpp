// SPDX-License-Identifier: Apache-2.0
#include "core/state/state_snapshot.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/check.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using nlohmann::json;

constexpr std::string_view kBits = "bits:";

// JSON has no infinities and NaNs: they are written as their bits.
json real_to_json(double value) {
  if (std::isfinite(value)) return value;
  return fmt::format("{}{:016x}", kBits, std::bit_cast<std::uint64_t>(value));
}

bool real_from_json(const json& value, double& real) {
  if (value.is_number_float()) {
    real = value.get<double>();
    return true;
  }
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() != kBits.size() + 16 || text.compare(0, kBits.size(), kBits) != 0) return false;
  std::uint64_t bits = 0;
  const auto [end, error] =
      std::from_chars(text.data() + kBits.size(), text.data() + text.size(), bits, 16);
  real = std::bit_cast<double>(bits);
  return error == std::errc() && end == text.data() + text.size();
}

class SnapshotReader final : public StateReader {
 public:
  SnapshotReader(Safetensors tensors, const json& scalars) : tensors_(std::move(tensors)) {
    const auto is_part = [&](const char* key) {
      return scalars.is_object() && scalars.contains(key) && scalars.at(key).is_object();
    };
    if (!is_part("integers") || !is_part("reals") || !is_part("texts") || scalars.size() != 3) {
      fail("its scalars", "are not {integers, reals, texts}");
    }
    for (const auto& item : scalars.at("integers").items()) {
      if (!item.value().is_number_integer()) fail(quoted(item.key()), "is not an integer");
      integers_[item.key()] = item.value().get<std::int64_t>();
    }
    for (const auto& item : scalars.at("reals").items()) {
      if (!real_from_json(item.value(), reals_[item.key()])) fail(quoted(item.key()), "is no real");
    }
    for (const auto& item : scalars.at("texts").items()) {
      if (!item.value().is_string()) fail(quoted(item.key()), "is not a text");
      texts_[item.key()] = item.value().get<std::string>();
    }
  }

  [[nodiscard]] bool contains(std::string_view name) const override {
    return tensors_.find(name) != nullptr || integers_.find(name) != integers_.end() ||
           reals_.find(name) != reals_.end() || texts_.find(name) != texts_.end();
  }

  void tensor(std::string_view name, std::span<float> values) override {
    const SafetensorsEntry& entry = stored(name, DType::kF32);
    if (entry.elements() != static_cast<std::int64_t>(values.size())) {
      fail(quoted(name), fmt::format("has {} values; {} are needed (another model or setting?)",
                                     entry.elements(), values.size()));
    }
    tensors_.read_floats(entry, values);
    state_done(values, StateUse::kWrite);
  }

  [[nodiscard]] std::vector<std::byte> bytes(std::string_view name) override {
    const auto view = tensors_.bytes(stored(name, DType::kU8));
    return {view.begin(), view.end()};
  }

  [[nodiscard]] std::int64_t integer(std::string_view name) override {
    return scalar(integers_, name, "integer");
  }
  [[nodiscard]] double real(std::string_view name) override { return scalar(reals_, name, "real"); }
  [[nodiscard]] std::string text(std::string_view name) override {
    return scalar(texts_, name, "text");
  }

 private:
  static std::string quoted(std::string_view name) { return fmt::format("entry \"{}\"", name); }

  [[noreturn]] void fail(const std::string& what, const std::string& cause) const {
    throw RunError(fmt::format("{}: {} {}", tensors_.label(), what, cause));
  }

  [[noreturn]] void fail_lookup(std::string_view name, std::string_view wanted) const {
    fail(quoted(name), contains(name) ? fmt::format("is not of type {}", wanted)
                                      : "is absent (written by another method or version?)");
  }

  const SafetensorsEntry& stored(std::string_view name, DType dtype) const {
    const SafetensorsEntry* entry = tensors_.find(name);
    if (entry == nullptr || entry->dtype != dtype) fail_lookup(name, dtype_name(dtype));
    return *entry;
  }

  template <typename Map>
  typename Map::mapped_type scalar(const Map& map, std::string_view name,
                                   std::string_view wanted) const {
    const auto found = map.find(name);
    if (found == map.end()) fail_lookup(name, wanted);
    return found->second;
  }

  Safetensors tensors_;
  std::map<std::string, std::int64_t, std::less<>> integers_;
  std::map<std::string, double, std::less<>> reals_;
  std::map<std::string, std::string, std::less<>> texts_;
};

}  // namespace

void StateSnapshot::claim(std::string_view name) {
  const bool is_free = tensors_.find(name) == tensors_.end() && bytes_.find(name) == bytes_.end() &&
                       integers_.find(name) == integers_.end() &&
                       reals_.find(name) == reals_.end() && texts_.find(name) == texts_.end();
  ISTHMUS_CHECK(is_free, name);
}

void StateSnapshot::tensor(std::string_view name, std::span<const float> values) {
  if (borrows_files_ && state_in_file(values)) {
    borrow(name, values);
    return;
  }
  claim(name);
  Tensor tensor{.owned = StateArray(values), .values = {}};
  tensor.values = tensor.owned.span();  // where they lie does not change when the array moves
  tensors_.emplace(name, std::move(tensor));
}

void StateSnapshot::borrow(std::string_view name, std::span<const float> values) {
  claim(name);
  tensors_.emplace(name, Tensor{.owned = {}, .values = values});
}

std::span<const float> StateSnapshot::view(std::string_view name) const {
  const auto found = tensors_.find(name);
  ISTHMUS_CHECK(found != tensors_.end(), name);
  return found->second.values;
}

void StateSnapshot::bytes(std::string_view name, std::span<const std::byte> values) {
  claim(name);
  bytes_.emplace(name, std::vector<std::byte>(values.begin(), values.end()));
}

void StateSnapshot::integer(std::string_view name, std::int64_t value) {
  claim(name);
  integers_.emplace(name, value);
}

void StateSnapshot::real(std::string_view name, double value) {
  claim(name);
  reals_.emplace(name, value);
}

void StateSnapshot::text(std::string_view name, std::string_view value) {
  claim(name);
  try {
    (void)json(value).dump();
  } catch (const json::exception&) {
    throw RunError(
        fmt::format("state entry \"{}\": its text is not UTF-8; save it as bytes", name));
  }
  texts_.emplace(name, value);
}

std::vector<TensorToWrite> StateSnapshot::tensors() const {
  std::vector<TensorToWrite> result;
  for (const auto& [name, tensor] : tensors_) {
    result.push_back(
        float_tensor(name, {static_cast<std::int64_t>(tensor.values.size())}, tensor.values));
  }
  for (const auto& [name, values] : bytes_) {
    result.push_back({name, DType::kU8, {static_cast<std::int64_t>(values.size())}, values});
  }
  return result;
}

json StateSnapshot::scalars() const {
  json reals = json::object();
  for (const auto& [name, value] : reals_) reals[name] = real_to_json(value);
  json integers = json::object();
  for (const auto& [name, value] : integers_) integers[name] = value;
  json texts = json::object();
  for (const auto& [name, value] : texts_) texts[name] = value;
  return {{"integers", integers}, {"reals", reals}, {"texts", texts}};
}

std::unique_ptr<StateReader> make_state_reader(Safetensors tensors, const json& scalars) {
  return std::make_unique<SnapshotReader>(std::move(tensors), scalars);
}

void PrefixedStateWriter::tensor(std::string_view name, std::span<const float> values) {
  to_.tensor(prefix_ + std::string(name), values);
}
void PrefixedStateWriter::bytes(std::string_view name, std::span<const std::byte> values) {
  to_.bytes(prefix_ + std::string(name), values);
}
void PrefixedStateWriter::integer(std::string_view name, std::int64_t value) {
  to_.integer(prefix_ + std::string(name), value);
}
void PrefixedStateWriter::real(std::string_view name, double value) {
  to_.real(prefix_ + std::string(name), value);
}
void PrefixedStateWriter::text(std::string_view name, std::string_view value) {
  to_.text(prefix_ + std::string(name), value);
}

bool PrefixedStateReader::contains(std::string_view name) const {
  return from_.contains(prefix_ + std::string(name));
}
void PrefixedStateReader::tensor(std::string_view name, std::span<float> values) {
  from_.tensor(prefix_ + std::string(name), values);
}
std::vector<std::byte> PrefixedStateReader::bytes(std::string_view name) {
  return from_.bytes(prefix_ + std::string(name));
}
std::int64_t PrefixedStateReader::integer(std::string_view name) {
  return from_.integer(prefix_ + std::string(name));
}
double PrefixedStateReader::real(std::string_view name) {
  return from_.real(prefix_ + std::string(name));
}
std::string PrefixedStateReader::text(std::string_view name) {
  return from_.text(prefix_ + std::string(name));
}

}  // namespace isthmus
