// Plans, epochs and health: the worker's control calls.
#include "services/worker_host/worker_service.h"

#include <atomic>
#include <stdexcept>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "services/common/metrics/metrics_server.h"
#include "services/common/testing/eventually.h"
#include "services/worker_host/worker_metrics.h"
#include "services/worker_host/worker_service_fixture.h"

namespace tandem {
namespace {

using testing::Eventually;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;

TEST_F(WorkerServiceTest, DescribesItselfOnceTheSelfTestHasPassed) {
  absl::Notification may_pass;
  Start({.check_health = [&] {
    may_pass.WaitForNotification();
    return absl::OkStatus();
  }});
  EXPECT_THAT(client_->Describe(kLong), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(worker_->serving());
  may_pass.Notify();
  ASSERT_TRUE(Eventually([&] { return worker_->serving(); }));
  ASSERT_OK_AND_ASSIGN(const RemoteWorker remote, client_->Describe(kLong));
  EXPECT_EQ(remote.description.name, "fake0");
  EXPECT_EQ(remote.description.max_rows, 64u);
  EXPECT_EQ(remote.description.stages.size(), 6u);
  EXPECT_EQ(remote.pid, ::getpid());
}

TEST_F(WorkerServiceTest, EndsWhileItsThreadBegins) {
  for (int i = 0; i < 50; ++i) {
    Start({});
    TearDown();
  }
}

TEST_F(WorkerServiceTest, AFailedSelfTestKeepsItFromServingAndFromLoading) {
  Start({.check_health = [] { return absl::InternalError("canary overwritten"); }});
  ASSERT_TRUE(Eventually(
      [&] { return client_->Describe(kLong).status().code() != absl::StatusCode::kUnavailable; }));
  EXPECT_THAT(client_->Describe(kLong),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("canary overwritten")));
  EXPECT_THAT(Load(1), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("self-test")));
  EXPECT_FALSE(worker_->serving());
}

TEST_F(WorkerServiceTest, LoadsAPlanWithProgressAndReport) {
  ModelLoad seen;  // the device thread's, until `loaded`
  absl::Notification loaded;
  Start({.load = [&](const ModelLoad& load) {
    seen = load;
    loaded.Notify();
    return absl::OkStatus();
  }});
  worker::v1::LoadPlanRequest request = LoadRequest(3);
  request.set_port_dtype(static_cast<uint32_t>(DType::kBf16));
  std::vector<std::string> phases;
  ASSERT_OK_AND_ASSIGN(
      const worker::v1::LoadPlanReport report,
      client_->LoadPlan(
          request, [&](double /*fraction*/, std::string_view phase) { phases.emplace_back(phase); },
          kLong));
  loaded.WaitForNotification();
  EXPECT_EQ(report.weight_import(), "host-pointer");
  EXPECT_EQ(report.weight_bytes(), weights_->total_bytes());
  ASSERT_FALSE(phases.empty());
  EXPECT_EQ(phases.front(), "fetching weights");
  EXPECT_EQ(seen.segments.size(), 1u);
  EXPECT_EQ(seen.limits.max_rows, 16u);
  EXPECT_EQ(seen.limits.vocab_size, weights_->config().vocab_size);
  EXPECT_EQ(seen.kv.num_blocks[kWindowGroup], limits_.num_blocks[kWindowGroup]);
  EXPECT_EQ(seen.port_dtype, DType::kBf16);
  EXPECT_EQ(seen.exchange->layout.num_lanes, 2u);
  ASSERT_OK_AND_ASSIGN(const auto status, client_->GetStatus(kLong));
  ASSERT_EQ(status.plans_size(), 1);
  EXPECT_EQ(status.plans(0).epoch(), 3u);
  EXPECT_EQ(status.plans(0).model_id(), weights_->model_id());
  EXPECT_EQ(status.plans(0).report().weight_import(), "host-pointer");
  EXPECT_GT(status.plans(0).report().load_seconds(), 0);
}

TEST_F(WorkerServiceTest, APlansContextMayBeShorterThanTheModels) {
  std::atomic<uint32_t> seen = 0;  // written by the device thread
  Start({.load = [&seen](const ModelLoad& load) {
    seen = load.limits.context_len;
    return absl::OkStatus();
  }});
  const uint32_t of_model = weights_->config().context_len;
  auto request = LoadRequest(1);
  for (const auto& [asked, expected] :
       {std::pair{of_model, of_model}, {0u, of_model}, {of_model + 1, of_model}, {8u, 8u}}) {
    request.mutable_limits()->set_context_len(asked);
    ASSERT_OK(client_->LoadPlan(request, nullptr, kLong).status());
    EXPECT_EQ(seen.load(), expected) << asked;
    request.set_epoch(request.epoch() + 1);
  }
  client_->Open(worker_->execution_target());
  const uint64_t epoch = request.epoch() - 1;
  EXPECT_OK(Execute(Call(epoch, WriteStep(8))));
  EXPECT_THAT(Execute(Call(epoch, WriteStep(9))), HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_F(WorkerServiceTest, OlderEpochsAreRefusedAndNewerOnesReplace) {
  Start({});
  client_->Open(worker_->execution_target());
  EXPECT_THAT(Execute(Call(1, 1)),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("no plan loaded")));
  ASSERT_OK(Load(5));
  EXPECT_THAT(Load(4), HasCode(absl::StatusCode::kAborted));
  const uint64_t step = WriteStep(1);
  EXPECT_OK(Execute(Call(5, step)));
  ASSERT_OK(Load(6));
  EXPECT_THAT(Execute(Call(5, step)), HasCode(absl::StatusCode::kAborted));
  EXPECT_THAT(Execute(Call(7, step)), HasCode(absl::StatusCode::kAborted));
  EXPECT_OK(Execute(Call(6, step)));
  EXPECT_THAT(client_->UnloadPlan(5, "", kLong), HasCode(absl::StatusCode::kAborted));
  EXPECT_OK(client_->UnloadPlan(6, "", kLong));
  EXPECT_THAT(Execute(Call(6, step)), HasCode(absl::StatusCode::kAborted));
}

TEST_F(WorkerServiceTest, OnlyAnAcceptedPlanRaisesTheEpoch) {
  Start({});
  ASSERT_TRUE(Eventually([&] { return worker_->serving(); }));
  const auto highest = [this] {
    const auto described = client_->Describe(kLong);
    return described.ok() ? described->highest_epoch : uint64_t{9999};
  };
  EXPECT_EQ(highest(), 0u);
  auto malformed = LoadRequest(900);
  malformed.set_num_lanes(17);
  EXPECT_FALSE(client_->LoadPlan(malformed, nullptr, kLong).ok());
  EXPECT_THAT(client_->UnloadPlan(3'600'000'000, "", kLong), HasCode(absl::StatusCode::kAborted));
  EXPECT_EQ(highest(), 0u);
  ASSERT_OK(Load(5));
  EXPECT_EQ(highest(), 5u);
  EXPECT_THAT(client_->UnloadPlan(3'600'000'000, "", kLong), HasCode(absl::StatusCode::kAborted));
  EXPECT_THAT(Load(5), HasCode(absl::StatusCode::kAborted)) << "two gateways that learned the same";
  EXPECT_THAT(Load(UINT64_MAX), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("ask the worker for its epoch")));
  EXPECT_EQ(highest(), 5u);
  ASSERT_OK(Load(6));
  client_->Open(worker_->execution_target());
  EXPECT_OK(Execute(Call(6, WriteStep(1)))) << "the plan in force has stayed in force";
}

TEST_F(WorkerServiceTest, APlanIsReplacedByItsHolderAloneWhileTheLeaseIsAlive) {
  Start({});
  uint32_t region = 0;
  const auto load = [&](uint64_t epoch, const std::string& token) {
    auto request = LoadRequest(epoch);
    if (token == "mine") region = request.exchange_region_id();
    request.set_loader_target("unix:/loader.sock");
    request.set_plan_token(token);
    return client_->LoadPlan(request, nullptr, kLong).status();
  };
  ASSERT_OK(load(1, "mine"));
  ASSERT_OK(load(2, "mine"));
  EXPECT_THAT(load(3, "other"), StatusIs(absl::StatusCode::kUnavailable,
                                         HasSubstr("a plan of another gateway (epoch 2)")));
  EXPECT_THAT(client_->UnloadPlan(2, "other", kLong), HasCode(absl::StatusCode::kPermissionDenied));
  client_->Open(worker_->execution_target());
  EXPECT_OK(Execute(Call(2, WriteStep(1)))) << "the plan in force has stayed in force";
  source_.EndExchange(region);  // with its lease
  EXPECT_OK(load(3, "other"));
  EXPECT_OK(client_->UnloadPlan(3, "other", kLong));
}

TEST_F(WorkerServiceTest, WeightsAreFetchedOnceForPlansOfOneModel) {
  Start({});
  ASSERT_OK(Load(1));
  ASSERT_OK(Load(2));
  EXPECT_EQ(source_.num_fetches, 1);
  source_.lease_alive = false;
  ASSERT_OK(Load(3));
  EXPECT_EQ(source_.num_fetches, 2) << "a lease that is lost is taken again";
  source_.loader_gone = true;
  EXPECT_OK(Load(4)) << "without a loader the mappings live on";
}

TEST_F(WorkerServiceTest, PlansThatDoNotFitAreRefusedByName) {
  Start({});
  auto request = LoadRequest(1);
  request.mutable_limits()->set_max_rows(65);
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_rows is 65")));
  request = LoadRequest(1);
  request.set_num_lanes(17);
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_lanes")));
  request = LoadRequest(1);
  request.set_num_lanes(3);
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              HasCode(absl::StatusCode::kInvalidArgument))
      << "the region has two lanes";
  request = LoadRequest(1);
  request.mutable_segments(0)->set_last_ordinal(11);
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("segment 0")));
  request = LoadRequest(1);
  request.clear_segments();
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              HasCode(absl::StatusCode::kInvalidArgument));
  // The fake worker lists no formats of ports.
  request = LoadRequest(1);
  request.set_port_dtype(static_cast<uint32_t>(DType::kBf16));
  EXPECT_OK(client_->LoadPlan(request, nullptr, kLong)) << "no port of the whole model crosses";
  request = LoadRequest(2);
  request.set_port_dtype(static_cast<uint32_t>(DType::kBf16));
  request.mutable_segments(0)->set_outputs(OutputsOf(StageKind::kAttend));
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("ports of Attend are f16, the plan has bf16")));
  request.set_port_dtype(static_cast<uint32_t>(DType::kQ8_0));
  EXPECT_THAT(
      client_->LoadPlan(request, nullptr, kLong),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no port is of number format 3")));
  request = LoadRequest(2);
  request.set_model_id("another");
  EXPECT_THAT(client_->LoadPlan(request, nullptr, kLong), HasCode(absl::StatusCode::kNotFound));
  EXPECT_OK(Load(2));
}

