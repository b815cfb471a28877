// tandem run: from a model's name to a conversation.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/vision/seeing_model.h"
#include "tools/tandem/address.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/cluster_flags.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/commands/model_pull.h"
#include "tools/tandem/commands/own_cluster.h"
#include "tools/tandem/serve/cluster.h"

extern char** environ;

namespace tandem {
namespace {

constexpr absl::Duration kStartPatience = absl::Minutes(30);
constexpr absl::Duration kCallTimeout = absl::Milliseconds(500);

struct RunFlags {
  std::string model;
  std::vector<std::string> words;
  PullFlags pull;
  ClusterFlags cluster;
  bool yes = false;
};

// Asks at a terminal; elsewhere the answer is yes.
bool MayPull(const std::string& name, bool yes) {
  std::string size;
  const auto table = pull::ModelTable::FromEnvironment();
  if (const auto parsed = pull::ParseModelName(name);
      table.ok() && parsed.ok() && !parsed->from_hub) {
    const auto entry = table->Find(parsed->text);
    if (entry.ok() && entry->gigabytes > 0)
      size = absl::StrFormat(" (about %.1f GB)", entry->gigabytes);
  }
  if (yes || ::isatty(STDIN_FILENO) != 1 || ::isatty(STDERR_FILENO) != 1) {
    std::fprintf(stderr, "%s%s is not on this machine: pulling it\n", name.c_str(), size.c_str());
    return true;
  }
  std::fprintf(stderr, "%s%s is not on this machine.  Pull it?  [Y/n] ", name.c_str(),
               size.c_str());
  std::string answer;
  if (!std::getline(std::cin, answer)) return false;
  return answer.empty() || answer[0] == 'y' || answer[0] == 'Y';
}

// The model's place on this machine, where it is, or is pulled, to be served.
absl::Status MakeSureOf(const RunFlags& flags) {
  const absl::Status found = FindModel(flags.model).status();
  if (!absl::IsNotFound(found)) return found;
  TANDEM_ASSIGN_OR_RETURN(const pull::ModelTable table, pull::ModelTable::FromEnvironment());
  if (!pull::LooksLikeModelName(flags.model) && !table.Knows(flags.model)) return found;
  TANDEM_ASSIGN_OR_RETURN(const pull::ModelName name, pull::ParseModelName(flags.model));
  if (!name.from_hub) TANDEM_RETURN_IF_ERROR(table.Find(name.text).status());
  if (!MayPull(name.text, flags.yes)) return found;
  return PullModel(flags.model, flags.pull).status();
}

// The ids that a gateway can have for this model: with the vision encoder beside it, and without.
std::vector<std::string> IdsOf(const ModelPlace& place) {
  const std::string path = place.root.empty() ? place.name : place.root + "/" + place.name;
  std::vector<std::string> ids;
  for (const auto& source : {loader::OpenSeeingModel(path), loader::OpenModelSource(path)}) {
    if (source.ok()) ids.push_back((*source)->content_id());
  }
  return ids;
}

// The gateway that runs here already, if it serves `model`: that very file, not another one of the
// same name.
std::optional<std::string> RunningWith(const std::string& model) {
  const GatewayAddress address;
  const auto stub = OpenGateway(address);
  if (!stub.ok()) return std::nullopt;
  const auto status = FetchStatus(**stub, kCallTimeout);
  const auto place = FindModel(model);
  if (!status.ok() || !place.ok() || status->state() != "ready") return std::nullopt;
  if (status->model() != place->name) return std::nullopt;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  v1::ListModelsResponse served;
  if (!(*stub)->ListModels(&context, {}, &served).ok() || served.models().empty()) {
    return std::nullopt;
  }
  const std::vector<std::string> ids = IdsOf(*place);
  if (std::find(ids.begin(), ids.end(), served.models(0).model_id()) != ids.end()) {
    return address.target;
  }
  std::fprintf(stderr,
               "the gateway at %s serves another file %s, or with another vision encoder: starting "
               "a cluster for this one\n",
               address.target.c_str(), place->name.c_str());
  return std::nullopt;
}

// Runs this program with `arguments` in the terminal's foreground, and returns its exit status.
absl::StatusOr<int> RunSelf(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ExecutableDirectory() + "/tandem");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  // Ctrl-C is the child's alone: in a conversation it ends an answer.
  struct sigaction ignore {
  }, interrupt{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGINT, &ignore, &interrupt);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t defaults;
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGINT);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, argv[0], nullptr, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  int status = 0;
  if (error == 0) {
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  ::sigaction(SIGINT, &interrupt, nullptr);
  if (error != 0) {
    return absl::InternalError(absl::StrFormat("%s: %s", arguments[0], std::strerror(error)));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

absl::StatusOr<int> Run(RunFlags& flags) {
  if (!flags.pull.folder.empty()) ::setenv("TANDEM_MODELS", flags.pull.folder.c_str(), 1);
  if (flags.pull.mmproj == pull::kNoEncoder) flags.cluster.options.mmproj = flags.pull.mmproj;
  TANDEM_RETURN_IF_ERROR(MakeSureOf(flags));
  std::unique_ptr<OwnCluster> own;
  std::string address;
  if (const auto running = RunningWith(flags.model)) {
    address = *running;
  } else {
    flags.cluster.options.model = flags.model;
    TANDEM_ASSIGN_OR_RETURN(own, OwnCluster::Start(flags.cluster));
    address = own->address();
    const auto stub = MakeGenerationStub(GatewayAddress(address));
    TANDEM_RETURN_IF_ERROR(own->AwaitReady(*stub, kStartPatience,
                                           [](const std::string& what) {
                                             std::fprintf(stderr, "  %s\n", what.c_str());
                                           })
                               .status());
  }
  std::vector<std::string> arguments = {"chat", "--address", address};
  if (!flags.words.empty()) {
    arguments = {"generate", "--address", address, "--chat", "--"};
    arguments.insert(arguments.end(), flags.words.begin(), flags.words.end());
  }
  return RunSelf(std::move(arguments));
}

}  // namespace

std::function<int()> AddRunCommand(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app.add_subcommand(
      "run", "Talk with a model: pull it where it is missing, serve it, chat, and stop");
  command
      ->add_option("model", flags->model,
                   "gemma3:27b, hf:OWNER/REPO[:FILE], a GGUF file or a safetensors folder")
      ->required();
  command->add_option("prompt", flags->words,
                      "Words of a question: it is answered, and that is all");
  AddPullFlags(*command, flags->pull);
  command->add_flag("--yes,-y", flags->yes, "Pull without asking");
  command->add_option("--npu", flags->cluster.npu, kNpuPolicyHelp)->capture_default_str();
  command->add_option("--gpu-device", flags->cluster.options.gpu_device,
                      "Vulkan device: index or part of its name");
  command->add_option("--context", flags->cluster.options.context_len,
                      "Longest context; 0: the model's");
  return [flags] {
    const auto status = Run(*flags);
    return status.ok() ? *status : Fail(status.status());
  };
}

}  // namespace tandem
