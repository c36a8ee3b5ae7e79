// SPDX-License-Identifier: Apache-2.0
#include "outer/parts/spsa_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/check.h"

namespace isthmus::outer {
namespace {

constexpr std::uint64_t kMagic = 0x4c41505348545349;  // "ISTHSPAL" as bytes in the file
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 112;
constexpr std::size_t kChainBytes = 4;  // of H_t, at the end of a record
constexpr std::uint16_t kHasWeights = 1;
constexpr std::uint32_t kMostMembers = 1U << 16;
constexpr std::int64_t kMostStep = 0xffffffff;

template <typename T>
void put(std::vector<std::byte>& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
}

void put(std::vector<std::byte>& out, const Digest128& digest) {
  const auto bytes = std::as_bytes(std::span(digest.bytes));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// Reads fields until one is missing; then `ok` is false and values are zero.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T get() {
    std::uint64_t value = 0;
    const std::span<const std::byte> field = take(sizeof(T));
    for (std::size_t i = 0; i < field.size(); ++i) {
      value |= std::to_integer<std::uint64_t>(field[i]) << (8 * i);
    }
    return static_cast<T>(value);
  }
  Digest128 digest() {
    Digest128 result;
    const std::span<const std::byte> field = take(result.bytes.size());
    std::ranges::copy(field, std::as_writable_bytes(std::span(result.bytes)).begin());
    return result;
  }
  std::span<const std::byte> take(std::size_t n) {
    if (bytes_.size() - at_ < n) {
      ok_ = false;
      at_ = bytes_.size();
      return {};
    }
    at_ += n;
    return bytes_.subspan(at_ - n, n);
  }
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool end() const { return at_ == bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

std::vector<std::byte> write_header(const SpsaLogHeader& h) {
  std::vector<std::byte> out;
  put(out, kMagic);
  put(out, kVersion);
  put(out, h.members);
  put(out, h.run_key);
  put(out, static_cast<std::uint32_t>(h.scale_log2));
  put(out, std::bit_cast<std::uint32_t>(h.weight_decay));
  put(out, static_cast<std::uint32_t>(h.divide_by_sqrt ? 1 : 0));
  put(out, static_cast<std::uint32_t>(h.base_step.value()));
  put(out, h.elements);
  put(out, h.layout);
  put(out, h.base_weights);
  put(out, h.base_chain);
  put(out, std::uint32_t{0});
  put(out, std::uint64_t{0});
  put(out, crc32c(out));
  ISTHMUS_CHECK(out.size() == kHeaderBytes, out.size());
  return out;
}

Expected<SpsaLogHeader, SpsaLogError> read_header(std::span<const std::byte> bytes) {
  const auto bad = [](const std::string& what) {
    return Unexpected<SpsaLogError>(SpsaLogError{what});
  };
  Cursor cursor(bytes);
  const auto magic = cursor.get<std::uint64_t>();
  const auto version = cursor.get<std::uint32_t>();
  if (!cursor.ok() || magic != kMagic) {
    return bad("not an spsa log");
  }
  if (version != kVersion) {
    return bad(fmt::format("version {} of the spsa log, this build reads {}", version, kVersion));
  }
  SpsaLogHeader h;
  h.members = cursor.get<std::uint32_t>();
  h.run_key = cursor.get<std::uint64_t>();
  h.scale_log2 = static_cast<std::int32_t>(cursor.get<std::uint32_t>());
  h.weight_decay = std::bit_cast<float>(cursor.get<std::uint32_t>());
  const auto divisor = cursor.get<std::uint32_t>();
  h.divide_by_sqrt = divisor == 1;
  h.base_step = StepIndex(cursor.get<std::uint32_t>());
  h.elements = cursor.get<std::uint64_t>();
  h.layout = cursor.digest();
  h.base_weights = cursor.digest();
  h.base_chain = cursor.digest();
  const bool reserved = cursor.get<std::uint32_t>() != 0 || cursor.get<std::uint64_t>() != 0;
  if (cursor.get<std::uint32_t>() !=
      crc32c(bytes.first(std::min(bytes.size(), kHeaderBytes - 4)))) {
    return bad("header: checksum does not hold");
  }
  const bool sane = !reserved && h.members >= 1 && h.members <= kMostMembers && divisor <= 1 &&
                    std::abs(h.scale_log2) <= 64 && std::isfinite(h.weight_decay);
  return sane ? Expected<SpsaLogHeader, SpsaLogError>(h) : bad("header: impossible values");
}

Digest128 chain_of(const Digest128& before, std::span<const std::byte> record) {
  Xxh3Stream stream;
  stream.update(std::as_bytes(std::span(before.bytes)));
  stream.update(record);
  return stream.digest();
}

/// The record at the cursor, its chain bytes left out. Nothing when it is cut short or impossible.
std::optional<SpsaRecord> read_record(Cursor& cursor, std::uint32_t members) {
  SpsaRecord record;
  record.step = StepIndex(cursor.get<std::uint32_t>());
  record.epoch = cursor.get<std::uint32_t>();
  record.lr = std::bit_cast<float>(cursor.get<std::uint32_t>());
  const auto flags = cursor.get<std::uint16_t>();
  const auto contributors = cursor.get<std::uint16_t>();
  const std::span<const std::byte> bitmap = cursor.take((members + 7) / 8);
  if (!cursor.ok() || flags > kHasWeights || !std::isfinite(record.lr)) {
    return std::nullopt;
  }
  for (std::uint32_t m = 0; m < bitmap.size() * 8; ++m) {
    if ((bitmap[m / 8] & static_cast<std::byte>(1U << (m % 8))) != std::byte{0}) {
      record.machines.push_back(m);
    }
  }
  if (record.machines.size() != contributors ||
      (!record.machines.empty() && record.machines.back() >= members)) {
    return std::nullopt;
  }
  std::size_t entries = 0;
  for (std::size_t k = 0; k < record.machines.size(); ++k) {
    record.counts.push_back(cursor.get<std::uint16_t>());
    entries += record.counts.back();
  }
  for (const std::byte code : cursor.take(entries)) {
    record.codes.push_back(std::to_integer<std::uint8_t>(code));
  }
  if (flags == kHasWeights) {
    record.weights = cursor.digest();
  }
  return cursor.ok() ? std::optional(std::move(record)) : std::nullopt;
}

void write_record(const SpsaRecord& record, std::uint32_t members, std::vector<std::byte>& out) {
  put(out, static_cast<std::uint32_t>(record.step.value()));
  put(out, record.epoch);
  put(out, std::bit_cast<std::uint32_t>(record.lr));
  put(out, static_cast<std::uint16_t>(record.weights ? kHasWeights : 0));
  put(out, static_cast<std::uint16_t>(record.machines.size()));
  std::vector<std::byte> bitmap((members + 7) / 8);
  for (const std::uint32_t m : record.machines) {
    bitmap[m / 8] |= static_cast<std::byte>(1U << (m % 8));
  }
  out.insert(out.end(), bitmap.begin(), bitmap.end());
  for (const std::uint16_t count : record.counts) {
    put(out, count);
  }
  for (const std::uint8_t code : record.codes) {
    put(out, code);
  }
  if (record.weights) {
    put(out, *record.weights);
  }
}

void check(const SpsaRecord& record, const SpsaLogHeader& header, StepIndex last) {
  ISTHMUS_CHECK(record.step.value() == last.value() + 1, record.step.value(), last.value());
  ISTHMUS_CHECK(record.step.value() <= kMostStep, record.step.value());
  ISTHMUS_CHECK(record.machines.size() == record.counts.size(), record.machines.size());
  ISTHMUS_CHECK(record.machines.size() < kMostMembers, record.machines.size());
  ISTHMUS_CHECK(std::ranges::is_sorted(record.machines, std::ranges::less_equal{}));  // ascending
  ISTHMUS_CHECK(record.machines.empty() || record.machines.back() < header.members);
  ISTHMUS_CHECK(std::accumulate(record.counts.begin(), record.counts.end(), std::size_t{0}) ==
                    record.codes.size(),
                record.codes.size());
  ISTHMUS_CHECK(record.weights.has_value() == (record.step.value() % SpsaLog::kWeightsEvery == 0),
                record.step.value());
}

}  // namespace

SpsaLog::SpsaLog(const SpsaLogHeader& header) : header_(header), bytes_(write_header(header)) {
  chain_ = header.base_chain == Digest128{} ? xxh3_128(bytes_) : header.base_chain;
}

Expected<SpsaLog, SpsaLogError> SpsaLog::parse(std::span<const std::byte> bytes) {
  const Expected<SpsaLogHeader, SpsaLogError> header = read_header(bytes);
  if (!header) {
    return Unexpected<SpsaLogError>(header.error());
  }
  SpsaLog log(*header);
  Cursor cursor(bytes);
  cursor.take(kHeaderBytes);
  while (!cursor.end()) {
    const std::size_t begin = cursor.at();
    const auto bad = [&](const std::string& what) {
      return Unexpected<SpsaLogError>(
          SpsaLogError{fmt::format("byte {}, after step {}: {}", begin, log.last().value(), what)});
    };
    const std::optional<SpsaRecord> record = read_record(cursor, header->members);
    const std::span<const std::byte> body = bytes.subspan(begin, cursor.at() - begin);
    const std::span<const std::byte> seal = cursor.take(kChainBytes);
    if (!record || !cursor.ok()) {
      return bad("the record is cut short or no record");
    }
    const Digest128 chain = chain_of(log.chain_, body);
    if (std::memcmp(seal.data(), chain.bytes.data(), kChainBytes) != 0) {
      return bad("the hash chain breaks: bytes were changed, lost or moved");
    }
    const bool due = record->step.value() % kWeightsEvery == 0;
    if (record->step.value() != log.last().value() + 1 || record->weights.has_value() != due) {
      return bad("the record of another step follows");
    }
    log.append(*record);
  }
  return log;
}

void SpsaLog::append(const SpsaRecord& record) {
  check(record, header_, last());
  const std::size_t begin = bytes_.size();
  write_record(record, header_.members, bytes_);
  chain_ = chain_of(chain_, std::span(bytes_).subspan(begin));
  const auto chain = std::as_bytes(std::span(chain_.bytes)).first(kChainBytes);
  bytes_.insert(bytes_.end(), chain.begin(), chain.end());
  begins_.push_back(begin);
  entries_ += record.codes.size();
}

StepIndex SpsaLog::last() const {
  return StepIndex(header_.base_step.value() + static_cast<std::int64_t>(begins_.size()));
}

std::span<const std::byte> SpsaLog::record_bytes(std::size_t index) const {
  const std::size_t end = index + 1 < begins_.size() ? begins_[index + 1] : bytes_.size();
  return std::span(bytes_).subspan(begins_[index], end - begins_[index]);
}

SpsaRecord SpsaLog::record(StepIndex step) const {
  ISTHMUS_CHECK(step > header_.base_step && step <= last(), step.value());
  Cursor cursor(
      record_bytes(static_cast<std::size_t>(step.value() - header_.base_step.value() - 1)));
  return read_record(cursor, header_.members).value();
}

SpsaLog SpsaLog::cut(StepIndex step, const Digest128& base_weights) const {
  ISTHMUS_CHECK(step >= header_.base_step && step <= last(), step.value());
  Digest128 chain = SpsaLog(header_).chain_;
  const auto gone = static_cast<std::size_t>(step.value() - header_.base_step.value());
  for (std::size_t i = 0; i < gone; ++i) {
    const std::span<const std::byte> whole = record_bytes(i);
    chain = chain_of(chain, whole.first(whole.size() - kChainBytes));
  }
  SpsaLogHeader header = header_;
  header.base_step = step;
  header.base_weights = base_weights;
  header.base_chain = chain;
  SpsaLog rest(header);
  for (std::int64_t t = step.value() + 1; t <= last().value(); ++t) {
    rest.append(record(StepIndex(t)));
  }
  return rest;
}

}  // namespace isthmus::outer
