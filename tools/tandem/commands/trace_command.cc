#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/request_flags.h"
#include "tools/tandem/printable.h"
#include "tools/tandem/trace/chrome_trace.h"

namespace tandem {
namespace {

constexpr auto kTraceTimeout = std::chrono::seconds(30);

struct TraceFlags {
  GatewayAddress address;
  std::string request_id;
  bool last = false;
  std::string out = "-";
  bool json = false;
};

absl::Status Write(const std::string& path, const std::string& text) {
  const bool standard = path == "-";
  std::FILE* const file = standard ? stdout : std::fopen(path.c_str(), "w");
  const bool written = file != nullptr && std::fputs(text.c_str(), file) >= 0;
  const bool closed = file != nullptr && (standard ? std::fflush(file) : std::fclose(file)) == 0;
  if (written && closed) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat("%s: %s", path, std::strerror(errno)));
}

absl::Status WriteTrace(const TraceFlags& flags) {
  if (flags.last == !flags.request_id.empty()) {
    return UsageError("give --request ID or --last");
  }
  TANDEM_ASSIGN_OR_RETURN(const auto stub, OpenGateway(flags.address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kTraceTimeout);
  v1::GetTraceRequest request;
  request.set_id(flags.request_id);
  v1::GetTraceResponse trace;
  const grpc::Status status = stub->GetTrace(&context, request, &trace);
  if (!status.ok()) return Explain(FromGateway(status), flags.address);
  MakePrintable(trace);
  if (trace.runs_size() == 0) return absl::DataLossError("the gateway's trace has no request");
  TANDEM_RETURN_IF_ERROR(Write(flags.out, flags.json ? MessageAsJson(trace) : ChromeTrace(trace)));
  if (flags.out != "-") {
    std::fprintf(stderr,
                 "request %s, %d steps: open %s at https://ui.perfetto.dev or chrome://tracing\n",
                 trace.request_id().c_str(), trace.steps_size(), flags.out.c_str());
  }
  return absl::OkStatus();
}

}  // namespace

std::function<int()> AddTraceCommand(CLI::App& app) {
  auto flags = std::make_shared<TraceFlags>();
  CLI::App* command = app.add_subcommand(
      "trace", "Write where a request's time went, a lane a device, for Perfetto or Chrome");
  AddAddressFlag(*command, flags->address);
  command->add_option("--request", flags->request_id,
                      "Its id, as in the answer's X-Request-Id or request_id");
  command->add_flag("--last", flags->last, "The request that ended last");
  command->add_option("--out", flags->out, "File to write; -: standard output")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "As the API gives it, not as Chrome's trace events");
  return [flags] {
    const absl::Status status = WriteTrace(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