TEST_F(WorkerServiceTest, AFailedSegmentIsAnAnswerAndTheNextOneRuns) {
  std::atomic<bool> fail{true};
  Start({.run = [&](const SegmentRun& run) -> absl::StatusOr<SegmentResult> {
    EXPECT_TRUE(run.first_of_step) << "after a failure the step is read again";
    if (fail.exchange(false)) return absl::InternalError("shader went wrong");
    return SegmentResult{};
  }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  EXPECT_THAT(Execute(Call(1, step)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("shader went wrong")));
  EXPECT_OK(Execute(Call(1, step)));
  EXPECT_TRUE(worker_->serving());
}

TEST_F(WorkerServiceTest, ALostDeviceStopsServingUntilAPlanIsLoadedAgain) {
  std::atomic<bool> lost{false};
  Start({.run = [&](const SegmentRun&) -> absl::StatusOr<SegmentResult> {
    if (lost) return absl::UnavailableError("VK_ERROR_DEVICE_LOST");
    return SegmentResult{};
  }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  ASSERT_OK(Execute(Call(1, step)));
  EXPECT_TRUE(worker_->serving());
  lost = true;
  EXPECT_THAT(Execute(Call(1, step)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("VK_ERROR_DEVICE_LOST")));
  EXPECT_FALSE(worker_->serving());
  lost = false;
  EXPECT_THAT(Execute(Call(1, step)), HasCode(absl::StatusCode::kUnavailable)) << "until a reload";
  ASSERT_OK(Load(2));
  EXPECT_TRUE(worker_->serving());
  EXPECT_OK(Execute(Call(2, step)));
}

TEST_F(WorkerServiceTest, ADeviceLostInALoadThatFailsHasLostTheOtherPlansToo) {
  std::atomic<bool> healthy{true}, loads{true};
  Start({.load =
             [&](const ModelLoad&) {
               return loads ? absl::OkStatus() : absl::UnavailableError("no");
             },
         .check_health =
             [&] { return healthy ? absl::OkStatus() : absl::UnavailableError("lost"); }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const auto load_another = [this](uint64_t epoch) {
    auto request = LoadRequest(epoch);
    request.set_plan_id("another");
    return client_->LoadPlan(request, nullptr, kLong).status();
  };
  loads = false;
  EXPECT_THAT(load_another(2), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(worker_->serving()) << "the device is well";
  ASSERT_OK(Execute(Call(1, WriteStep(1))));
  healthy = false;
  EXPECT_THAT(load_another(2), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(worker_->serving());
  EXPECT_THAT(Execute(Call(1, WriteStep(1))),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("lost")));
  healthy = loads = true;
  ASSERT_OK(load_another(2));
  EXPECT_TRUE(worker_->serving());
  EXPECT_THAT(Execute(Call(1, WriteStep(1))), HasCode(absl::StatusCode::kAborted))
      << "the first plan went with the device";
}

TEST_F(WorkerServiceTest, ADeviceLostWhileItIsMeasuredStopsServing) {
  Start({.ceilings = [] { return absl::UnavailableError("VK_ERROR_DEVICE_LOST"); }});
  ASSERT_OK(Load(1));
  EXPECT_THAT(client_->MeasureCeilings(kLong), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(worker_->serving());
  client_->Open(worker_->execution_target());
  EXPECT_THAT(Execute(Call(1, WriteStep(1))),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("VK_ERROR_DEVICE_LOST")));
  ASSERT_OK(Load(2));
  EXPECT_TRUE(worker_->serving());
}

TEST_F(WorkerServiceTest, AnExceptionOfTheDriverIsALostDeviceNotTheEndOfTheProcess) {
  std::atomic<bool> throws{true};
  Start({.run = [&](const SegmentRun&) -> absl::StatusOr<SegmentResult> {
           if (throws.exchange(false)) throw std::runtime_error("ioctl failed");
           return SegmentResult{};
         },
         .load = [&](const ModelLoad&) -> absl::Status {
           if (!throws) return absl::OkStatus();
           throw 7;
         }});
  EXPECT_THAT(Load(1), HasCode(absl::StatusCode::kUnavailable));
  throws = false;
  ASSERT_OK(Load(2));
  throws = true;
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  EXPECT_THAT(Execute(Call(2, step)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("ioctl failed")));
  ASSERT_OK(Load(3));
  EXPECT_OK(Execute(Call(3, step)));
}

TEST_F(WorkerServiceTest, AnIdleDeviceThatStopsAnsweringIsNoticed) {
  std::atomic<bool> healthy{true};
  Start({.check_health =
             [&] { return healthy ? absl::OkStatus() : absl::InternalError("no answer"); }},
        {.idle_check_interval = absl::Milliseconds(2)});
  ASSERT_OK(Load(1));
  healthy = false;
  ASSERT_TRUE(Eventually([&] { return !worker_->serving(); }));
  client_->Open(worker_->execution_target());
  EXPECT_THAT(Execute(Call(1, WriteStep(1))),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no answer")));
  TearDown();  // before what its checks read goes
}

TEST_F(WorkerServiceTest, ADeviceThatHangsIsSaidToHang) {
  absl::Notification running, release;
  Start({.run =
             [&](const SegmentRun&) {
               running.Notify();
               release.WaitForNotification();
               return SegmentResult{};
             }},
        {.stuck_after = absl::Milliseconds(1)});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  const uint64_t step = WriteStep(1);
  EXPECT_THAT(Execute(Call(1, step), absl::Milliseconds(30)),
              HasCode(absl::StatusCode::kUnavailable));
  running.WaitForNotification();
  EXPECT_TRUE(worker_->service().IsStuck());
  EXPECT_THAT(client_->Describe(kLong),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("fake0 hangs")));
  release.Notify();
  ASSERT_TRUE(Eventually([&] { return !worker_->service().IsStuck(); }));
  EXPECT_OK(client_->Describe(kLong));
}

TEST_F(WorkerServiceTest, CeilingsAreMeasuredWhereTheDeviceCan) {
  Start({});
  EXPECT_THAT(client_->MeasureCeilings(kLong), HasCode(absl::StatusCode::kUnimplemented));
  client_.reset();
  worker_.reset();
  Start({.ceilings = [] { return DeviceCeilings{100e9, 2e12, 0}; }});
  ASSERT_OK_AND_ASSIGN(const auto ceilings, client_->MeasureCeilings(kLong));
  EXPECT_EQ(ceilings.read_bytes_per_second(), 100e9);
  EXPECT_EQ(ceilings.fma_flops_per_second(), 2e12);
  EXPECT_EQ(ceilings.matrix_flops_per_second(), 0);
}

TEST_F(WorkerServiceTest, CeilingsAreMeasuredOnceWhenTheDeviceIsIdleWithAPlanIfThatIsAskedFor) {
  std::atomic<int> num_measured = 0;
  Start({.ceilings =
             [&num_measured] {
               ++num_measured;
               return DeviceCeilings{100e9, 2e12, 7e12};
             }},
        {.idle_check_interval = absl::Milliseconds(1), .measure_ceilings = true});
  EXPECT_FALSE(worker_->service().Status().has_ceilings());
  ASSERT_OK(Load(1));
  ASSERT_TRUE(Eventually([&] { return worker_->service().Status().has_ceilings(); }));
  ASSERT_OK(Load(2));
  EXPECT_EQ(num_measured, 1);
  const std::string page = MetricsText([&](MetricSamples& samples) {
    AddWorkerMetrics(testing::DescribeFakeWorker("fake0"), true, worker_->service().Status(),
                     samples);
  });
  EXPECT_THAT(page, HasSubstr("_read_ceiling_bytes_per_second{worker=\"fake0\"} 100000000000\n"));
  EXPECT_THAT(page, HasSubstr("{worker=\"fake0\",unit=\"fma\"} 2000000000000\n"));
  EXPECT_THAT(page, HasSubstr("{worker=\"fake0\",unit=\"matrix\"} 7000000000000\n"));
}

TEST_F(WorkerServiceTest, WorkAndErrorsAreCountedWhereASegmentRanOrFailed) {
  std::atomic<bool> fail = false;
  Start({.run = [&fail](const SegmentRun&) -> absl::StatusOr<SegmentResult> {
    if (fail) return absl::InternalError("no");
    return SegmentResult{.device_ns = 3, .stage_times = {{StageKind::kFfn, 3}}};
  }});
  ASSERT_OK(Load(1));
  client_->Open(worker_->execution_target());
  ASSERT_OK(Execute(Call(1, WriteStep(3))));
  const worker::v1::GetStatusResponse once = worker_->service().Status();
  EXPECT_EQ(once.work_size(), kNumDecoderStageKinds - 1) << "a head without outputs has none";
  fail = true;
  EXPECT_THAT(Execute(Call(1, WriteStep(3))), HasCode(absl::StatusCode::kInternal));
  EXPECT_THAT(Execute(Call(1, WriteStep(3), 5)), HasCode(absl::StatusCode::kInvalidArgument));
  const worker::v1::GetStatusResponse status = worker_->service().Status();
  const uint64_t num_rows = 3, layers = 2 - 1;  // the last layer's Ffn has no outputs to compute
  const ModelConfig& config = weights_->config();
  for (const worker::v1::StageWork& work : status.work()) {
    if (work.kind() != worker::v1::STAGE_KIND_FFN) continue;
    EXPECT_EQ(work.operations(), num_rows * layers * 6 * config.hidden_dim * config.ffn_dim);
  }
  for (const worker::v1::CodeCount& errors : status.errors()) {
    const bool seen = errors.code() == 13 || errors.code() == 3;
    EXPECT_EQ(errors.count(), seen ? 1u : 0u) << errors.code();
  }
}

}  // namespace
}  // namespace tandem
