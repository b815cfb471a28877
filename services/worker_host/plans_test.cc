// Several plans on one worker: names, epochs, holders, memory, turns.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "absl/time/clock.h"
#include "services/common/testing/eventually.h"
#include "services/worker_host/worker_service_fixture.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using testing::Eventually;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

class PlansTest : public WorkerServiceTest {
 protected:
  void SetUp() override {
    WorkerServiceTest::SetUp();
    draft_exchange_ = testing::MakeLocalExchange(weights_->config(), limits_, 2);
  }
  worker::v1::LoadPlanRequest Request(const std::string& id, uint64_t epoch,
                                      const std::string& token = "") {
    auto request =
        testing::MakeLoadRequest(epoch, *weights_, testing::WholeModel(weights_->config()), limits_,
                                 id == "draft" ? *draft_exchange_ : *exchange_, source_);
    request.set_plan_id(id);
    request.set_plan_token(token);
    if (!token.empty()) request.set_loader_target("unix:/loader.sock");
    return request;
  }
  absl::Status LoadAs(const std::string& id, uint64_t epoch, const std::string& token = "") {
    return client_->LoadPlan(Request(id, epoch, token), nullptr, kLong).status();
  }
  uint64_t WriteDraftStep(uint32_t num_rows) {
    std::swap(exchange_, draft_exchange_);
    const uint64_t step = WriteStep(num_rows);
    std::swap(exchange_, draft_exchange_);
    return step;
  }
  // "main 1, draft 2"
  std::string Plans() {
    std::string plans;
    const worker::v1::GetStatusResponse status = worker_->service().Status();
    for (const auto& plan : status.plans()) {
      plans += absl::StrFormat("%s%s %d", plans.empty() ? "" : ", ", plan.plan_id(), plan.epoch());
    }
    return plans;
  }

  std::shared_ptr<const Exchange> draft_exchange_;
};

TEST_F(PlansTest, ACallReachesThePlanOfItsEpoch) {
  std::vector<std::pair<uint32_t, uint32_t>> runs;  // plan, rows
  Start({.run = [&](const SegmentRun& run) {
    runs.emplace_back(run.plan, run.step->header.num_rows);
    return SegmentResult{};
  }});
  ASSERT_OK(LoadAs("main", 1));
  ASSERT_OK(LoadAs("draft", 2));
  EXPECT_EQ(Plans(), "main 1, draft 2");
  client_->Open(worker_->execution_target());
  EXPECT_OK(Execute(Call(1, WriteStep(5))));
  EXPECT_OK(Execute(Call(2, WriteDraftStep(3))));
  EXPECT_OK(Execute(Call(1, WriteStep(1))));
  using Run = std::pair<uint32_t, uint32_t>;
  EXPECT_THAT(runs, ElementsAre(Run{0, 5}, Run{1, 3}, Run{0, 1}));
  EXPECT_THAT(Execute(Call(3, WriteStep(1))),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("is at epoch 1 and 2")));
}

TEST_F(PlansTest, AReloadReplacesThePlanOfItsNameAlone) {
  std::multiset<uint32_t> loads;
  Start({.load = [&](const ModelLoad& load) {
    loads.insert(load.plan);
    return absl::OkStatus();
  }});
  ASSERT_OK(LoadAs("main", 1));
  ASSERT_OK(LoadAs("draft", 2));
  ASSERT_OK(LoadAs("main", 3));
  EXPECT_EQ(Plans(), "draft 2, main 3");
  EXPECT_EQ(loads, (std::multiset<uint32_t>{0, 0, 1}));
  client_->Open(worker_->execution_target());
  EXPECT_THAT(Execute(Call(1, WriteStep(1))), HasCode(absl::StatusCode::kAborted)) << "late";
  EXPECT_OK(Execute(Call(2, WriteDraftStep(1))));
  EXPECT_OK(Execute(Call(3, WriteStep(1))));
  EXPECT_THAT(LoadAs("draft", 3), HasCode(absl::StatusCode::kAborted))
      << "an epoch names one plan of the worker";
  EXPECT_THAT(LoadAs("main", 2), HasCode(absl::StatusCode::kAborted));
  EXPECT_EQ(Plans(), "draft 2, main 3");
}

