// SPDX-License-Identifier: Apache-2.0
#include "transport/exchange/catch_up/retained_results.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/log.h"
#include "core/base/units.h"
#include "isthmus/errors.h"

namespace isthmus {

RetainedResults::RetainedResults(Storage& storage, std::filesystem::path file, Room room)
    : storage_(storage), file_(std::move(file)), room_(std::move(room)) {}

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

std::optional<std::string> RetainedResults::no_room(std::uint64_t bytes) const {
  if (size_ + bytes > room_.most_bytes) {
    return fmt::format("the results since take more than the {} that net.heal allows",
                       human_bytes(static_cast<double>(room_.most_bytes)));
  }
  if (const std::uint64_t free = room_.free_bytes(); free < kLeavesFree + bytes) {
    return fmt::format("the disk has {} free, of which {} are left for everything else",
                       human_bytes(static_cast<double>(free)),
                       human_bytes(static_cast<double>(kLeavesFree)));
  }
  return std::nullopt;
}

void RetainedResults::keep(const SyncId& id, const Reduced& result,
                           std::span<const EncodedShare> encoded, const Digest128& committed) {
  if (lack_) return;
  try {
    const std::uint64_t bytes = written_bytes(result, encoded);
    lack_ = no_room(bytes);
    if (!lack_) {
      if (!writer_) writer_ = exists_ ? storage_.append(file_) : storage_.create(file_);
      exists_ = true;
      write_result(id, result, encoded,
                   [this](std::span<const std::byte> piece) { writer_->append(piece); });
      places_[id] = {.begin = size_, .bytes = bytes, .committed = committed};
      size_ += bytes;
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

Expected<Reduced, std::string> RetainedResults::read(const SyncId& id, const AskedRound& asked,
                                                     int members) {
  Expected<Reduced, std::string> result = Unexpected<std::string>("is not retained");
  try {
    const auto place = places_.find(id);
    if (place != places_.end()) result = read_at(*place, asked, members);
  } catch (const SystemError& error) {
    result = Unexpected<std::string>(fmt::format("cannot be read: {}", error.what()));
  }
  if (result) return result;
  return Unexpected<std::string>(fmt::format("the {} {}", round_name(id), result.error()));
}

Expected<Reduced, std::string> RetainedResults::read_at(const Kept& kept, const AskedRound& asked,
                                                        int members) {
  const auto changed = [](const std::string& how) {
    return Unexpected<std::string>(fmt::format(
        "is not what was committed: this site's memory or disk has changed it ({})", how));
  };
  const auto& [id, place] = kept;
  writer_.reset();
  const MappedFile file = storage_.map(file_);
  if (file.bytes().size() < place.begin + place.bytes) return changed("it has been cut off");
  auto read = read_result(file.bytes().subspan(place.begin, place.bytes), members);
  if (!read) return changed(read.error());
  if (read->id != id) return changed("it says to be the " + round_name(read->id));
  auto result = as_a_member_has_it(std::move(read->reduced), read->encoded, asked, members);
  if (!result) return changed(result.error());
  if (const Digest128 digest = digest_of(*result, members); digest != place.committed) {
    return changed(fmt::format("{}, not {}", digest.hex(), place.committed.hex()));
  }
  return *std::move(result);
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
    auto result = results_.read(id, of, members());
    if (result) return *std::move(result);
    return Unexpected<ExchangeError>(
        ExchangeError{ExchangeError::Kind::kCorrupt, self(), result.error()});
  }
  Expected<Reduced, ExchangeError> result = real_.wait(ticket, patience);
  const auto open = open_.find(id);
  if (result && open != open_.end() && open->second && !results_.lack()) {
    const ResultOrigin origin = origin_ ? origin_(id) : ResultOrigin();
    const Digest128 digest = origin.digest ? *origin.digest : digest_of(*result, members());
    results_.keep(id, *result, origin.encoded, digest);
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
