// SPDX-License-Identifier: Apache-2.0
#include "app/observe/metric_families.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

namespace isthmus::app {

std::string MetricFamilies::text() const {
  std::vector<prometheus::MetricFamily> filled;
  for (const Family& each : families_) {
    if (each.values.empty()) continue;
    prometheus::MetricFamily family;
    family.name = each.name;
    family.help = each.help;
    family.type = each.counts ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
    for (const Value& value : each.values) {
      prometheus::ClientMetric metric;
      for (const auto& [name, text] : value.labels) metric.label.push_back({name, text});
      metric.counter.value = value.number;
      metric.gauge.value = value.number;
      family.metric.push_back(std::move(metric));
    }
    filled.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(filled);
}

}  // namespace isthmus::app
