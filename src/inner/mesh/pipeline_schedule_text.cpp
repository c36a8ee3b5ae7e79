// SPDX-License-Identifier: Apache-2.0
#include "inner/mesh/pipeline_schedule_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace isthmus {
namespace {

constexpr std::size_t kNarrowest = 24;         // columns of time
constexpr std::size_t kMostColumns = 100'000;  // columns of all of it

std::string label_of(const PipelineSchedule& schedule, const PipelineOp& op) {
  const char letter = op.kind == PipelineOpKind::kForward          ? 'F'
                      : op.kind == PipelineOpKind::kBackwardWeight ? 'W'
                                                                   : 'B';
  std::string label = fmt::format("{}{}", letter, op.micro_batch);
  constexpr int kLetters = 26;
  if (schedule.chunks > kLetters) return label + fmt::format(".{}", op.chunk);
  if (schedule.chunks > 1) label += static_cast<char>('a' + op.chunk);
  return label;
}

/// A pass in columns.
struct Cell {
  std::size_t begin = 0, end = 0;
  std::string text;  // end - begin columns, the last one blank
  const PipelineOp* operation = nullptr;
};

class Drawing {
 public:
  Drawing(const PipelineSchedule& schedule, const PipelineReport& report,
          const PipelineTextOptions& options)
      : schedule_(schedule), options_(options) {
    scale(report);
    for (const PipelineRankReport& rank : report.ranks) {
      std::vector<Cell> cells;
      for (const PipelinePass& pass : rank.passes) {
        Cell cell;
        cell.begin = column(pass.begin);
        cell.end = column(pass.end);
        if (cell.end == cell.begin) continue;
        cell.operation = &pass.operation;
        cell.text = label_of(schedule, pass.operation).substr(0, cell.end - cell.begin);
        cell.text.resize(cell.end - cell.begin - 1, '-');
        cell.text += ' ';
        cells.push_back(std::move(cell));
      }
      rows_.push_back(std::move(cells));
    }
    columns_ = column(report.makespan);
  }

  [[nodiscard]] std::string text() const {
    const std::size_t name = fmt::format("rank {} | ", schedule_.ranks - 1).size();
    const std::size_t room = std::max(kNarrowest, options_.width - std::min(options_.width, name));
    const std::size_t block = std::max<std::size_t>(room / cell_ * cell_, cell_);
    std::string lines;
    std::size_t begin = 0;
    for (std::size_t i = 0; begin < columns_ && i < options_.blocks; ++i, begin += block) {
      if (i > 0) lines += '\n';
      for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
        const std::string head = fmt::format("rank {}", rank);
        lines += head + std::string(name - 3 - head.size(), ' ') + " | " +
                 line(rank, begin, std::min(begin + block, columns_)) + '\n';
      }
    }
    if (begin < columns_) {
      lines += fmt::format("... and {:.0f} % more\n", 100 * static_cast<double>(columns_ - begin) /
                                                          static_cast<double>(columns_));
    }
    return lines;
  }

 private:
  void scale(const PipelineReport& report) {
    double shortest = std::numeric_limits<double>::infinity();
    for (const PipelineRankReport& rank : report.ranks) {
      for (const PipelinePass& pass : rank.passes) {
        if (pass.end > pass.begin) shortest = std::min(shortest, pass.end - pass.begin);
        cell_ = std::max(cell_, label_of(schedule_, pass.operation).size() + 1);
      }
    }
    if (report.makespan <= 0) return;
    per_time_ = std::min(static_cast<double>(cell_) / shortest,
                         static_cast<double>(kMostColumns) / report.makespan);
  }
  [[nodiscard]] std::size_t column(double time) const {
    return static_cast<std::size_t>(std::llround(time * per_time_));
  }

  /// Columns [from, to) of a rank.
  [[nodiscard]] std::string line(std::size_t rank, std::size_t from, std::size_t to) const {
    std::string text;
    std::size_t at = from;
    const auto wait_until = [&](std::size_t end) {
      for (; at < end; ++at) text += at % cell_ == 0 ? std::string(options_.waiting) : " ";
    };
    for (const Cell& cell : rows_[rank]) {
      if (cell.end <= from || cell.begin >= to) continue;
      wait_until(std::min(cell.begin, to));
      const std::size_t end = std::min(cell.end, to);
      const std::string_view part = std::string_view(cell.text).substr(at - cell.begin, end - at);
      text += options_.paint
                  ? options_.paint(cell.operation->kind, cell.operation->chunk % 2 == 1, part)
                  : std::string(part);
      at = end;
    }
    wait_until(to);
    while (text.ends_with(' ')) text.pop_back();
    return text;
  }

  const PipelineSchedule& schedule_;
  const PipelineTextOptions& options_;
  std::vector<std::vector<Cell>> rows_;
  std::size_t cell_ = 1;  // columns of the shortest pass
  double per_time_ = 0;
  std::size_t columns_ = 0;
};

}  // namespace

std::string draw_pipeline(const PipelineSchedule& schedule, const PipelineReport& report,
                          const PipelineTextOptions& options) {
  return Drawing(schedule, report, options).text();
}

}  // namespace isthmus
