// Early return on a failed Status, for functions returning Status or StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TANDEM_CONCAT_INNER(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_INNER(a, b)

#define TANDEM_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    absl::Status tandem_status_ = (expr);            \
    if (!tandem_status_.ok()) return tandem_status_; \
  } while (false)

// TANDEM_ASSIGN_OR_RETURN(auto x, MakeX());
#define TANDEM_ASSIGN_OR_RETURN(lhs, expr) \
  TANDEM_ASSIGN_OR_RETURN_INNER(TANDEM_CONCAT(tandem_statusor_, __LINE__), lhs, expr)
#define TANDEM_ASSIGN_OR_RETURN_INNER(var, lhs, expr) \
  auto var = (expr);                                  \
  if (!var.ok()) return std::move(var).status();      \
  lhs = std::move(var).value()
