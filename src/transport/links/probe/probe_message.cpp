// SPDX-License-Identifier: Apache-2.0
#include "transport/links/probe/probe_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/check.h"
#include "core/base/rng.h"
#include "transport/links/link_message.h"
#include "transport/wire/frame.h"

namespace isthmus {
namespace {

constexpr std::size_t kHeaderBytes = 8;
constexpr std::size_t kMostMessageBytes = 4096;  // except loads
constexpr std::size_t kMostProbeScanned = 16;
constexpr std::size_t kLongestWord = 16;

/// Appends little-endian fields.
class Writer {
 public:
  template <typename UInt>
  void put(UInt value) {
    static_assert(std::is_unsigned_v<UInt>);
    for (std::size_t i = 0; i < sizeof(UInt); ++i) {
      bytes_.push_back(static_cast<std::byte>((value >> (8 * i)) & 0xffu));
    }
  }
  void put(double value) { put(std::bit_cast<std::uint64_t>(value)); }
  void put(Duration value) { put(static_cast<std::uint64_t>(value.count())); }
  void put(const std::string& text) {
    put(static_cast<std::uint16_t>(text.size()));
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
  }
  void put(const EchoSummary& echo) {
    put(echo.samples);
    for (const Duration time : {echo.least, echo.p50, echo.p99, echo.jitter}) put(time);
  }
  void put(const DirectionMeasurement& direction) {
    put(direction.bits_per_s);
    put(direction.streams);
    put(static_cast<std::uint16_t>(direction.scan.size()));
    for (const StreamRate& each : direction.scan) {
      put(each.streams);
      put(each.bits_per_s);
    }
    put(direction.bytes);
    const Retransmits counted = direction.retransmits.value_or(Retransmits{});
    put(static_cast<std::uint8_t>(direction.retransmits.has_value() ? 1 : 0));
    put(counted.segments);
    put(counted.repeated);
    put(static_cast<std::uint8_t>(direction.loaded_rtt.has_value() ? 1 : 0));
    put(direction.loaded_rtt.value_or(Duration{0}));
    put(direction.congestion);
  }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads the fields that Writer wrote; after the first missing field all are zero and `good` false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename UInt>
  void get(UInt& value) {
    static_assert(std::is_unsigned_v<UInt>);
    value = 0;
    if (!has(sizeof(UInt))) return;
    std::uint64_t wide = 0;
    for (std::size_t i = 0; i < sizeof(UInt); ++i) {
      wide |= std::to_integer<std::uint64_t>(bytes_[at_++]) << (8 * i);
    }
    value = static_cast<UInt>(wide);
  }
  void get(double& value) {
    std::uint64_t bits = 0;
    get(bits);
    value = std::bit_cast<double>(bits);
  }
  void get(Duration& value) {
    std::uint64_t count = 0;
    get(count);
    value = Duration(static_cast<Duration::rep>(count));
  }
  void get(std::string& text, std::size_t longest) {
    std::uint16_t size = 0;
    get(size);
    good_ = good_ && size <= longest;
    if (!has(size)) return;
    for (std::size_t i = 0; i < size; ++i) {
      const auto c = std::to_integer<unsigned char>(bytes_[at_++]);
      good_ = good_ && c >= 0x20 && c != 0x7f;  // it is shown to people
      text += static_cast<char>(c);
    }
  }
  void get(EchoSummary& echo) {
    get(echo.samples);
    for (Duration* time : {&echo.least, &echo.p50, &echo.p99, &echo.jitter}) get(*time);
  }
  void get(DirectionMeasurement& direction) {
    std::uint16_t scanned = 0;
    get(direction.bits_per_s);
    get(direction.streams);
    get(scanned);
    good_ = good_ && scanned <= kMostProbeScanned;
    for (std::size_t i = 0; good_ && i < scanned; ++i) {
      StreamRate& rate = direction.scan.emplace_back();
      get(rate.streams);
      get(rate.bits_per_s);
    }
    get(direction.bytes);
    Retransmits counted;
    Duration loaded{0};
    const bool has_counted = get_flag();
    get(counted.segments);
    get(counted.repeated);
    const bool has_loaded = get_flag();
    get(loaded);
    if (has_counted) direction.retransmits = counted;
    if (has_loaded) direction.loaded_rtt = loaded;
    good_ =
        good_ && (has_counted || counted == Retransmits{}) && (has_loaded || loaded.count() == 0);
    get(direction.congestion, kLongestWord);
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool at_end() const { return good_ && at_ == bytes_.size(); }

 private:
  [[nodiscard]] bool has(std::size_t bytes) {
    good_ = good_ && bytes_.size() - at_ >= bytes;
    return good_;
  }
  bool get_flag() {
    std::uint8_t flag = 0;
    get(flag);
    good_ = good_ && flag <= 1;
    return flag == 1;
  }
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  bool good_ = true;
};

// One list of fields a message, for writing and for reading.
template <typename Archive>
struct Fields {
  Archive& io;
  template <typename T>
  void operator()(T& value) {
    if constexpr (std::is_same_v<Archive, Writer>) {
      io.put(value);
    } else {
      io.get(value);
    }
  }
};

template <typename Archive, typename Message>
void visit_fields(Archive& io, Message& m) {
  using Plain = std::remove_cvref_t<Message>;
  Fields<Archive> field{io};
  if constexpr (std::is_same_v<Plain, ProbePing> || std::is_same_v<Plain, ProbePong>) {
    field(m.pair);
    field(m.number);
  } else if constexpr (std::is_same_v<Plain, ProbeLoad>) {
    field(m.pair);
    field(m.transfer);
  } else if constexpr (std::is_same_v<Plain, ProbeTaken> || std::is_same_v<Plain, ProbeEnd>) {
    field(m.pair);
    field(m.transfer);
    field(m.bytes);
  } else if constexpr (std::is_same_v<Plain, ProbeReport>) {
    field(m.pair);
    field(m.transfer);
    field(m.arrivals.bytes);
    field(m.arrivals.elapsed);
    field(m.arrivals.steady_bytes);
    field(m.arrivals.steady);
  } else if constexpr (std::is_same_v<Plain, ProbeTurn>) {
    field(m.pair);
    field(m.echo);
  } else if constexpr (std::is_same_v<Plain, ProbeDirection>) {
    field(m.pair);
    field(m.direction);
  }
}

void write_fields(Writer& out, const ProbeHello& hello) {
  out.put(hello.budget);
  out.put(hello.streams);
  out.put(hello.name);
}
void write_fields(Writer& out, const ProbeResult& result) {
  out.put(result.pair);
  out.put(static_cast<std::uint32_t>(result.result.a.value()));
  out.put(static_cast<std::uint32_t>(result.result.b.value()));
  out.put(result.result.echo);
  out.put(result.result.up);
  out.put(result.result.down);
}
void write_fields(Writer& out, const ProbeStop& stop) { out.put(stop.why.substr(0, kMaxStopText)); }
template <typename Message>
void write_fields(Writer& out, const Message& message) {
  visit_fields(out, message);
}

void read_fields(Reader& in, ProbeHello& hello) {
  in.get(hello.budget);
  in.get(hello.streams);
  in.get(hello.name, kMaxMemberName);
}
void read_fields(Reader& in, ProbeResult& result) {
  std::uint32_t a = 0, b = 0;
  in.get(result.pair);
  in.get(a);
  in.get(b);
  constexpr std::uint32_t kLargest = 0x7fffffff;
  const bool ranks = a <= kLargest && b <= kLargest;  // else a pair that is refused
  result.result.a = WorkerId(ranks ? static_cast<int>(a) : 0);
  result.result.b = WorkerId(ranks ? static_cast<int>(b) : 0);
  in.get(result.result.echo);
  in.get(result.result.up);
  in.get(result.result.down);
}
void read_fields(Reader& in, ProbeStop& stop) { in.get(stop.why, kMaxStopText); }
template <typename Message>
void read_fields(Reader& in, Message& message) {
  visit_fields(in, message);
}

std::string fault_in(const ProbeHello& hello) {
  const bool good = hello.budget > Duration{0} && hello.budget <= std::chrono::hours(1) &&
                    hello.streams >= 1 && hello.streams <= 64;
  return good ? ""
              : fmt::format("{} ns a direction with {} streams", hello.budget.count(),
                            hello.streams);
}
std::string fault_in(const ProbeTurn& turn) { return fault_of(turn.echo); }
std::string fault_in(const ProbeDirection& direction) { return fault_of(direction.direction); }
std::string fault_in(const ProbeResult& result) {
  return result.result.a < result.result.b
             ? fault_of(result.result)
             : fmt::format("a pair of {} and {}", result.result.a.value(), result.result.b.value());
}
template <typename Message>
std::string fault_in(const Message&) {
  return {};
}

template <std::size_t kKind = 0>
std::optional<ProbeMessage> message_of(std::size_t kind) {
  if constexpr (kKind < std::variant_size_v<ProbeMessage>) {
    return kind == kKind ? ProbeMessage(std::in_place_index<kKind>) : message_of<kKind + 1>(kind);
  } else {
    return std::nullopt;
  }
}

void put_header(Writer& out, const ProbeMessage& message) {
  out.put(kProbeMagic);
  out.put(kProbeVersion);
  out.put(static_cast<std::uint16_t>(message.index() + 1));
}

/// The output of SplitMix64 (Steele et al. 2014): nothing that a compressor could use, with a fifth
/// of Philox's multiplications, so that its filler does not hold up the sender of a fast link.
std::uint64_t mixed(std::uint64_t state) {
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

}  // namespace

const char* name_of(const ProbeMessage& message) {
  static constexpr const char* kNames[] = {"a hello",     "a ping",   "a pong",   "a load",
                                           "a receipt",   "an end",   "a report", "a turn",
                                           "a direction", "a result", "a stop"};
  static_assert(std::size(kNames) == std::variant_size_v<ProbeMessage>);
  return kNames[message.index()];
}

std::vector<std::byte> write_probe(const ProbeMessage& message) {
  Writer out;
  put_header(out, message);
  std::visit([&](const auto& each) { write_fields(out, each); }, message);
  return out.take();
}

Expected<ProbeMessage, std::string> read_probe(std::span<const std::byte> payload) {
  const auto refuse = [](std::string why) { return Unexpected<std::string>(std::move(why)); };
  Reader in(payload);
  std::uint32_t magic = 0;
  std::uint16_t version = 0, kind = 0;
  in.get(magic);
  in.get(version);
  in.get(kind);
  if (!in.good() || magic != kProbeMagic) {
    return refuse(fmt::format("{} bytes that are no message of a measurement", payload.size()));
  }
  if (version != kProbeVersion) {
    return refuse(
        fmt::format("a measurement of version {}; this build speaks {}: use the same "
                    "version of isthmus at all sites",
                    version, kProbeVersion));
  }
  std::optional<ProbeMessage> message = message_of(kind == 0 ? std::size_t(-1) : kind - 1u);
  if (!message) {
    return refuse(fmt::format("a message of unknown kind {}", kind));
  }
  const bool load = std::holds_alternative<ProbeLoad>(*message);
  if (!load && payload.size() > kMostMessageBytes) {
    return refuse(fmt::format("{} of {} bytes", name_of(*message), payload.size()));
  }
  std::string fault;
  std::visit(
      [&](auto& each) {
        read_fields(in, each);
        if (in.good()) fault = fault_in(each);
      },
      *message);
  if (load ? !in.good() : !in.at_end()) {
    return refuse(
        fmt::format("{} of {} bytes whose fields cannot be", name_of(*message), payload.size()));
  }
  if (!fault.empty()) {
    return refuse(fmt::format("{} that cannot be: {}", name_of(*message), fault));
  }
  return *message;
}

FrameBytes probe_frame(const ProbeMessage& message) {
  return make_frame({.kind = FrameKind::kNote}, write_probe(message));
}

FrameBytes load_frame(const ProbeLoad& load, std::uint64_t place, std::size_t payload_bytes) {
  ISTHMUS_CHECK(payload_bytes >= kSmallestLoad && payload_bytes <= kMaxFramePayload, payload_bytes);
  const std::vector<std::byte> head = write_probe(load);
  static_assert(kHeaderBytes + 8 == kSmallestLoad);
  FrameBuilder frame({.kind = FrameKind::kNote}, payload_bytes);
  const std::span<std::byte> payload = frame.payload();
  std::ranges::copy(head, payload.begin());
  const std::array<std::uint32_t, 4> seed = Rng(load.transfer, Stream::kTestData).words(place);
  std::uint64_t state = std::uint64_t{seed[0]} << 32 | seed[1];
  for (std::size_t i = head.size(); i < payload.size(); i += sizeof state) {
    state += 0x9e3779b97f4a7c15;
    const std::uint64_t word = mixed(state);
    std::memcpy(&payload[i], &word, std::min(sizeof word, payload.size() - i));
  }
  return std::move(frame).finish();
}

}  // namespace isthmus
