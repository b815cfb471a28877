#include "services/npu_worker/emulator/array/recorded_design.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/control/rows.h"
#include "services/npu_worker/emulator/array/array_test_support.h"

namespace tandem::npu::emulator {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;
using Json = nlohmann::json;

constexpr ArrayShape kNpu1 = {.generation = 3, .num_columns = 4};

// The array of the row functions, which a test changes.
class RecordedDesignTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(BuildPath("lib/tandem/npu-arrays/npu1/rows.json"));
    design_ = Json::parse(file);
  }

  absl::StatusOr<EmulatedArray::DesignFactory> Read() const {
    const std::string path = ::testing::TempDir() + "recorded_design_test.json";
    std::ofstream(path) << design_.dump();
    return ReadRecordedDesign(path, kNpu1);
  }

  // Adds 1 to 64 numbers of each of four rows.
  absl::Status Run() {
    const auto factory = Read();
    if (!factory.ok()) return factory.status();
    std::vector<uint32_t> first(256, 0), second(256), output(256), weights(64, 0);
    for (uint32_t i = 0; i < 256; ++i) second[i] = i;
    DeviceMemory memory;
    const uint64_t buffers[] = {memory.Add(first), memory.Add(second), memory.Add(output),
                                memory.Add(weights)};
    RowJob job = {.array = kNpu1,
                  .function = RowFunction::kNormAdd,
                  .num_rows = 4,
                  .size = 64,
                  .epsilon = 1,
                  .first = {.place = {.argument = 0}, .stride = 64},
                  .second = {.place = {.argument = 1}, .stride = 64},
                  .output = {.place = {.argument = 2}, .stride = 64},
                  .weights = {.argument = 3}};
    const auto code = BuildRows(job);
    if (!code.ok()) return code.status();
    EmulatedArray array(kNpu1, *factory);
    const AddressSpace::View view(memory.space());
    absl::Status status = array.Run(code->words(), buffers, view);
    if (status.ok() && output != second) return absl::DataLossError("other numbers");
    return status;
  }

  Json& Channel(const char* direction, int row, int channel) {
    for (Json& entry : design_["channels"]) {
      if (entry["column"] == 0 && entry["row"] == row && entry["direction"] == direction &&
          entry["channel"] == channel) {
        return entry;
      }
    }
    ADD_FAILURE() << "no channel " << channel << " of row " << row;
    return design_["channels"][0];
  }

  Json design_;
};

TEST_F(RecordedDesignTest, ADesignAsItIsComputesWhatItShould) { EXPECT_OK(Run()); }

TEST_F(RecordedDesignTest, DescriptorsInAnotherOrderGiveOtherNumbers) {
  Json& turns = Channel("from_stream", 1, 0)["descriptors"];
  std::swap(turns[0], turns[1]);
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("other numbers")));
}

TEST_F(RecordedDesignTest, ABufferThatIsNeverFreedStopsItsCore) {
  Json& descriptor = Channel("to_stream", 1, 1)["descriptors"][0];
  descriptor["gives"] = 60;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("core (0, 3) waits")));
}

TEST_F(RecordedDesignTest, DescriptionsOfOtherArraysAreRefused) {
  design_["columns"] = 8;
  EXPECT_THAT(Read().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("8 columns, must be 4")));
  design_["columns"] = 4;
  design_["cores"][0]["program"] = "conv_program";
  EXPECT_THAT(Read().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no program conv_program")));
  EXPECT_THAT(ReadRecordedDesign("/no/such.json", kNpu1).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a design")));
}

}  // namespace
}  // namespace tandem::npu::emulator
