// SPDX-License-Identifier: Apache-2.0
// Two ranks of a site in one process: the caller's collectives are queues, and rank 1 is a thread.
// The oracle is the same run with its outer state at one process.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "isthmus/c.h"

namespace isthmus::this_file {
namespace {

constexpr std::int64_t kWaits = 60'000'000'000;

/// What went wrong, freed; of a success empty.
std::string text_of(isthmus_error* error) {
  if (error == nullptr) return {};
  std::string text = isthmus_error_text(error);
  isthmus_error_free(error);
  return text;
}

/// Messages between the two ranks, and rank 0's orders to rank 1.
class Queues {
 public:
  void put(int to, const void* bytes, std::size_t count) {
    const auto* const begin = static_cast<const std::uint8_t*>(bytes);
    const std::lock_guard lock(mutex_);
    messages_[to].emplace_back(begin, begin + count);
    changed_.notify_all();
  }
  /// RETURNS: whether the message has the size that is asked for.
  bool take(int at, void* bytes, std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !messages_[at].empty(); });
    const std::vector<std::uint8_t> found = std::move(messages_[at].front());
    messages_[at].pop_front();
    if (found.size() == count) std::memcpy(bytes, found.data(), count);
    return found.size() == count;
  }
  void order(bool more) {
    const std::lock_guard lock(mutex_);
    orders_.push_back(more);
    begun_ += more ? 1 : 0;
    changed_.notify_all();
  }
  bool next_order() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !orders_.empty(); });
    const bool more = orders_.front();
    orders_.pop_front();
    return more;
  }
  [[nodiscard]] int begun() const { return begun_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<std::uint8_t>> messages_[2];
  std::deque<bool> orders_;
  int begun_ = 0;
};

struct End {
  Queues* queues = nullptr;
  int rank = 0;
  bool works = true;
  std::int64_t calls = 0;
};

std::int32_t collective(void* context, std::int32_t operation, std::int32_t peer, void* bytes,
                        std::size_t count) {
  End& end = *static_cast<End*>(context);
  ++end.calls;
  if (!end.works) return 1;
  const bool broadcasts = operation == ISTHMUS_RANKS_BROADCAST;
  if (operation == ISTHMUS_RANKS_BEGIN) {
    end.queues->order(true);
  } else if (operation == ISTHMUS_RANKS_SEND || (broadcasts && end.rank == 0)) {
    end.queues->put(broadcasts ? 1 : peer, bytes, count);
  } else {
    return end.queues->take(end.rank, bytes, count) ? 0 : 1;
  }
  return 0;
}