TEST_F(PlansTest, UnloadingOneLeavesTheOther) {
  std::vector<uint32_t> unloads;
  Start({.unload = [&](uint32_t plan) { unloads.push_back(plan); }});
  ASSERT_OK(LoadAs("main", 1));
  ASSERT_OK(LoadAs("draft", 2));
  EXPECT_EQ(source_.num_fetches, 1) << "two plans of one model share its lease";
  EXPECT_OK(client_->UnloadPlan(1, "", kLong));
  EXPECT_THAT(unloads, ElementsAre(0));
  EXPECT_EQ(Plans(), "draft 2");
  EXPECT_THAT(client_->UnloadPlan(1, "", kLong),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("is at epoch 2")));
  client_->Open(worker_->execution_target());
  EXPECT_THAT(Execute(Call(1, WriteStep(1))), HasCode(absl::StatusCode::kAborted));
  EXPECT_OK(Execute(Call(2, WriteDraftStep(1))));
  ASSERT_OK(LoadAs("main", 3));
  EXPECT_OK(Execute(Call(3, WriteStep(1))));
  EXPECT_OK(client_->UnloadPlan(2, "", kLong));
  EXPECT_OK(Execute(Call(3, WriteStep(1))));
  EXPECT_OK(client_->UnloadPlan(3, "", kLong));
  EXPECT_THAT(client_->UnloadPlan(3, "", kLong),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("no plan loaded")));
}

TEST_F(PlansTest, AFailedLoadLeavesTheOtherPlan) {
  std::atomic<bool> fail{false};
  Start({.load = [&](const ModelLoad&) -> absl::Status {
    return fail ? absl::ResourceExhaustedError("VK_ERROR_OUT_OF_DEVICE_MEMORY") : absl::OkStatus();
  }});
  ASSERT_OK(LoadAs("main", 1));
  ASSERT_OK(LoadAs("draft", 2));
  fail = true;
  EXPECT_THAT(LoadAs("draft", 3), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Plans(), "main 1") << "its former plan is gone, the other stays";
  client_->Open(worker_->execution_target());
  EXPECT_OK(Execute(Call(1, WriteStep(1))));
  EXPECT_THAT(Execute(Call(2, WriteDraftStep(1))), HasCode(absl::StatusCode::kAborted));
  fail = false;
  EXPECT_OK(LoadAs("draft", 3)) << "the refused plan has not raised the epoch";
}

TEST_F(PlansTest, NoPlanComesBesideThoseOfAnotherGatewayWhileItsLeaseIsAlive) {
  std::vector<uint32_t> unloads;
  Start({.unload = [&](uint32_t plan) { unloads.push_back(plan); }});
  uint32_t region = 0, draft_region = 0;
  auto request = Request("main", 1, "mine");
  region = request.exchange_region_id();
  ASSERT_OK(client_->LoadPlan(request, nullptr, kLong));
  request = Request("draft", 2, "mine");
  draft_region = request.exchange_region_id();
  ASSERT_OK(client_->LoadPlan(request, nullptr, kLong));
  for (const char* id : {"main", "draft", "third"}) {
    EXPECT_THAT(LoadAs(id, 3, "other"),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a plan of another gateway")))
        << id;
  }
  source_.EndExchange(region);
  EXPECT_THAT(LoadAs("main", 3, "other"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("(epoch 2)")))
      << "one of the two leases is alive";
  EXPECT_EQ(Plans(), "main 1, draft 2");
  source_.EndExchange(draft_region);
  unloads.clear();
  ASSERT_OK(LoadAs("main", 3, "other"));
  EXPECT_EQ(Plans(), "main 3") << "the dead gateway's draft would keep memory for nobody";
  EXPECT_THAT(unloads, ElementsAre(0, 1));
}

TEST_F(PlansTest, NamesAndTheirNumberAreBounded) {
  Start({});
  ASSERT_OK(LoadAs("main", 1));
  EXPECT_THAT(LoadAs(std::string(65, 'a'), 2), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(LoadAs("a\nb", 2), HasCode(absl::StatusCode::kInvalidArgument));
  for (uint32_t p = 1; p < kMaxPlans; ++p) ASSERT_OK(LoadAs(absl::StrFormat("p%d", p), 1 + p));
  EXPECT_THAT(LoadAs("onemore", 100),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("holds 8 plans")));
  EXPECT_OK(client_->UnloadPlan(3, "", kLong));
  EXPECT_OK(LoadAs("onemore", 100));
}

TEST_F(PlansTest, MemoryIsAdmittedForAllPlansTogether) {
  Start({});
  ASSERT_OK(LoadAs("main", 1));
  const uint64_t bytes = worker_->service().Status().plans(0).memory_bytes();
  ASSERT_GT(bytes, weights_->total_bytes()) << "weights and KV cache";
  client_.reset();
  worker_.reset();
  WorkerDescription description = testing::DescribeFakeWorker("fake0");
  description.memory_available_bytes = bytes * 5 / 2;
  StartWorker(std::make_unique<testing::FakeWorker>(description, testing::FakeWorker::Hooks{}));
  ASSERT_OK(LoadAs("main", 1));
  ASSERT_OK(LoadAs("draft", 2));
  ASSERT_OK_AND_ASSIGN(const RemoteWorker remote, client_->Describe(kLong));
  ASSERT_EQ(remote.plans.size(), 2u);
  EXPECT_EQ(remote.plans[1].id, "draft");
  EXPECT_EQ(remote.plans[1].bytes, bytes);
  EXPECT_THAT(LoadAs("third", 3),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("plan \"third\" needs")));
  EXPECT_OK(LoadAs("draft", 3)) << "the plan it replaces does not count";
  EXPECT_OK(client_->UnloadPlan(1, "", kLong));
  EXPECT_OK(LoadAs("third", 4));
}

