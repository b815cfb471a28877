#include "tests/integration/cluster_fixture.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/rpc/channel.h"
#include "services/common/testing/eventually.h"

namespace tandem::testing {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr absl::Duration kCallDeadline = absl::Minutes(2);

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
}

}  // namespace

std::string ClusterFixture::Program(const std::string& name) {
  if (name == "serve") return "tandem";
  if (name.starts_with("gpu")) return "tandem-gpu-worker";
  return name == "npu" ? "tandem-npu-worker" : "tandem-" + name;
}

std::vector<std::string> ClusterFixture::Arguments(const std::string& name) const {
  if (name == "serve") {
    const std::string policy = setup_.npu ? "emulate" : "off";
    std::vector<std::string> arguments = {"serve",
                                          "--model",
                                          setup_.model_folder + "/" + setup_.model_file,
                                          "--npu",
                                          setup_.policy.empty() ? policy : setup_.policy,
                                          "--max-rows",
                                          "64",
                                          "--context",
                                          std::to_string(setup_.context_len),
                                          "--runtime-dir",
                                          directory_->path(),
                                          "--no-packed-cache",
                                          "--port",
                                          "0",
                                          "--http",
                                          setup_.http};
    arguments.insert(arguments.end(), setup_.gateway_flags.begin(), setup_.gateway_flags.end());
    return arguments;
  }
  std::vector<std::string> arguments = {"--listen", Target(name)};
  const auto add = [&arguments](std::initializer_list<std::string> more) {
    arguments.insert(arguments.end(), more);
  };
  if (name == "loader") add({"--root", setup_.model_folder});
  if (name.starts_with("gpu")) add({"--name", name == "gpu" ? "gpu0" : name});
  if (name == "npu") add({"--name", "npu0", "--npu", "emulate"});
  if (name == "gateway") {
    add({"--loader", Target("loader"), "--model", setup_.model_file, "--npu",
         setup_.npu ? "emulate" : "off", "--max-rows", "64", "--context",
         std::to_string(setup_.context_len), "--http", setup_.http});
    if (!setup_.replica_words.empty()) {
      add({"--replica-file", directory_->path() + "/replicas"});
    } else if (setup_.by_name) {
      add({"--replica-names", Target("gpu{}")});
    } else {
      add({"--worker", Target("gpu")});
      if (setup_.second_gpu) add({"--worker", Target("gpu1")});
    }
    if (setup_.npu) add({"--worker", Target("npu")});
    if (setup_.draft_npu) add({"--npu-worker", Target("npu")});
    arguments.insert(arguments.end(), setup_.gateway_flags.begin(), setup_.gateway_flags.end());
  }
  return arguments;
}

std::string ClusterFixture::LogOf(const std::string& name) const {
  std::ifstream file(directory_->path() + "/logs/" + name + ".log");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void ClusterFixture::RemoveSocket(const std::string& name) const {
  std::filesystem::remove(directory_->path() + "/" + name + ".sock");
}

void ClusterFixture::StartCluster(const ClusterSetup& setup) {
  setup_ = setup;
  directory_ = std::make_unique<TemporaryDirectory>();
  if (!setup_.replica_words.empty()) {
    std::ofstream(directory_->path() + "/replicas")
        << Target("gpu") << ' ' << setup_.replica_words.at(0) << '\n'
        << Target("gpu1") << ' ' << setup_.replica_words.at(1) << '\n';
  }
  if (setup_.serve) {
    StartService("serve");
  } else {
    StartService("loader");
    StartService(setup_.by_name ? "gpu1" : "gpu");
    if (setup_.second_gpu) StartService("gpu1");
    if (setup_.npu || setup_.draft_npu) StartService("npu");
    StartService("gateway");
  }
  gateway_ = v1::Generation::NewStub(CreateChannel(Target("gateway")));
  loader_ = loader::v1::Loader::NewStub(CreateChannel(Target("loader")));
  WaitForStatus(setup_.state,
                [this](const auto& status) { return status.state() == setup_.state; });
}

void ClusterFixture::StopCluster() {
  gateway_.reset();
  loader_.reset();
  // Not killed: what it started would outlive it for a moment, busy with files in the directory.
  if (const auto serve = services_.find("serve"); serve != services_.end()) {
    if (serve->second->pid() > 0) {
      serve->second->Signal(SIGTERM);
      serve->second->Wait();
    }
  }
  services_.clear();
  directory_.reset();
}

void ClusterFixture::StartService(const std::string& name) {
  services_[name] =
      std::make_unique<ChildProcess>(setup_.program_folder + "/" + Program(name), Arguments(name));
}

void ClusterFixture::KillService(const std::string& name) {
  if (setup_.serve) {
    const pid_t pid = Pid(name);
    ASSERT_GT(pid, 0) << name << " does not run";
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    ASSERT_TRUE(Eventually([&] { return Pid(name) != pid; })) << name << " still runs";
    return;
  }
  services_.at(name)->Signal(SIGKILL);
  services_.at(name)->Wait();
}

pid_t ClusterFixture::Pid(const std::string& name) const {
  if (!setup_.serve || name == "serve") return services_.at(name)->pid();
  const std::string process = "/proc/" + std::to_string(Pid("serve"));
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(process + "/task", gone)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) {
      const std::string executable = "/proc/" + std::to_string(child) + "/exe";
      if (std::filesystem::read_symlink(executable, gone).filename() == Program(name)) return child;
    }
  }
  return -1;
}

