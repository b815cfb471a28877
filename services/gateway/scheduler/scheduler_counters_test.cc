#include "services/gateway/scheduler/scheduler_counters.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace tandem::gateway {
namespace {

TEST(SchedulerCountersTest, EveryFieldHasOneRow) {
  SchedulerCounters counters;
  for (const SchedulerCounter& counter : kSchedulerCounters) {
    EXPECT_EQ(counters.*counter.value, 0u) << "a field has two rows";
    counters.*counter.value = 1;
  }
}

TEST(SchedulerCountersTest, NoTwoRowsFillTheSameStatusField) {
  v1::SchedulerStatus status;
  size_t num_filled = 0;
  for (const SchedulerCounter& counter : kSchedulerCounters) {
    if (counter.set_status == nullptr) continue;
    (status.*counter.set_status)(++num_filled);
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  status.GetReflection()->ListFields(status, &fields);
  EXPECT_EQ(fields.size(), num_filled);
}

TEST(SchedulerCountersTest, NoTwoRowsAreTheSameSeries) {
  std::set<std::string> series;
  for (const SchedulerCounter& counter : kSchedulerCounters) {
    if (counter.metric == nullptr) continue;
    EXPECT_EQ(counter.metric->num_labels(), counter.label.empty() ? 0u : 1u)
        << counter.metric->name;
    const std::string name = std::string(counter.metric->name) + " " + std::string(counter.label);
    EXPECT_TRUE(series.insert(name).second) << name;
  }
}

TEST(SchedulerCountersTest, SumsEveryCounter) {
  SchedulerCounters a, b;
  uint64_t value = 0;
  for (const SchedulerCounter& counter : kSchedulerCounters) {
    a.*counter.value = ++value;
    b.*counter.value = 100;
  }
  const SchedulerCounters sum = a + b;
  value = 100;
  for (const SchedulerCounter& counter : kSchedulerCounters) {
    EXPECT_EQ(sum.*counter.value, ++value);
  }
}

}  // namespace
}  // namespace tandem::gateway
