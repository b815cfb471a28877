// Tables for people to read.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tandem {

// Rows of cells; columns are as wide as their widest cell (bytes: ASCII is expected).
class TextTable {
 public:
  // One entry a column.
  explicit TextTable(std::vector<bool> right_aligned) : right_aligned_(std::move(right_aligned)) {}

  // REQUIRES: at most as many cells as columns.
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // One line a row, cells two spaces apart, each line after `indent`, no space at its end.
  std::string Print(const std::string& indent = "") const;

 private:
  std::vector<bool> right_aligned_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace tandem
