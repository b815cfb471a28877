#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/model_folder.h"
#include "tools/tandem/commands/request_flags.h"

namespace tandem {
namespace {

constexpr absl::Duration kListTimeout = absl::Seconds(10);

std::string ModelsAsTable(const v1::ListModelsResponse& models) {
  TextTable table({false, false, true, true, true, true, false});
  table.Add({"NAME", "ARCHITECTURE", "LAYERS", "CONTEXT", "VOCABULARY", "WEIGHTS MiB", "ID"});
  for (const v1::ModelInfo& model : models.models()) {
    table.Add({model.name(), model.architecture(), absl::StrFormat("%d", model.num_layers()),
               absl::StrFormat("%d", model.context_len()),
               absl::StrFormat("%d", model.vocab_size()),
               absl::StrFormat("%.1f", static_cast<double>(model.weight_bytes()) / (1 << 20)),
               model.model_id()});
  }
  return table.Print();
}

absl::Status Models(const GatewayAddress& address, bool as_json) {
  const auto stub = MakeGenerationStub(address);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(kListTimeout));
  v1::ListModelsResponse models;
  TANDEM_RETURN_IF_ERROR(Explain(FromGateway(stub->ListModels(&context, {}, &models)), address));
  std::fputs((as_json ? MessageAsJson(models) : ModelsAsTable(models)).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

std::function<int()> AddModelsCommand(CLI::App& app) {
  struct Flags {
    GatewayAddress address;
    std::string folder;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("models", "List the models that the gateway serves, or those of a folder");
  AddAddressFlag(*command, flags->address);
  command->add_option("--folder", flags->folder, "List the files and releases in this folder");
  command->add_flag("--json", flags->json, "Print JSON");
  return [flags] {
    if (!flags->folder.empty()) {
      const auto description = DescribeModelFolder(flags->folder, flags->json);
      if (!description.ok()) return Fail(description.status());
      std::fputs(description->c_str(), stdout);
      return 0;
    }
    const absl::Status status = Models(flags->address, flags->json);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
