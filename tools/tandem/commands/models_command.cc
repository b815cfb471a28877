#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/text_table.h"
#include "services/common/pull/model_store.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/answer_json.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/model_folder.h"
#include "tools/tandem/commands/model_pull.h"
#include "tools/tandem/commands/request_flags.h"
#include "tools/tandem/printable.h"

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

absl::StatusOr<v1::ListModelsResponse> FetchModels(const GatewayAddress& address) {
  TANDEM_ASSIGN_OR_RETURN(const auto stub, OpenGateway(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(kListTimeout));
  v1::ListModelsResponse models;
  TANDEM_RETURN_IF_ERROR(Explain(FromGateway(stub->ListModels(&context, {}, &models)), address));
  MakePrintable(models);
  return models;
}

// The served model, and pulled ones that could be.  Without a gateway the latter is an answer too,
// unless the gateway was named.
absl::Status Models(const GatewayAddress& address, bool named, const std::string& models_dir,
                    bool as_json) {
  const auto pulled = pull::ListPulled(pull::ModelsFolders(models_dir));
  const auto served = FetchModels(address);
  if (!served.ok() && (named || pulled.empty())) return served.status();
  const v1::ListModelsResponse models = served.ok() ? *served : v1::ListModelsResponse();
  if (as_json) {
    auto json = nlohmann::ordered_json::parse(MessageAsJson(models));
    json["pulled"] = nlohmann::ordered_json::parse(PulledAsJson(pulled));
    std::fputs(PrintJson(json, 2).c_str(), stdout);
    return absl::OkStatus();
  }
  if (served.ok()) std::fputs(ModelsAsTable(models).c_str(), stdout);
  if (served.ok() && !pulled.empty()) std::fputs("\n", stdout);
  std::fputs(PulledAsTable(pulled).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

std::function<int()> AddModelsCommand(CLI::App& app) {
  struct Flags {
    GatewayAddress address;
    std::string folder, models_dir;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command =
      app.add_subcommand("models", "List the models that are served and those that were pulled");
  AddAddressFlag(*command, flags->address);
  command->add_option("--folder", flags->folder, "List the files and releases in this folder");
  AddModelsDirFlag(*command, flags->models_dir);
  command->add_flag("--json", flags->json, "Print JSON");
  const CLI::Option* address = command->get_option("--address");
  return [flags, address] {
    if (!flags->folder.empty()) {
      const auto description = DescribeModelFolder(flags->folder, flags->json);
      if (!description.ok()) return Fail(description.status());
      std::fputs(description->c_str(), stdout);
      return 0;
    }
    const absl::Status status =
        Models(flags->address, address->count() > 0, flags->models_dir, flags->json);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