TEST_F(PlansTest, APlanThatYieldsMakesRoomForOneThatDoesNot) {
  std::atomic<bool> full{false};
  Start({.load = [&](const ModelLoad& load) -> absl::Status {
           if (full && load.plan == 0) return absl::ResourceExhaustedError("out of memory");
           return absl::OkStatus();
         },
         .unload =
             [&](uint32_t plan) {
               if (plan == 1) full = false;
             }});
  ASSERT_OK(LoadAs("main", 1));
  auto request = Request("draft", 2);
  request.set_yields(true);
  ASSERT_OK(client_->LoadPlan(request, nullptr, kLong));
  full = true;
  ASSERT_OK(LoadAs("main", 3));
  EXPECT_EQ(Plans(), "main 3");
  full = true;
  request.set_epoch(4);
  ASSERT_OK(client_->LoadPlan(request, nullptr, kLong));
  EXPECT_EQ(Plans(), "main 3, draft 4") << "it takes no room from another";
}

TEST_F(PlansTest, ALostDeviceHasLostEveryPlan) {
  std::atomic<bool> lost{false};
  Start({.run = [&](const SegmentRun&) -> absl::StatusOr<SegmentResult> {
    if (lost) return absl::UnavailableError("VK_ERROR_DEVICE_LOST");
    return SegmentResult{};
  }});
  ASSERT_OK(LoadAs("main", 1));
  ASSERT_OK(LoadAs("draft", 2));
  client_->Open(worker_->execution_target());
  lost = true;
  EXPECT_THAT(Execute(Call(2, WriteDraftStep(1))), HasCode(absl::StatusCode::kUnavailable));
  lost = false;
  EXPECT_THAT(Execute(Call(1, WriteStep(1))), HasCode(absl::StatusCode::kUnavailable));
  ASSERT_OK(LoadAs("draft", 3));
  EXPECT_EQ(Plans(), "draft 3");
  EXPECT_THAT(Execute(Call(1, WriteStep(1))), HasCode(absl::StatusCode::kAborted))
      << "its KV cache went with the device";
  EXPECT_OK(Execute(Call(3, WriteDraftStep(1))));
  ASSERT_OK(LoadAs("main", 4));
  EXPECT_OK(Execute(Call(4, WriteStep(1))));
}

// An NPU that copies weights into a format of its own, or reads the loader's.
class CopyingNpu final : public Worker {
 public:
  explicit CopyingNpu(ImportPath path) : path_(path) { description_.kind = DeviceKind::kNpu; }
  const WorkerDescription& description() const override { return description_; }
  absl::StatusOr<LoadReport> Load(ModelLoad,
                                  const std::function<void(double, std::string_view)>&) override {
    return LoadReport{.weight_import = path_, .weight_bytes = kWeightBytes};
  }
  void Unload(uint32_t) override {}
  absl::Status CheckHealth() override { return absl::OkStatus(); }
  absl::Status Submit(const SegmentRun&) override { return absl::OkStatus(); }
  absl::StatusOr<SegmentResult> Wait(uint32_t) override { return SegmentResult{}; }

  static constexpr uint64_t kWeightBytes = 12345;

 private:
  WorkerDescription description_ = testing::DescribeFakeWorker("npu0");
  const ImportPath path_;
};

