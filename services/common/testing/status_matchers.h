// Assertions on absl::Status and StatusOr.
//
//   ASSERT_OK(worker->Load(...));
//   ASSERT_OK_AND_ASSIGN(const StepBatch step, ParseStep(...));
//   EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("demo")));
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/base/status_macros.h"

namespace tandem::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg);
  return StatusOf(arg).ok();
}

MATCHER_P(HasCode, code, "has code " + absl::StatusCodeToString(code)) {
  *result_listener << StatusOf(arg);
  return StatusOf(arg).code() == code;
}

MATCHER_P2(StatusIs, code, message,
           "has code " + absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message)) {
  *result_listener << StatusOf(arg);
  return StatusOf(arg).code() == code &&
         ::testing::ExplainMatchResult(message, std::string(StatusOf(arg).message()),
                                       result_listener);
}

}  // namespace tandem::testing

#define ASSERT_OK(expr) ASSERT_THAT((expr), ::tandem::testing::IsOk())
#define EXPECT_OK(expr) EXPECT_THAT((expr), ::tandem::testing::IsOk())
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_INNER(TANDEM_CONCAT(tandem_tested_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_INNER(var, lhs, expr) \
  auto var = (expr);                               \
  ASSERT_THAT(var, ::tandem::testing::IsOk());     \
  lhs = std::move(var).value()
