// SPDX-License-Identifier: Apache-2.0
#include "transport/mix_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/json_input.h"
#include "isthmus/errors.h"

namespace isthmus {
namespace {

using Json = nlohmann::json;

constexpr std::pair<std::string_view, Operation> kOperations[] = {
    {"all_reduce", Operation::kAllReduce}, {"reduce_scatter", Operation::kReduceScatter},
    {"all_gather", Operation::kAllGather}, {"broadcast", Operation::kBroadcast},
    {"all_to_all", Operation::kAllToAll},  {"barrier", Operation::kBarrier},
    {"message", Operation::kSend}};

auto place(const MeasuredCall& call) {
  return std::tuple(call.operation, call.bytes, std::string_view(call.backend));
}

std::string_view table_name(Operation operation) {
  for (const auto& [name, each] : kOperations) {
    if (each == operation) return name;
  }
  ISTHMUS_CHECK(false, operation_name(operation));
  return {};
}

/// Reads the keys of one object: each exactly once, none that is not asked for.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object_.is_object()) fail("must be an object");
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw SystemError(
        fmt::format("{}: {}; write the table with isthmus bench collectives --inner "
                    "--out FILE",
                    where_, why));
  }
  const Json& at(const char* key) {
    known_.insert(key);
    const auto found = object_.find(key);
    if (found == object_.end()) fail(fmt::format("'{}' is missing", key));
    return *found;
  }
  std::string text(const char* key) {
    const Json& value = at(key);
    if (!value.is_string()) fail(fmt::format("'{}' must be a text", key));
    return value.get<std::string>();
  }
  std::int64_t integer(const char* key, std::int64_t least, std::int64_t most) {
    const Json& value = at(key);
    if (!value.is_number_integer()) fail(fmt::format("'{}' must be an integer", key));
    const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX;
    const std::int64_t number = huge ? INT64_MAX : value.get<std::int64_t>();
    if (huge || number < least || number > most) {
      fail(fmt::format("'{}' is {}: must be in [{}, {}]", key, value.dump(), least, most));
    }
    return number;
  }
  void end() const {
    for (const auto& [key, value] : object_.items()) {
      if (!known_.contains(key)) fail(fmt::format("there is no key '{}'", key));
    }
  }

 private:
  const Json& object_;
  std::string where_;
  std::set<std::string> known_;
};

MeasuredCall measured_of(const Json& json, const std::string& where) {
  Fields fields(json, where);
  MeasuredCall call;
  const std::string name = fields.text("operation");
  for (const auto& [known, operation] : kOperations) {
    if (name == known) call.operation = operation;
  }
  if (call.operation == Operation::kNothing) {
    fields.fail(fmt::format("there is no operation '{}'", name));
  }
  call.backend = fields.text("backend");
  if (call.backend.empty()) fields.fail("'backend' is empty");
  call.bytes = fields.integer("bytes", 0, std::int64_t{1} << 50);
  const Json& us = fields.at("us");
  if (!us.is_number()) fields.fail("'us' must be a number");
  call.us = us.get<double>();
  if (!(call.us > 0) || !std::isfinite(call.us)) fields.fail("'us' must be above 0");
  fields.end();
  return call;
}

/// How far apart two sizes are: the quotient of the larger by the smaller.
double distance(std::int64_t a, std::int64_t b) {
  const auto least = static_cast<double>(std::min(a, b)) + 1;
  return (static_cast<double>(std::max(a, b)) + 1) / least;
}

}  // namespace

std::int64_t call_bytes(const Call& call) {
  if (call.operation == Operation::kAllToAll) return 0;
  return call.count * static_cast<std::int64_t>(dtype_bytes(call.dtype));
}

MixTable::MixTable(int ranks, std::vector<MeasuredCall> measured) : ranks_(ranks) {
  ISTHMUS_CHECK(ranks >= 1, ranks);
  for (const MeasuredCall& each : measured) add(each);
}

void MixTable::add(const MeasuredCall& call) {
  ISTHMUS_CHECK(call.bytes >= 0 && call.us > 0 && std::isfinite(call.us), call.bytes, call.us);
  const auto found = std::lower_bound(
      measured_.begin(), measured_.end(), call,
      [](const MeasuredCall& a, const MeasuredCall& b) { return place(a) < place(b); });
  if (found != measured_.end() && place(*found) == place(call)) {
    *found = call;
  } else {
    measured_.insert(found, call);
  }
}

std::string_view MixTable::choose(Operation operation, std::int64_t bytes,
                                  const std::vector<std::string>& backends) const {
  ISTHMUS_CHECK(!backends.empty());
  const auto place_in = [&](const MeasuredCall& call) {
    return std::find(backends.begin(), backends.end(), call.backend) - backends.begin();
  };
  const auto usable = [&](const MeasuredCall& call) {
    return call.operation == operation &&
           place_in(call) < static_cast<std::ptrdiff_t>(backends.size());
  };
  const MeasuredCall* best = nullptr;
  for (const MeasuredCall& each : measured_) {  // of rising size
    if (!usable(each)) continue;
    if (best == nullptr || distance(each.bytes, bytes) < distance(best->bytes, bytes) ||
        (each.bytes == best->bytes &&
         std::pair(each.us, place_in(each)) < std::pair(best->us, place_in(*best)))) {
      best = &each;
    }
  }
  return best == nullptr ? std::string_view(backends.front()) : std::string_view(best->backend);
}

std::string MixTable::json() const {
  std::string text = fmt::format(
      "{{\"isthmus\": \"collectives\", \"version\": 1, \"ranks\": {},\n"
      " \"measured\": [",
      ranks_);
  for (const MeasuredCall& each : measured_) {
    text += fmt::format("{}\n  {{\"operation\": {}, \"backend\": {}, \"bytes\": {}, \"us\": {}}}",
                        &each == measured_.data() ? "" : ",",
                        Json(std::string(table_name(each.operation))).dump(),
                        Json(each.backend).dump(), each.bytes, each.us);
  }
  return text + "]}\n";
}

std::uint64_t MixTable::digest() const {
  std::vector<std::int64_t> bytes;
  for (const char each : json()) bytes.push_back(each);
  return layout_digest(bytes);
}

MixTable parse_mix_table(std::string_view text, const std::string& label) {
  const Json json = parse_json(text, label);
  Fields fields(json, label);
  if (fields.text("isthmus") != "collectives") {
    fields.fail("'isthmus' must be \"collectives\": this is no table of back ends");
  }
  (void)fields.integer("version", 1, 1);
  MixTable table(static_cast<int>(fields.integer("ranks", 1, 1 << 20)), {});
  const Json& measured = fields.at("measured");
  if (!measured.is_array()) fields.fail("'measured' must be a list");
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const MeasuredCall call = measured_of(measured[i], fmt::format("{}: measured[{}]", label, i));
    const std::size_t before = table.measured().size();
    table.add(call);
    if (table.measured().size() == before) {
      fields.fail(fmt::format("measured[{}] was measured before in this file", i));
    }
  }
  fields.end();
  return table;
}

}  // namespace isthmus
