#include "services/worker_host/worker_metrics.h"

#include <string>

#include "services/common/plan/stage.h"
#include "services/common/rpc/worker_convert.h"

namespace tandem {

std::vector<MetricSpec> WorkerMetrics::All() {
  return {kInfo,        kServing,           kBusySeconds, kBytes,    kOperations,
          kReadCeiling, kOperationsCeiling, kErrors,      kSegments, kSegmentsFailed,
          kRows,        kPlanEpoch,         kWeightBytes, kKvBytes,  kLoadSeconds};
}

namespace {

std::string_view StageOf(worker::v1::StageKind kind) {
  return StageKindName(static_cast<StageKind>(kind - ToProto(StageKind{})));
}

void AddWork(const std::string& name, const worker::v1::GetStatusResponse& status,
             MetricSamples& samples) {
  using M = WorkerMetrics;
  for (const worker::v1::StageWork& work : status.work()) {
    samples.Add(M::kBytes, static_cast<double>(work.bytes()), {name, StageOf(work.kind())});
    samples.Add(M::kOperations, static_cast<double>(work.operations()),
                {name, StageOf(work.kind())});
  }
  if (!status.has_ceilings()) return;
  const worker::v1::MeasureCeilingsResponse& ceilings = status.ceilings();
  samples.Add(M::kReadCeiling, ceilings.read_bytes_per_second(), {name});
  samples.Add(M::kOperationsCeiling, ceilings.fma_flops_per_second(), {name, "fma"});
  if (ceilings.matrix_flops_per_second() > 0) {
    samples.Add(M::kOperationsCeiling, ceilings.matrix_flops_per_second(), {name, "matrix"});
  }
}

}  // namespace

void AddWorkerMetrics(const WorkerDescription& worker, bool serving,
                      const worker::v1::GetStatusResponse& status, MetricSamples& samples) {
  using M = WorkerMetrics;
  const std::string& name = worker.name;
  samples.Add(M::kInfo, 1,
              {name, worker.kind == DeviceKind::kNpu ? "npu" : "gpu", worker.device,
               worker.emulated ? "true" : "false"});
  samples.Add(M::kServing, serving ? 1 : 0, {name});
  for (const worker::v1::StageTime& time : status.busy()) {
    samples.Add(M::kBusySeconds, static_cast<double>(time.device_ns()) * 1e-9,
                {name, StageOf(time.kind())});
  }
  AddWork(name, status, samples);
  for (const worker::v1::CodeCount& errors : status.errors()) {
    samples.Add(M::kErrors, static_cast<double>(errors.count()),
                {name, StatusCodeLabel(errors.code())});
  }
  samples.Add(M::kSegments, static_cast<double>(status.segments_run()), {name});
  samples.Add(M::kSegmentsFailed, static_cast<double>(status.segments_failed()), {name});
  samples.Add(M::kRows, static_cast<double>(status.rows_run()), {name});
  for (const worker::v1::PlanStatus& plan : status.plans()) {
    const worker::v1::LoadPlanReport& report = plan.report();
    samples.Add(M::kPlanEpoch, static_cast<double>(plan.epoch()), {name, plan.plan_id()});
    samples.Add(M::kWeightBytes, static_cast<double>(report.weight_bytes()),
                {name, plan.plan_id(), report.weight_import()});
    samples.Add(M::kKvBytes, static_cast<double>(report.kv_bytes()), {name, plan.plan_id()});
    samples.Add(M::kLoadSeconds, report.load_seconds(), {name, plan.plan_id()});
  }
}

}  // namespace tandem
