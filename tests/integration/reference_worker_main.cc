// reference_worker: a worker process for tests, over the reference arithmetic on the host.
#include <CLI/CLI.hpp>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "services/common/base/logging.h"
#include "services/common/reference/reference_worker.h"
#include "services/common/rpc/polling.h"
#include "services/worker_host/worker_flags.h"

namespace {

class Worker final : public tandem::reference::ReferenceWorker {
 public:
  Worker(const tandem::reference::ReferenceWorkerOptions& options, std::string refusal)
      : ReferenceWorker(options), refusal_(std::move(refusal)) {}

  absl::StatusOr<tandem::LoadReport> Load(
      tandem::ModelLoad load,
      const std::function<void(double, std::string_view)>& progress) override {
    std::string why;
    if (std::getline(std::ifstream(refusal_), why)) return absl::ResourceExhaustedError(why);
    return ReferenceWorker::Load(std::move(load), progress);
  }

 private:
  const std::string refusal_;  // a file
};

}  // namespace

int main(int argc, char** argv) {
  tandem::PollForLatency();
  tandem::ShutdownSignals signals;
  tandem::InitLogging("reference_worker");
  tandem::reference::ReferenceWorkerOptions options;
  tandem::RunWorkerOptions run;
  std::string kind = "gpu";
  std::string attend_delay, ffn_delay;
  CLI::App app("A worker on the host, for tests.", "reference_worker");
  app.add_option("--listen", run.server.listen, "unix:PATH or HOST:PORT")->required();
  app.add_option("--name", options.name, "name in the cluster");
  app.add_option("--driver", options.driver, "of its device");
  bool layers = false;
  app.add_flag("--layers", layers, "an NPU of whole layers: all stages but Embed and Head");
  app.add_option("--kind", kind, "gpu: every stage; npu: Attend alone")
      ->check(CLI::IsMember({"gpu", "npu"}));
  app.add_option("--attend-delay", attend_delay,
                 "file with the microseconds that each Attend takes longer, read each time");
  app.add_option("--ffn-delay", ffn_delay, "the same of each Ffn");
  bool by_row = false;
  app.add_flag("--delay-by-row", by_row, "they are of each row");
  std::string refusal;
  app.add_option("--refuse-plans", refusal,
                 "file with the reason why plans are refused; none, or empty: they are not");
  std::string ports = "f16,bf16";
  app.add_option("--ports", ports, "formats of q, k, v and attention that cross")
      ->check(CLI::IsMember({"f16,bf16", "bf16"}));
  double watts = 0.0;
  app.add_option("--watts", watts, "power that its answers report");
  tandem::AddHostFlags(app, run);
  CLI11_PARSE(app, argc, argv);
  run.service.power = [watts] { return watts; };
  if (ports == "bf16") options.port_dtypes = {tandem::DType::kBf16};
  if (kind == "npu") {
    options.kind = tandem::DeviceKind::kNpu;
    options.stages = {tandem::StageKind::kAttend};
    if (layers) {
      options.stages = {tandem::StageKind::kQkv, tandem::StageKind::kAttend,
                        tandem::StageKind::kOut, tandem::StageKind::kFfn};
    }
  }
  options.delay = [&](tandem::StageKind stage, uint32_t num_rows) {
    int64_t microseconds = 0;
    if (stage == tandem::StageKind::kAttend) std::ifstream(attend_delay) >> microseconds;
    if (stage == tandem::StageKind::kFfn) std::ifstream(ffn_delay) >> microseconds;
    return absl::Microseconds(microseconds) * (by_row ? num_rows : 1);
  };
  const absl::Status status =
      tandem::RunWorkerService(std::make_unique<Worker>(options, refusal), run, signals);
  if (status.ok()) return 0;
  tandem::LogError("worker stopped", {{"reason", std::string(status.message())}});
  return 1;
}
