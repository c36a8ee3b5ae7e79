// SPDX-License-Identifier: Apache-2.0
#include "transport/retained_results.h"

#include <fmt/format.h>

#include <utility>

#include "core/log.h"
#include "core/units.h"
#include "isthmus/errors.h"

namespace isthmus {

RetainedResults::RetainedResults(Storage& storage, std::filesystem::path file,
                                 std::uint64_t most_bytes)
    : storage_(storage), file_(std::move(file)), most_bytes_(most_bytes) {}

RetainedResults::~RetainedResults() { forget(); }

void RetainedResults::forget() {
  writer_.reset();
  places_.clear();
  size_ = 0;
  if (!std::exchange(exists_, false)) return;
  try {
    storage_.remove(file_);
  } catch (const SystemError& error) {
    log_warning("{}", error.what());
  }
}

void RetainedResults::restart() {
  forget();
  lack_.reset();
}

void RetainedResults::keep(const SyncId& id, const Reduced& result,
                           std::span<const EncodedShare> encoded) {
  if (lack_) return;
  try {
    const std::vector<std::byte> bytes = write_result(id, result, encoded);
    if (size_ + bytes.size() > most_bytes_) {
      lack_ = fmt::format("the results since take more than the {} that net.heal allows",
                          human_bytes(static_cast<double>(most_bytes_)));
    } else {
      if (!writer_) writer_ = exists_ ? storage_.append(file_) : storage_.create(file_);
      exists_ = true;
      writer_->append(bytes);
      places_[id] = {.begin = size_, .bytes = bytes.size(), .digest = xxh3_128(bytes)};
      size_ += bytes.size();
    }
  } catch (const std::exception& error) {  // of the disk, or for want of memory
    lack_ = error.what();
  }
  if (!lack_) return;
  log_info(
      "results are retained no more until the next checkpoint, so a fault of this site's memory "
      "could not be healed by then: {}",
      *lack_);
  forget();
}

void RetainedResults::forget_after(StepIndex last) {
  std::erase_if(places_, [&](const auto& each) { return each.first.sent > last; });
}

Expected<RoundResult, std::string> RetainedResults::read(const SyncId& id, int members) {
  const auto no = [&](const std::string& why) {
    return Unexpected<std::string>(fmt::format("the {} {}", round_name(id), why));
  };
  const auto place = places_.find(id);
  if (place == places_.end()) return no("is not retained");
  writer_.reset();
  try {
    const MappedFile file = storage_.map(file_);
    const auto& [begin, bytes, digest] = place->second;
    if (file.bytes().size() < begin + bytes) return no("has been cut off on the disk");
    const std::span<const std::byte> stored = file.bytes().subspan(begin, bytes);
    if (xxh3_128(stored) != digest) return no("is not on the disk as it was written");
    auto result = read_result(stored, members);
    if (!result) return no(result.error());
    return *std::move(result);
  } catch (const SystemError& error) {
    return no(fmt::format("cannot be read: {}", error.what()));
  }
}

void RetainingExchange::set_replaying(bool replaying) {
  replaying_ = replaying;
  asked_.clear();
}

Ticket RetainingExchange::begin(Contribution contribution) {
  const SyncId id = contribution.id;
  if (!replaying_) {
    open_[id] = contribution.encoded.values > 0;
    return real_.begin(std::move(contribution));
  }
  if (results_.holds(id) || !open_.contains(id)) asked_[id] = asked_of(contribution);
  return {id};
}

bool RetainingExchange::poll(const Ticket& ticket) {
  return asked_.contains(ticket.id) || real_.poll(ticket);
}

Expected<Reduced, ExchangeError> RetainingExchange::wait(const Ticket& ticket, Duration patience) {
  const SyncId& id = ticket.id;
  if (const auto asked = asked_.find(id); asked != asked_.end()) {
    const AskedRound of = asked->second;
    asked_.erase(asked);
    if (of.values == 0) return Reduced{};  // it only commits others
    auto read = results_.read(id, members());
    auto result = read ? as_a_member_has_it(std::move(read->reduced), read->encoded, of, members())
                       : Unexpected<std::string>(read.error());
    if (result) return *std::move(result);
    return Unexpected<ExchangeError>(
        ExchangeError{ExchangeError::Kind::kCorrupt, self(), result.error()});
  }
  Expected<Reduced, ExchangeError> result = real_.wait(ticket, patience);
  const auto open = open_.find(id);
  if (result && open != open_.end() && open->second) {
    results_.keep(id, *result, encoded_ ? encoded_(id) : std::vector<EncodedShare>());
  }
  if (result && open != open_.end()) open_.erase(open);
  return result;
}

StepIndex RetainingExchange::go_back() {
  const StepIndex last = real_.go_back();
  std::erase_if(open_, [&](const auto& each) { return each.first.sent > last; });
  results_.forget_after(last);
  return last;
}

}  // namespace isthmus
