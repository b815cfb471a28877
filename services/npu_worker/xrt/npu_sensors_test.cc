// Texts in the form that XRT's sources give them; no device has answered here.
#include "services/npu_worker/xrt/npu_sensors.h"

#include <gtest/gtest.h>

namespace tandem::npu {
namespace {

TEST(NpuSensorsTest, PowerIsReadWhetherItIsTextOrANumber) {
  EXPECT_EQ(PowerWatts(R"({"power_consumption_max_watts": "N/A",
                           "power_consumption_watts": "3.25", "power_rails": []})"),
            3.25);
  EXPECT_EQ(PowerWatts(R"({"power_consumption_watts": 7})"), 7.0);
}

TEST(NpuSensorsTest, TheHottestSensorThatIsThereCounts) {
  EXPECT_EQ(HottestCelsius(R"({"thermals": [
              {"description": "a", "temp_C": "41", "is_present": "true"},
              {"description": "b", "temp_C": "57.5", "is_present": "true"},
              {"description": "c", "temp_C": "99", "is_present": "false"},
              {"description": "d", "temp_C": "N/A", "is_present": "true"}]})"),
            57.5);
  EXPECT_EQ(HottestCelsius(R"({"thermals": [{"temp_C": "-3"}]})"), -3.0);
}

TEST(NpuSensorsTest, WhatSaysNothingIsNothing) {
  for (const char* text : {"", "{", "[]", "7", "{}", R"({"power_consumption_watts": "N/A"})",
                           R"({"power_consumption_watts": {}, "thermals": []})",
                           R"({"thermals": 5})", R"({"thermals": [5, null, {}]})"}) {
    EXPECT_EQ(PowerWatts(text), std::nullopt) << text;
    EXPECT_EQ(HottestCelsius(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tandem::npu
