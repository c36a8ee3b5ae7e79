// SPDX-License-Identifier: Apache-2.0
#include "transport/collectives/waiting_communicator.h"

#include <utility>

namespace isthmus {
namespace {

/// Counts its life.
class Stretch {
 public:
  Stretch(const Clock& clock, WaitingTime& waited)
      : clock_(clock), waited_(waited), begin_(clock.now()) {}
  ~Stretch() { waited_.add(clock_.now() - begin_); }
  Stretch(const Stretch&) = delete;
  Stretch& operator=(const Stretch&) = delete;

 private:
  const Clock& clock_;
  WaitingTime& waited_;
  const TimePoint begin_;
};

class WaitingWork final : public Work {
 public:
  WaitingWork(std::unique_ptr<Work> inner, const Clock& clock, WaitingTime& waited)
      : inner_(std::move(inner)), clock_(clock), waited_(waited) {}
  [[nodiscard]] bool done() const override { return inner_->done(); }
  void wait() override {
    const Stretch stretch(clock_, waited_);
    inner_->wait();
  }

 private:
  const std::unique_ptr<Work> inner_;
  const Clock& clock_;
  WaitingTime& waited_;
};

class WaitingCommunicator final : public Communicator {
 public:
  /// owned: the object behind `inner`, if it was split off, or null.
  WaitingCommunicator(Communicator& inner, std::unique_ptr<Communicator> owned, const Clock& clock,
                      WaitingTime& waited)
      : owned_(std::move(owned)), inner_(inner), clock_(clock), waited_(waited) {}

  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  [[nodiscard]] std::string_view backend() const override { return inner_.backend(); }

  void all_reduce(Values values, Reduce reduce) override {
    const Stretch stretch(clock_, waited_);
    inner_.all_reduce(values, reduce);
  }
  void reduce_scatter(ConstValues input, std::span<const std::int64_t> counts, Values output,
                      Reduce reduce) override {
    const Stretch stretch(clock_, waited_);
    inner_.reduce_scatter(input, counts, output, reduce);
  }
  void all_gather(ConstValues input, std::span<const std::int64_t> counts, Values output) override {
    const Stretch stretch(clock_, waited_);
    inner_.all_gather(input, counts, output);
  }
  void broadcast(Values values, int root) override {
    const Stretch stretch(clock_, waited_);
    inner_.broadcast(values, root);
  }
  void all_to_all(ConstValues input, std::span<const std::int64_t> send_counts, Values output,
                  std::span<const std::int64_t> receive_counts, std::int64_t of_all) override {
    const Stretch stretch(clock_, waited_);
    inner_.all_to_all(input, send_counts, output, receive_counts, of_all);
  }
  void send(ConstValues values, int to, int tag) override {
    const Stretch stretch(clock_, waited_);
    inner_.send(values, to, tag);
  }
  void receive(Values values, int from, int tag) override {
    const Stretch stretch(clock_, waited_);
    inner_.receive(values, from, tag);
  }
  void barrier() override {
    const Stretch stretch(clock_, waited_);
    inner_.barrier();
  }
  [[nodiscard]] std::unique_ptr<Work> start(std::function<void(Communicator&)> operation) override {
    return std::make_unique<WaitingWork>(inner_.start(std::move(operation)), clock_, waited_);
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    const Stretch stretch(clock_, waited_);
    std::unique_ptr<Communicator> part = inner_.split(color, key);
    Communicator& group = *part;
    return std::make_unique<WaitingCommunicator>(group, std::move(part), clock_, waited_);
  }
  void abort(const std::string& cause) noexcept override { inner_.abort(cause); }
  [[nodiscard]] std::string end_cause() override { return inner_.end_cause(); }

 private:
  const std::unique_ptr<Communicator> owned_;
  Communicator& inner_;
  const Clock& clock_;
  WaitingTime& waited_;
};

}  // namespace

std::unique_ptr<Communicator> make_waiting_communicator(Communicator& inner, const Clock& clock,
                                                        WaitingTime& waited) {
  return std::make_unique<WaitingCommunicator>(inner, nullptr, clock, waited);
}

}  // namespace isthmus
