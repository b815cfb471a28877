#include "services/gateway/constraint/regex/expression.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/cancellation.h"
#include "services/gateway/constraint/work_time.h"

namespace tandem::gateway::constraint {
namespace {

constexpr size_t kNodesBetweenLooks = 64;  // at the clock

}  // namespace

ExpressionId ExpressionPool::Add(Expression node) {
  for (const ExpressionId child : node.children) {
    node.depth = std::max(node.depth, nodes_[child].depth + 1);
  }
  bytes_ += sizeof(node) + node.children.size() * sizeof(ExpressionId) + node.literal.size() +
            node.code_points.ranges().size() * sizeof(CodePointRange);
  if (status_.ok() && node.depth > kMaxDepth) {
    status_ = absl::InvalidArgumentError(
        absl::StrFormat("grammar: it is nested deeper than %d", kMaxDepth));
  } else if (status_.ok() && nodes_.size() % kNodesBetweenLooks == 0) {
    status_ = CheckCancelled();
    if (status_.ok() && (bytes_ > kMaxBytes || WorkTime() > deadline_)) {
      status_ = absl::ResourceExhaustedError(
          "grammar: it takes more time or memory to read than a grammar may");
    }
  }
  if (!status_.ok()) {
    // The last node is kNever already from the second time on.
    if (!nodes_.empty() && nodes_.back().kind == ExpressionKind::kNever) {
      return static_cast<ExpressionId>(nodes_.size() - 1);
    }
    node = {.kind = ExpressionKind::kNever};
  }
  nodes_.push_back(std::move(node));
  return static_cast<ExpressionId>(nodes_.size() - 1);
}

}  // namespace tandem::gateway::constraint
