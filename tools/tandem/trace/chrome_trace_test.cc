#include "tools/tandem/trace/chrome_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem {
namespace {

using nlohmann::json;

constexpr int64_t kBegin = 1'700'000'000'000'000'000;

// A prompt's step and a token's, on a GPU and an NPU.
v1::GetTraceResponse Sample() {
  v1::GetTraceResponse trace;
  trace.set_request_id("r1");
  trace.set_model("demo");
  v1::TraceRun& run = *trace.add_runs();
  run.set_operation("chat");
  run.set_submitted_ns(kBegin);
  run.set_started_ns(kBegin + 1'000);
  run.set_decode_begin_ns(kBegin + 10'000);
  run.set_first_token_ns(kBegin + 10'500);
  run.set_ended_ns(kBegin + 20'000);
  v1::TracePlan& plan = *trace.add_plans();
  for (const char* name : {"gpu0", "npu0"}) {
    v1::TraceWorker& worker = *plan.add_workers();
    worker.set_name(name);
    worker.set_device(std::string("device of ") + name);
    worker.set_emulated(name[0] == 'n');
  }
  for (uint32_t s = 0; s < 2; ++s) {
    v1::TracePlannedSegment& segment = *plan.add_segments();
    segment.set_worker(s);
    segment.set_kinds(s == 0 ? "Embed+Qkv" : "Attend");
  }
  for (uint64_t s = 0; s < 2; ++s) {
    const int64_t begin = kBegin + 1'000 + static_cast<int64_t>(s) * 9'000;
    v1::TraceStep& step = *trace.add_steps();
    step.set_step_id(7 + s);
    step.set_begin_ns(begin);
    step.set_end_ns(begin + 9'000);
    for (uint32_t i = 0; i < 2; ++i) {
      v1::TraceSegment& segment = *step.add_segments();
      segment.set_index(i);
      segment.set_sent_ns(begin + 4'000 * i);
      segment.set_answered_ns(begin + 4'000 * i + 4'000);
      segment.set_worker_ns(3'000);
      segment.set_device_ns(2'000);
      segment.set_device_watts(i == 0 ? 312.5 : 0.0);
      segment.set_device_end_ns(begin + 4'000 * i + 3'500);
      for (const char* stage :
           i == 0 ? std::vector<const char*>{"Embed", "Qkv"} : std::vector<const char*>{"Attend"}) {
        v1::TraceStageTime& time = *segment.add_stages();
        time.set_stage(stage);
        time.set_device_ns(i == 0 ? 1'000 : 2'000);
      }
    }
  }
  return trace;
}

std::vector<json> Spans(const json& document, const std::string& category) {
  std::vector<json> spans;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == category) spans.push_back(event);
  }
  return spans;
}

std::string LaneName(const json& document, const json& span) {
  for (const json& event : document["traceEvents"]) {
    if (event["name"] == "thread_name" && event["pid"] == span["pid"] &&
        event["tid"] == span["tid"]) {
      return event["args"]["name"];
    }
  }
  return "";
}

TEST(ChromeTraceTest, HasALaneForEachDeviceAndThreeForTheGateway) {
  const json document = json::parse(ChromeTrace(Sample()));
  EXPECT_EQ(document["otherData"]["begin_unix_ns"], std::to_string(kBegin));
  EXPECT_EQ(LaneName(document, Spans(document, "request")[0]), "request");
  EXPECT_EQ(LaneName(document, Spans(document, "step")[0]), "steps");
  EXPECT_EQ(LaneName(document, Spans(document, "call")[0]), "calls");
  const auto devices = Spans(document, "device");
  ASSERT_EQ(devices.size(), 4u);
  EXPECT_EQ(LaneName(document, devices[0]), "gpu0: device of gpu0");
  EXPECT_EQ(LaneName(document, devices[2]), "npu0: device of npu0 (emulated)");
  EXPECT_EQ(devices[0]["args"]["device_watts"], 312.5);
  EXPECT_FALSE(devices[2]["args"].contains("device_watts")) << "not readable";
}

TEST(ChromeTraceTest, TimesAreMicrosecondsFromTheArrivalOn) {
  const json document = json::parse(ChromeTrace(Sample()));
  const json request = Spans(document, "request")[0];
  EXPECT_EQ(request["name"], "chat demo");
  EXPECT_EQ(request["ts"], 0.0);
  EXPECT_EQ(request["dur"], 20.0);
  const auto phases = Spans(document, "phase");
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_EQ(phases[1]["name"], "prompt");
  EXPECT_EQ(phases[1]["ts"], 1.0);
  EXPECT_EQ(phases[1]["dur"], 9.0);
  EXPECT_EQ(phases[2]["name"], "decode");
  EXPECT_EQ(phases[2]["dur"], 10.0);
  const json device = Spans(document, "device")[0];
  EXPECT_EQ(device["name"], "Embed+Qkv");
  EXPECT_DOUBLE_EQ(device["ts"], 2.5);
  EXPECT_DOUBLE_EQ(device["dur"], 2.0);
}

TEST(ChromeTraceTest, KindsOfStageLieWithinTheirCall) {
  const auto stages = Spans(json::parse(ChromeTrace(Sample())), "stage");
  ASSERT_EQ(stages.size(), 4u) << "the NPU's calls have one kind each, which is the call's";
  EXPECT_EQ(stages[1]["name"], "Qkv");
  EXPECT_DOUBLE_EQ(stages[1]["ts"], 3.5);
  EXPECT_DOUBLE_EQ(stages[1]["dur"], 1.0);
}

// The device was busy with the first step's call for longer than the answers suggest.
TEST(ChromeTraceTest, CallsOfADeviceNeverOverlap) {
  v1::GetTraceResponse trace = Sample();
  trace.mutable_steps(1)->mutable_segments(0)->set_device_ns(11'000);
  const auto devices = Spans(json::parse(ChromeTrace(trace)), "device");
  const double first_end = devices[0]["ts"].get<double>() + devices[0]["dur"].get<double>();
  EXPECT_LE(first_end, devices[1]["ts"].get<double>() + 1e-9);
  EXPECT_DOUBLE_EQ(devices[0]["dur"], 2.0);
  EXPECT_DOUBLE_EQ(devices[1]["dur"], 11.0);
}

TEST(ChromeTraceTest, StepsOfAnotherReplicaHaveLanesOfTheirOwn) {
  v1::GetTraceResponse trace = Sample();
  trace.mutable_steps(1)->set_replica(3);
  const json document = json::parse(ChromeTrace(trace));
  const auto steps = Spans(document, "step");
  EXPECT_EQ(LaneName(document, steps[0]), "steps");
  EXPECT_EQ(LaneName(document, steps[1]), "steps of replica 3");
  EXPECT_EQ(LaneName(document, Spans(document, "call")[2]), "calls of replica 3");
}

TEST(ChromeTraceTest, StepsOfADraftHaveLanesOfTheirOwnAndItsDeviceIsADevice) {
  v1::GetTraceResponse trace = Sample();
  *trace.add_plans() = trace.plans(0);
  v1::TracePlan& plan = *trace.mutable_plans(1);
  plan.mutable_workers(0)->set_name("npu1");
  plan.mutable_workers(0)->set_device("another");
  trace.mutable_steps(1)->set_plan(1);
  trace.mutable_steps(1)->set_drafts(true);
  const json document = json::parse(ChromeTrace(trace));
  const auto steps = Spans(document, "step");
  EXPECT_EQ(LaneName(document, steps[0]), "steps");
  EXPECT_EQ(LaneName(document, steps[1]), "draft steps");
  EXPECT_EQ(steps[1]["name"], "draft step 8");
  EXPECT_EQ(LaneName(document, Spans(document, "call")[2]), "draft calls");
  std::vector<std::string> lanes;
  for (const json& span : Spans(document, "device")) lanes.push_back(LaneName(document, span));
  EXPECT_EQ(std::ranges::count(lanes, "npu1: another"), 1);
}

TEST(ChromeTraceTest, EachStageOfPicturesHasALane) {
  v1::GetTraceResponse trace = Sample();
  for (const char* stage : {"decode", "encode"}) {
    v1::TracePicture& picture = *trace.mutable_runs(0)->add_pictures();
    picture.set_stage(stage);
    picture.set_batch(2);
    picture.set_begin_ns(kBegin + 100);
    picture.set_end_ns(kBegin + 700);
  }
  const json document = json::parse(ChromeTrace(trace));
  const auto pictures = Spans(document, "picture");
  ASSERT_EQ(pictures.size(), 2u);
  EXPECT_EQ(LaneName(document, pictures[0]), "pictures: decode");
  EXPECT_EQ(LaneName(document, pictures[1]), "pictures: encode");
  EXPECT_DOUBLE_EQ(pictures[1]["dur"], 0.6);
  EXPECT_EQ(pictures[1]["args"]["batch"], 2);
}

TEST(ChromeTraceTest, ARequestThatNeverRanIsQueuedAlone) {
  v1::GetTraceResponse trace;
  v1::TraceRun& run = *trace.add_runs();
  run.set_submitted_ns(kBegin);
  run.set_ended_ns(kBegin + 5'000);
  const json document = json::parse(ChromeTrace(trace));
  const auto phases = Spans(document, "phase");
  ASSERT_EQ(phases.size(), 1u);
  EXPECT_EQ(phases[0]["dur"], 5.0);
}

}  // namespace
}  // namespace tandem