size_t ClusterFixture::NumDescriptors(const std::string& name) const {
  const std::filesystem::directory_iterator entries("/proc/" + std::to_string(Pid(name)) + "/fd");
  return std::distance(begin(entries), end(entries));
}

v1::GetStatusResponse ClusterFixture::Status() {
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(5));
  // A call that waits also drives the connection; calls that fail at once never get one made.
  context.set_wait_for_ready(true);
  v1::GetStatusResponse status;
  if (!gateway_->GetStatus(&context, {}, &status).ok()) status.set_state("no answer");
  return status;
}

uint32_t ClusterFixture::NumRegions() {
  grpc::ClientContext context;
  SetDeadline(context, kPatience);
  context.set_wait_for_ready(true);
  loader::v1::GetStatusResponse status;
  const grpc::Status called = loader_->GetStatus(&context, {}, &status);
  EXPECT_TRUE(called.ok()) << called.error_message();
  return status.num_regions();
}

void ClusterFixture::WaitForStatus(const std::string& what,
                                   const std::function<bool(const v1::GetStatusResponse&)>& done) {
  const absl::Time until = absl::Now() + kPatience;
  v1::GetStatusResponse status;
  while (!done(status = Status())) {
    ASSERT_LT(absl::Now(), until) << "not " << what << ": " << status.ShortDebugString();
    absl::SleepFor(absl::Milliseconds(20));
  }
}

Answer ClusterFixture::Generate(const v1::GenerateRequest& request,
                                const std::function<void()>& on_message) {
  grpc::ClientContext context;
  SetDeadline(context, kCallDeadline);
  auto reader = gateway_->Generate(&context, request);
  Answer answer;
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
    answer.text += message.text();
    for (const v1::Token& token : message.tokens()) answer.tokens.push_back(token.id());
    if (!message.placement().empty()) answer.placement = message.placement();
    answer.finish_reason = message.finish_reason();
    answer.usage = message.usage();
    if (on_message) on_message();
  }
  answer.status = reader->Finish();
  return answer;
}

Answer ClusterFixture::Chat(const std::string& question) {
  v1::ChatRequest request;
  v1::ChatMessage* message = request.add_messages();
  message->set_role("user");
  message->set_content(question);
  request.mutable_sampling()->set_temperature(0.0f);
  request.mutable_limits()->set_max_tokens(64);
  return Chat(request);
}

Answer ClusterFixture::Chat(const v1::ChatRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context, kCallDeadline);
  auto reader = gateway_->Chat(&context, request);
  Answer answer;
  v1::ChatResponse response;
  while (reader->Read(&response)) {
    answer.text += response.text();
    for (const v1::Token& token : response.tokens()) answer.tokens.push_back(token.id());
    if (!response.placement().empty()) answer.placement = response.placement();
    answer.finish_reason = response.finish_reason();
    answer.usage = response.usage();
  }
  answer.status = reader->Finish();
  return answer;
}

v1::GenerateRequest GreedyRequest(const std::string& prompt, uint32_t num_tokens) {
  v1::GenerateRequest request;
  request.set_text(prompt);
  request.mutable_sampling()->set_temperature(0.0f);
  request.mutable_limits()->set_max_tokens(num_tokens);
  request.mutable_limits()->set_ignore_eos(true);
  return request;
}

}  // namespace tandem::testing
