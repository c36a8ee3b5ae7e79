// SPDX-License-Identifier: Apache-2.0
#include "core/base/mapped_files.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

namespace isthmus {
namespace {

/// Read by a signal handler, so nothing here allocates or locks there.
struct NamedMapping {
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<std::size_t> size{0};
  std::array<char, 256> path{};  // cut off where it is longer
};
std::array<NamedMapping, 1024> named_mappings;
std::mutex mappings_mutex;  // of those that note and forget

void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void end_with_words(int, siginfo_t* info, void*) {
  constexpr int kSystemError = 4;
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  const char* path = "a mapped file";
  for (const NamedMapping& each : named_mappings) {
    const std::byte* const begin = each.begin.load();
    if (begin != nullptr && at >= begin && at < begin + each.size.load()) path = each.path.data();
  }
  say("isthmus: error: ");
  say(path);
  say(": has become shorter while it was read, or its disk cannot be read: put the whole file "
      "back, "
      "and go on with --resume auto\n");
  ::_exit(kSystemError);
}

}  // namespace

void note_mapping(const std::byte* begin, std::size_t size, std::string_view path) {
  const std::scoped_lock lock(mappings_mutex);
  const auto free = std::ranges::find_if(
      named_mappings, [](const NamedMapping& each) { return each.begin.load() == nullptr; });
  if (free == named_mappings.end()) return;
  const std::size_t length = std::min(path.size(), free->path.size() - 1);
  std::memcpy(free->path.data(), path.data(), length);
  free->path[length] = '\0';
  free->size = size;
  free->begin = begin;
}

void forget_mapping(const std::byte* begin) {
  const std::scoped_lock lock(mappings_mutex);
  const auto found = std::ranges::find_if(
      named_mappings, [begin](const NamedMapping& each) { return each.begin.load() == begin; });
  if (found != named_mappings.end()) found->begin = nullptr;
}

void end_with_words_at_shortened_files() {
  struct sigaction action {};
  action.sa_sigaction = end_with_words;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace isthmus
