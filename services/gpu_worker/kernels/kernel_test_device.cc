#include "services/gpu_worker/kernels/kernel_test_device.h"

#include <cstdlib>

#include "absl/strings/str_format.h"

namespace tandem::gpu {
namespace {

struct Shared {
  absl::Status status;
  std::unique_ptr<vulkan::Instance> instance;
  std::unique_ptr<vulkan::Device> device;
  std::unique_ptr<vulkan::Timeline> timeline;
  std::unique_ptr<KernelSet> kernels;

  absl::Status Open() {
    // Subgroups of 64 lanes on a device that would have 32: TANDEM_TEST_SUBGROUP_SIZE=64.
    const char* lanes = std::getenv("TANDEM_TEST_SUBGROUP_SIZE");
    const auto size = lanes == nullptr ? 0u : static_cast<uint32_t>(std::atoi(lanes));
    TANDEM_ASSIGN_OR_RETURN(instance,
                            vulkan::Instance::Create({.validation = true, .subgroup_size = size}));
    TANDEM_ASSIGN_OR_RETURN(const size_t index, vulkan::ChooseDevice(instance->devices(), ""));
    TANDEM_ASSIGN_OR_RETURN(device, vulkan::Device::Create(*instance, index));
    if (size != 0 && device->info().subgroup_size != size) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "TANDEM_TEST_SUBGROUP_SIZE=%s: %s has %d to %d lanes", lanes, device->info().name,
          device->info().min_subgroup_size, device->info().max_subgroup_size));
    }
    TANDEM_ASSIGN_OR_RETURN(timeline, vulkan::Timeline::Create(*device));
    TANDEM_ASSIGN_OR_RETURN(kernels, KernelSet::Create(*device, ""));
    return absl::OkStatus();
  }
};

Shared& TheDevice() {
  static Shared& shared = *[] {
    auto* made = new Shared;  // left to the end of the process
    made->status = made->Open();
    return made;
  }();
  return shared;
}

}  // namespace

void KernelTest::SetUp() {
  const absl::Status& status = TheDevice().status;
  if (status.code() == absl::StatusCode::kNotFound) GTEST_SKIP() << status;
  ASSERT_OK(status);
}

const vulkan::Device& KernelTest::device() const { return *TheDevice().device; }
KernelSet& KernelTest::kernels() const { return *TheDevice().kernels; }

void KernelTest::Run(const std::vector<Launch>& launches) {
  ASSERT_OK_AND_ASSIGN(const auto pool, vulkan::CommandPool::Create(device()));
  ASSERT_OK_AND_ASSIGN(auto recorder, vulkan::Recorder::Begin(pool, kernels().layout()));
  for (const Launch& launch : launches) {
    ASSERT_OK(kernels().Record(launch, recorder));
    recorder.Barrier();
  }
  recorder.HostBarrier();
  ASSERT_OK_AND_ASSIGN(const VkCommandBuffer commands, recorder.End());
  ASSERT_OK(TheDevice().timeline->SubmitAndWait({&commands, 1}, absl::Minutes(2)));
}

DeviceArray KernelTest::MakeStep(uint32_t num_rows, const std::vector<OutputEntry>& outputs,
                                 uint32_t num_candidates, uint32_t position,
                                 const std::vector<DrawEntry>& draws) const {
  StepBatch step;
  step.header.num_rows = num_rows;
  step.header.num_sequences = 1;
  step.header.num_outputs = static_cast<uint32_t>(outputs.size());
  step.header.num_candidates = num_candidates;
  std::vector<RowEntry> rows(num_rows);
  for (uint32_t i = 0; i < num_rows; ++i) rows[i] = {i, position + i, 0, 0};
  const std::vector<SequenceEntry> sequences = {{0, num_rows, {0, 0}}};
  std::vector<uint32_t> table(position + num_rows);  // one block a position or more: all fit
  for (uint32_t i = 0; i < table.size(); ++i) table[i] = i;
  step.header.table_len = static_cast<uint32_t>(table.size());
  step.rows = rows;
  step.sequences = sequences;
  step.outputs = outputs;
  step.block_table = table;
  step.header.num_draws = static_cast<uint32_t>(draws.size());
  step.draws = draws;
  DeviceArray array(device(), StepBytes(step.header));
  WriteStep(step, array.data());
  return array;
}

std::vector<float> RandomFloats(size_t n, uint32_t seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace tandem::gpu