/// A site of one parameter, which has three tiles.
class Rank {
 public:
  /// `end`: null for a site of one process.
  Rank(const std::string& name, const char* placement, End* end) : values_(9000) {
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = static_cast<float>(i % 97) * 0.125f;
    const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / name;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    const std::string file = (folder / "run.toml").string(), out = (folder / "run").string();
    std::ofstream(file) << "[train]\nsteps = 6\n[outer]\nmethod = \"diloco\"\nH = 2\nplacement = \""
                        << placement
                        << "\"\n[net]\nplaintext = true\n[[site]]\nname = \"east\"\n"
                           "address = \"127.0.0.1:1\"\n";
    isthmus_session_options options{};
    options.size = sizeof options;
    options.config = file.c_str();
    options.out = out.c_str();
    options.site = "east";
    options.listen = "127.0.0.1:*";
    EXPECT_EQ(text_of(isthmus_session_new(&options, &session_)), "");
    if (end != nullptr) {
      EXPECT_EQ(text_of(isthmus_session_ranks(session_, end->rank, 2, collective, end)), "");
    }
    const auto shape = static_cast<std::int64_t>(values_.size());
    const isthmus_parameter parameter{
        .size = sizeof(isthmus_parameter),
        .name = "a",
        .shape = &shape,
        .dimensions = 1,
        .values = end != nullptr && end->rank != 0 ? nullptr : values_.data(),
        .layer = -1};
    EXPECT_EQ(text_of(isthmus_session_worker(session_, 0, &parameter, 1)), "");
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() { EXPECT_EQ(isthmus_session_free(session_), 1); }
  [[nodiscard]] isthmus_session* session() const { return session_; }
  [[nodiscard]] const std::vector<float>& values() const { return values_; }

  /// RETURNS: the open request, which is not a step.
  isthmus_request train() {
    for (;;) {
      isthmus_request request{};
      request.size = sizeof request;
      EXPECT_EQ(text_of(isthmus_next(session_, 0, kWaits, &request)), "");
      if (request.kind != ISTHMUS_TRAIN) return request;
      for (std::size_t i = 0; i < values_.size(); ++i)
        values_[i] += static_cast<float>(request.step) * static_cast<float>(i % 13) * 0.0625f;
      isthmus_step step{};
      step.size = sizeof step;
      step.loss = 1;
      step.tokens = 1;
      EXPECT_EQ(text_of(isthmus_answer(session_, 0, &step)), "");
    }
  }

 private:
  std::vector<float> values_;
  isthmus_session* session_ = nullptr;
};

// A request is answered after its part, and its part is done once: the outer step would else come
// from pages that hold nothing, or come twice.
TEST(CRanks, TwoRanksTrainAsOneProcess) {
  Rank whole("c_ranks_whole", "host", nullptr);
  ASSERT_EQ(text_of(isthmus_session_start(whole.session())), "");
  for (isthmus_request open = whole.train(); open.kind != ISTHMUS_END; open = whole.train()) {
    ASSERT_NE(open.kind, ISTHMUS_NOTHING);
    ASSERT_EQ(text_of(isthmus_answer(whole.session(), 0, nullptr)), "");
  }

  Queues queues;
  End ends[2] = {{&queues, 0}, {&queues, 1}};
  Rank first("c_ranks_0", "ranks", &ends[0]), second("c_ranks_1", "ranks", &ends[1]);
  int served = 0;
  std::thread follower([&] {
    while (queues.next_order()) {
      EXPECT_EQ(text_of(isthmus_ranks(second.session(), 0)), "");
      ++served;
    }
  });
  EXPECT_EQ(text_of(isthmus_session_start(first.session())), "");
  int parts = 0;
  for (isthmus_request open = first.train();
       open.kind != ISTHMUS_END && open.kind != ISTHMUS_NOTHING; open = first.train()) {
    if (open.kind == ISTHMUS_RANKS) {
      ++parts;
      EXPECT_EQ(text_of(isthmus_answer(first.session(), 0, nullptr)),
                "ISTHMUS_RANKS is open, and its part has not been done: call isthmus_ranks, then "
                "answer");
      EXPECT_EQ(text_of(isthmus_ranks(first.session(), 0)), "");
      EXPECT_EQ(
          text_of(isthmus_ranks(first.session(), 0)),
          "isthmus_ranks: was called for this ISTHMUS_RANKS before: call it once, then answer");
    }
    EXPECT_EQ(text_of(isthmus_answer(first.session(), 0, nullptr)), "");
  }
  queues.order(false);
  follower.join();
  EXPECT_GT(parts, 0);
  EXPECT_EQ(queues.begun(), parts);
  EXPECT_EQ(served, parts);
  EXPECT_EQ(isthmus_ranks_calls(first.session()), ends[0].calls);
  EXPECT_EQ(isthmus_ranks_calls(second.session()), ends[1].calls);
  EXPECT_EQ(isthmus_ranks_calls(whole.session()), 0);
  EXPECT_EQ(first.values(), whole.values());
}

TEST(CRanks, ACollectiveThatFailsEndsTheRun) {
  Queues queues;
  End end{&queues, 0};
  Rank first("c_ranks_fails", "ranks", &end);
  ASSERT_EQ(text_of(isthmus_session_start(first.session())), "");
  isthmus_request open = first.train();
  while (open.kind != ISTHMUS_RANKS) {
    ASSERT_NE(open.kind, ISTHMUS_END);
    ASSERT_EQ(text_of(isthmus_answer(first.session(), 0, nullptr)), "");
    open = first.train();
  }
  end.works = false;
  const std::string said = text_of(isthmus_ranks(first.session(), 0));
  EXPECT_EQ(said,
            "a collective between the ranks of this site has failed (begin of 0 bytes): the caller "
            "says why");
  EXPECT_EQ(text_of(isthmus_answer(first.session(), 0, nullptr)), "");
  EXPECT_EQ(text_of(isthmus_next(first.session(), 0, kWaits, &open)), said);
}

}  // namespace
}  // namespace isthmus::this_file
