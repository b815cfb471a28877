// A guard of one connection, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "services/common/rpc/edge/h2_guard.h"
#include "services/common/rpc/edge/testing/h2_bytes.h"

namespace tandem {

inline constexpr int64_t kSecond = 1'000'000'000;

class H2GuardTest : public ::testing::Test {
 protected:
  H2GuardTest() { Begin(); }

  void Begin() {
    guard_.reset();
    totals_ = std::make_unique<H2Totals>(limits_);
    group_ = std::make_unique<H2Group>(limits_);
    guard_ = std::make_unique<H2Guard>(limits_, *totals_, *group_, now_);
    sent_ = 0;
  }
  H2Fault Client(const std::string& bytes) {
    sent_ += bytes.size();
    verdict_ = guard_->OnClient(bytes, now_);
    return verdict_.fault;
  }
  H2Fault Server(const std::string& bytes) {
    verdict_ = guard_->OnServer(bytes, now_);
    return verdict_.fault;
  }
  void Answer(uint32_t stream) {
    Server(testing::Headers(stream) + testing::Data(stream, 10) +
           testing::Headers(stream, /*end_stream=*/true));
  }
  bool AllReleased() const { return guard_->released_bytes() == sent_; }

  H2Limits limits_;
  int64_t now_ = 1000 * kSecond;
  std::unique_ptr<H2Totals> totals_;
  std::unique_ptr<H2Group> group_;
  std::unique_ptr<H2Guard> guard_;
  H2Verdict verdict_;
  uint64_t sent_ = 0;
};

}  // namespace tandem
