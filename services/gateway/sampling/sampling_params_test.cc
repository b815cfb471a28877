#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "services/gateway/sampling/sampler.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;

TEST(SamplingParamsTest, NamesTheParameterItRefuses) {
  const float nan = std::nanf("");
  const float inf = std::numeric_limits<float>::infinity();
  struct Case {
    const char* name;
    std::function<void(SamplingParams&)> spoil;
  };
  const Case cases[] = {
      {"temperature", [&](auto& p) { p.temperature = -0.1f; }},
      {"temperature", [&](auto& p) { p.temperature = nan; }},
      {"temperature", [&](auto& p) { p.temperature = inf; }},
      {"temperature", [&](auto& p) { p.temperature = 101.0f; }},
      {"top_p", [&](auto& p) { p.top_p = 0.0f; }},
      {"top_p", [&](auto& p) { p.top_p = 1.01f; }},
      {"top_p", [&](auto& p) { p.top_p = nan; }},
      {"min_p", [&](auto& p) { p.min_p = -0.01f; }},
      {"min_p", [&](auto& p) { p.min_p = 1.01f; }},
      {"repetition_penalty", [&](auto& p) { p.repetition_penalty = 0.0f; }},
      {"repetition_penalty", [&](auto& p) { p.repetition_penalty = -1.0f; }},
      {"repetition_penalty", [&](auto& p) { p.repetition_penalty = inf; }},
      {"presence_penalty", [&](auto& p) { p.presence_penalty = -2.1f; }},
      {"frequency_penalty", [&](auto& p) { p.frequency_penalty = 2.1f; }},
      {"logit_bias", [&](auto& p) { p.logit_bias[10] = 1.0f; }},
      {"logit_bias", [&](auto& p) { p.logit_bias[9] = nan; }},
      {"logit_bias", [&](auto& p) { p.logit_bias[9] = -101.0f; }},
      {"logit_bias",
       [&](auto& p) {
         for (uint32_t i = 0; i <= kMaxLogitBiases; ++i) p.logit_bias[i] = 0.0f;
       }},
  };
  for (const Case& c : cases) {
    SamplingParams params;
    EXPECT_TRUE(params.Validate(10).ok());
    c.spoil(params);
    const absl::Status status = params.Validate(10);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.name));
  }
  SamplingParams extreme;
  extreme = {100.0f, 1u << 31, 1.0f, 1.0f, 100.0f, 2.0f, -2.0f, ~uint64_t{0}, {{9, 100.0f}}};
  EXPECT_TRUE(extreme.Validate(10).ok()) << extreme.Validate(10);
}

}  // namespace
}  // namespace tandem::gateway