TEST_F(PlansTest, AnNpusOwnCopyOfWeightsCountsAsThePlansMemory) {
  const auto bytes_with = [this](ImportPath path) {
    StartWorker(std::make_unique<CopyingNpu>(path));
    EXPECT_OK(LoadAs("main", 1));
    const uint64_t bytes = worker_->service().Status().plans(0).memory_bytes();
    client_.reset();
    worker_.reset();
    return bytes;
  };
  EXPECT_EQ(bytes_with(ImportPath::kUpload),
            bytes_with(ImportPath::kDmabuf) + CopyingNpu::kWeightBytes);
}

// A device with a queue: a segment of plan 0 takes submissions without end, until `release`.
class SlicedWorker final : public Worker {
 public:
  const WorkerDescription& description() const override { return description_; }
  absl::StatusOr<LoadReport> Load(ModelLoad,
                                  const std::function<void(double, std::string_view)>&) override {
    return LoadReport{};
  }
  void Unload(uint32_t) override {}
  absl::Status CheckHealth() override { return absl::OkStatus(); }
  absl::Status Submit(const SegmentRun& run) override {
    ++submitted_[run.plan];
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Advance(uint32_t plan) override {
    turns.push_back(plan);
    if (plan != 0 || turns.size() > kMostTurns) return true;
    absl::SleepFor(absl::Milliseconds(1));
    return release.load();
  }
  bool HoldsBack(uint32_t plan) const override { return plan == 0 && submitted_[0] > 0; }
  absl::StatusOr<SegmentResult> Wait(uint32_t plan) override {
    --submitted_[plan];
    if (plan == 1 && ++num_short_ == 3) release = true;
    return SegmentResult{};
  }

  static constexpr size_t kMostTurns = 20'000;  // so that a failure is one, and no hang
  std::atomic<bool> release{false};
  std::vector<uint32_t> turns;  // of the device thread

 private:
  const WorkerDescription description_ = testing::DescribeFakeWorker("sliced0");
  int submitted_[kMaxPlans] = {};
  int num_short_ = 0;
};

TEST_F(PlansTest, AStepOfOnePlanComesBetweenTheSubmissionsOfAnothers) {
  auto worker = std::make_unique<SlicedWorker>();
  SlicedWorker& sliced = *worker;
  StartWorker(std::move(worker));
  ASSERT_OK(LoadAs("main", 1));
  ASSERT_OK(LoadAs("draft", 2));
  client_->Open(worker_->execution_target());
  WorkerClient drafter(worker_->target());
  drafter.Open(worker_->execution_target());
  ASSERT_OK(client_->Submit(Call(1, WriteStep(16)), kLong));
  for (int step = 0; step < 3; ++step) {  // the long segment ends after the third
    ASSERT_OK(Run(drafter, Call(2, WriteDraftStep(1))));
  }
  ASSERT_OK(client_->Wait(kLong));
  EXPECT_LT(sliced.turns.size(), SlicedWorker::kMostTurns) << "the long segment has not waited";
  EXPECT_EQ(std::ranges::count(sliced.turns, 1u), 3);
}

TEST_F(PlansTest, AHeldBackSegmentGoesOnThoughItsAnswerIsNotDue) {
  auto worker = std::make_unique<SlicedWorker>();
  SlicedWorker& sliced = *worker;
  StartWorker(std::move(worker));
  ASSERT_OK(LoadAs("main", 1));
  ASSERT_OK(LoadAs("draft", 2));
  client_->Open(worker_->execution_target());
  sliced.release = true;
  auto held = Call(1, WriteStep(16));
  held.set_another_follows(true);
  ASSERT_OK(client_->Submit(held, kLong));
  EXPECT_TRUE(Eventually([&] { return worker_->service().Status().segments_run() == 1; }));
  ASSERT_OK(client_->Flush(kLong));
  EXPECT_OK(client_->Wait(kLong));
}

TEST_F(PlansTest, ALoadWaitsForTheCallsOfOtherPlansAndLeavesTheirAnswers) {
  std::atomic<int> runs{0};
  Start({.run = [&](const SegmentRun&) {
    ++runs;
    return SegmentResult{.device_ns = 7};
  }});
  ASSERT_OK(LoadAs("main", 1));
  client_->Open(worker_->execution_target());
  auto held = Call(1, WriteStep(2));
  held.set_another_follows(true);
  ASSERT_OK(client_->Submit(held, kLong));
  ASSERT_OK(LoadAs("draft", 2));
  ASSERT_OK(client_->Flush(kLong));
  ASSERT_OK_AND_ASSIGN(const auto* answer, client_->Wait(kLong));
  EXPECT_EQ(answer->device_ns(), 7u);
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace tandem
