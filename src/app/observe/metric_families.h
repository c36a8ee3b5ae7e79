// SPDX-License-Identifier: Apache-2.0
// Metrics in Prometheus' text format 0.0.4, filled by the callers: base units, counters end in
// _total, every name begins with isthmus_. One thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace isthmus::app {

class MetricFamilies {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;  // name, value

  void gauge(const std::string& name, const std::string& help) { add(name, help, false); }
  void counter(const std::string& name, const std::string& help) { add(name, help, true); }
  /// A family of one value.
  template <typename Number>
  void gauge(const std::string& name, const std::string& help, const Number& number) {
    gauge(name, help);
    value(number);
  }
  template <typename Number>
  void counter(const std::string& name, const std::string& help, const Number& number) {
    counter(name, help);
    value(number);
  }
  /// A value of the last named family.
  template <typename Number>
  void value(Number number, const Labels& labels = {}) {
    families_.back().values.push_back({static_cast<double>(number), labels});
  }
  void value(const std::optional<double>& number) {
    if (number) value(*number);
  }
  /// Families without a value are left out.
  [[nodiscard]] std::string text() const;

 private:
  struct Value {
    double number = 0;
    Labels labels;
  };
  struct Family {
    std::string name, help;
    bool counts = false;
    std::vector<Value> values;
  };
  void add(const std::string& name, const std::string& help, bool counts) {
    families_.push_back({"isthmus_" + name, help, counts, {}});
  }
  std::vector<Family> families_;
};

}  // namespace isthmus::app
