// Every flag of `tandem serve` in a file: taken with a right value, refused with a wrong one.
#include "tools/tandem/commands/serve_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/flags/manual_page.h"
#include "services/common/testing/temporary_directory.h"
#include "tools/tandem/supervisor/supervisor.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// A right and a wrong value, as TOML.
struct Sample {
  std::string right;
  std::string wrong;
};

class ServeFlagsTest : public ::testing::Test {
 protected:
  ServeFlagsTest() {
    std::ofstream(File("m.gguf")) << "x";
    std::ofstream(File("pem")) << "x";
    std::ofstream(File("keys")) << "one sha256:" << std::string(64, 'a') << "\n";
  }

  std::string File(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string Quoted(const std::string& name) const { return "\"" + File(name) + "\""; }

  // Parses `tandem serve --config FILE ARGUMENTS`; the error's text, empty when all was taken.
  std::string Parse(const std::string& config, std::vector<std::string> arguments = {}) {
    std::ofstream(File("serve.toml")) << config;
    arguments.insert(arguments.begin(), {"serve", "--config", File("serve.toml")});
    return ParseLine(std::move(arguments));
  }
  std::string ParseLine(std::vector<std::string> arguments) {
    app_ = std::make_unique<CLI::App>();
    flags_ = std::make_unique<ServeFlags>();
    serve_ = app_->add_subcommand("serve");
    AddServeFlags(*serve_, *flags_);
    std::reverse(arguments.begin(), arguments.end());
    try {
      app_->parse(arguments);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

  // The flags whose values say more than their kind.  A flag that is not here gets a value of its
  // kind, and a wrong value of another kind.
  std::map<std::string, Sample> Special() const {
    return {
        {"model", {Quoted("m.gguf"), Quoted("absent.gguf")}},
        {"npu", {"\"off\"", "\"maybe\""}},
        {"npu-prompts", {"false", "\"maybe\""}},  // --npu off is given too
        {"favour", {"\"throughput\"", "\"speed\""}},
        {"gpu", {"\"software\"", "\"maybe\""}},
        {"tune", {"\"off\"", "\"never\""}},
        {"kv-type", {"\"q8_0\"", "\"q3\""}},
        {"prefix-cache", {"\"off\"", "\"maybe\""}},
        {"speculate", {"\"lookup,draft\"", "\"model\""}},
        {"mmproj", {"\"none\"", Quoted("absent.gguf")}},
        {"draft", {Quoted("m.gguf"), Quoted("absent.gguf")}},
        {"log-format", {"\"json\"", "\"xml\""}},
        {"port", {"50052", "80000"}},
        {"log-bytes", {"65536", "1"}},
        {"http", {"\"127.0.0.1:9999\"", "\"28080\""}},
        {"http-tls-cert", {Quoted("pem"), Quoted("absent.pem")}},
        {"http-tls-key", {Quoted("pem"), Quoted("absent.pem")}},
        {"http-api-keys", {Quoted("keys"), Quoted("pem")}},
        {"fetch-images", {"[\"a.example\", \"*.b.example:8443\"]", "\"http://a.example\""}},
        {"http-cors", {"[\"https://a.example\", \"*\"]", "[\"https://a.example/\"]"}},
        {"http-name", {"[\"models.example\"]", "[\"Models.example\"]"}},
        {"alias", {"[\"gemma3:27b\", \"mine\"]", "[\"two words\"]"}},
        {"tool-format", {"\"gemma3\"", "\"gemma9\""}},
        {"otlp", {"\"http://127.0.0.1:4318/v1/traces\"", "\"127.0.0.1\""}},
        {"trace-sample", {"0.5", "1.5"}},
        {"worker", {"[\"tls://a:1\"]", "[\"ftp://a:1\"]"}},
        {"gpu-device", {"\"\"", "[\"two\", \"texts\"]"}},  // --gpus is given too
        {"gpus", {"[\"0\", \"1\"]", "[\"0\", \"first\"]"}},
        {"split", {"false", "\"maybe\""}},  // --replicas is given too
        {"layers", {"[\"gpu0=0-3\"]", "[\"gpu0\"]"}},
        {"tls-cert", {Quoted("pem"), Quoted("absent.pem")}},
        {"tls-key", {Quoted("pem"), Quoted("absent.pem")}},
        {"tls-ca", {Quoted("pem"), Quoted("absent.pem")}},
    };
  }

  Sample SampleOf(const CLI::Option& option) const {
    const std::string name = option.get_lnames().front();
    const auto special = Special();
    if (const auto found = special.find(name); found != special.end()) return found->second;
    if (!TakesValue(option)) return {"true", "\"maybe\""};
    if (option.get_type_name().starts_with("TEXT")) return {"\"text\"", "[\"two\", \"texts\"]"};
    const std::string usual = option.get_default_str();
    return {usual.empty() ? "7" : usual, "\"seven\""};
  }

  const TemporaryDirectory folder_;
  std::unique_ptr<CLI::App> app_;
  std::unique_ptr<ServeFlags> flags_;
  CLI::App* serve_ = nullptr;
};

TEST_F(ServeFlagsTest, EveryFlagCanBeGivenInAFile) {
  ParseLine({});  // for the flags
  std::string config;
  std::vector<std::string> names;
  for (const CLI::Option* option : ShownOptions(*serve_)) {
    if (!option->get_configurable()) continue;
    names.push_back(option->get_lnames().front());
    config += names.back() + " = " + SampleOf(*option).right + "\n";
  }
  EXPECT_THAT(names, IsSupersetOf({"model", "http", "metrics", "worker", "no-packed-cache"}));
  ASSERT_EQ(Parse(config), "");
  for (const std::string& name : names) {
    EXPECT_GT(serve_->get_option("--" + name)->count(), 0u) << name;
  }
  const ClusterOptions& options = flags_->cluster.options;
  EXPECT_EQ(options.model, File("m.gguf"));
  EXPECT_EQ(options.port, 50052);
  EXPECT_TRUE(options.metrics);
  EXPECT_FALSE(options.packed_cache);
  const auto resolved = ResolveServeFlags(*flags_);
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  EXPECT_EQ(resolved->http, "127.0.0.1:9999");
  EXPECT_THAT(resolved->gateway_arguments,
              IsSupersetOf({std::string("--http-api-keys"), File("keys")}));
  EXPECT_THAT(resolved->gateway_arguments, AllOf(Contains("https://a.example"), Contains("*"),
                                                 Contains("--http-open"), Not(Contains("--http"))));
  EXPECT_THAT(resolved->gateway_arguments,
              IsSupersetOf({"--alias", "gemma3:27b", "mine", "--any-model-name"}));
  EXPECT_THAT(resolved->host_arguments, IsSupersetOf({"--worker", "tls://a:1", "gpu0=0-3"}));
}

// For each flag a value that is not its default.
TEST_F(ServeFlagsTest, EveryFlagOfAClusterIsPassedOnToIt) {
  const std::map<std::string, std::string> values = {
      {"model", File("m.gguf")}, {"mmproj", "none"},       {"npu", "emulate"},
      {"gpu", "software"},       {"gpu-device", "radeon"}, {"tune", "off"},
      {"kv-type", "q8_0"},       {"prefix-cache", "off"},  {"speculate", "lookup"},
      {"draft", File("m.gguf")}, {"draft-device", "npu"}};
  CLI::App app;
  ClusterFlags flags;
  AddClusterFlags(app, flags);
  std::map<std::string, std::string> given;
  std::vector<std::string> arguments;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_lnames().front();
    if (name == "help" || name == "models-dir") continue;  // the second is in the environment
    arguments.push_back("--" + name);
    if (!TakesValue(*option)) {
      given[name] = "";
      continue;
    }
    const auto found = values.find(name);
    given[name] = found != values.end() ? found->second : "7";
    arguments.push_back(given[name]);
  }
  std::reverse(arguments.begin(), arguments.end());
  ASSERT_NO_THROW(app.parse(arguments));

  std::vector<std::string> passed_on = ClusterArguments(flags);
  std::reverse(passed_on.begin(), passed_on.end());
  CLI::App next;
  ClusterFlags received;
  AddClusterFlags(next, received);
  ASSERT_NO_THROW(next.parse(passed_on));
  for (const auto& [name, value] : given) {
    const CLI::Option* option = next.get_option("--" + name);
    ASSERT_EQ(option->count(), 1u) << "--" << name << " is not passed on";
    if (value.empty()) continue;
    EXPECT_EQ(option->results().front(), value) << name;
  }
  EXPECT_EQ(ClusterArguments(received), ClusterArguments(flags));
}

TEST_F(ServeFlagsTest, FlagsOfGpusThatDoNotGoTogetherAreRefused) {
  const auto refusal = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"serve", "--model", File("m.gguf")});
    EXPECT_EQ(ParseLine(std::move(arguments)), "");
    const auto resolved = ResolveServeFlags(*flags_);
    return resolved.ok() ? "" : std::string(resolved.status().message());
  };
  EXPECT_EQ(refusal({"--gpus", "0,1"}), "");
  EXPECT_EQ(refusal({"--gpus", "all", "--split"}), "");
  EXPECT_THAT(refusal({"--gpus", "0,1,0"}), HasSubstr("--gpus 0,1,0: a GPU is named twice"));
  EXPECT_THAT(refusal({"--gpus", "all,1"}), HasSubstr("named twice"));
  EXPECT_THAT(refusal({"--gpus", "0,1", "--gpu-device", "2"}), HasSubstr("give one of them"));
  EXPECT_THAT(refusal({"--gpus", "0,1", "--split", "--replicas", "2"}), HasSubstr("--split"));
}

TEST_F(ServeFlagsTest, APulledModelIsFoundInTheFolderThatAFlagNames) {
  ::unsetenv("TANDEM_MODELS");
  const std::string name = "hf:owner/repo:toy-Q8_0.gguf", models = File("models");
  std::filesystem::create_directories(models + "/owner/repo");
  std::ofstream(models + "/owner/repo/toy-Q8_0.gguf") << "x";
  EXPECT_THAT(ParseLine({"serve", "--model", name}), HasSubstr("`tandem pull " + name + "`"));
  EXPECT_EQ(ParseLine({"serve", "--model", name, "--models-dir", models}), "");
  ::unsetenv("TANDEM_MODELS");
  EXPECT_EQ(Parse("model = \"" + name + "\"\nmodels-dir = " + Quoted("models") + "\n"), "");
  ::unsetenv("TANDEM_MODELS");
}

TEST_F(ServeFlagsTest, EachWrongValueIsRefusedByFileLineAndKey) {
  ParseLine({});
  std::map<std::string, Sample> samples;
  for (const CLI::Option* option : ShownOptions(*serve_)) {
    if (option->get_configurable()) samples[option->get_lnames().front()] = SampleOf(*option);
  }
  EXPECT_GT(samples.size(), 30u);
  for (const auto& [name, sample] : samples) {
    const std::string error = Parse("# one\n\n" + name + " = " + sample.wrong + "\n");
    EXPECT_THAT(error, HasSubstr(absl::StrFormat("%s:3: %s: ", File("serve.toml"), name)));
  }
}

TEST_F(ServeFlagsTest, AFileThatCannotBeReadIsRefusedByName) {
  EXPECT_THAT(ParseLine({"serve", "--config", File("absent.toml")}),
              AllOf(HasSubstr(File("absent.toml")), HasSubstr("No such file")));
  EXPECT_THAT(ParseLine({"serve", "--config", folder_.path()}),
              AllOf(HasSubstr(folder_.path()), HasSubstr("is a folder")));
}

TEST_F(ServeFlagsTest, BrokenSyntaxAndUnknownKeysAreRefusedByFileAndLine) {
  const std::string place = File("serve.toml");
  EXPECT_THAT(Parse("port = 1\nnpu = off\n"), HasSubstr(place + ":2: "));
  EXPECT_THAT(Parse("port = 1\nport = 2\n"), HasSubstr(place + ":2: "));
  EXPECT_THAT(Parse("\nmodle = \"m\"\n"), HasSubstr(place + ":2: modle: "));
  EXPECT_THAT(Parse("[serve]\nport = 1\n"), HasSubstr(place + ":1: serve: "));
  EXPECT_THAT(Parse("config = \"x\"\n"), HasSubstr(place + ":1: config: "));
  EXPECT_THAT(Parse("help = true\n"), HasSubstr(place + ":1: help: "));
}

TEST_F(ServeFlagsTest, TheCommandLineIsStrongerThanTheFile) {
  ASSERT_EQ(Parse("port = 1\nnpu = \"off\"\nmodel = \"absent\"\n",
                  {"--port", "2", "--model", File("m.gguf")}),
            "");
  EXPECT_EQ(flags_->cluster.options.port, 2);
  EXPECT_EQ(flags_->cluster.npu, "off");
}

TEST_F(ServeFlagsTest, AModelIsRequiredWhereverItIsSaid) {
  EXPECT_THAT(Parse("port = 1\n"), HasSubstr("--model is required"));
}

TEST_F(ServeFlagsTest, WrongValuesOnTheCommandLineAreRefusedByFlag) {
  const std::string model = File("m.gguf");
  EXPECT_THAT(ParseLine({"serve", "--model", model, "--http", "28080"}), HasSubstr("--http: "));
  EXPECT_THAT(ParseLine({"serve", "--model", model, "--port", "80000"}), HasSubstr("--port: "));
  EXPECT_THAT(ParseLine({"serve", "--model", model, "--metrics-port", "9000"}),
              AllOf(HasSubstr("--metrics-port"), HasSubstr("requires --metrics")));
}

TEST_F(ServeFlagsTest, BeyondLoopbackNeedsKeysOrALeave) {
  const std::string config = "model = " + Quoted("m.gguf") + "\nhttp = \"0.0.0.0:8080\"\n";
  ASSERT_EQ(Parse(config), "");
  EXPECT_THAT(std::string(ResolveServeFlags(*flags_).status().message()),
              AllOf(HasSubstr("--http 0.0.0.0:8080"), HasSubstr("--http-api-keys"),
                    HasSubstr("--http-open")));
  ASSERT_EQ(Parse(config, {"--http-open"}), "");
  EXPECT_THAT(ResolveServeFlags(*flags_)->gateway_arguments, ElementsAre("--http-open"));
  ASSERT_EQ(Parse(config, {"--http-api-keys", File("keys")}), "");
  EXPECT_TRUE(ResolveServeFlags(*flags_).ok());
  ASSERT_EQ(Parse(config, {"--http", "[::1]:8080", "--http-tls-cert", File("pem")}), "");
  EXPECT_THAT(std::string(ResolveServeFlags(*flags_).status().message()),
              HasSubstr("--http-tls-key"));
}

TEST_F(ServeFlagsTest, HostsOfPicturesReachTheGateway) {
  const std::string config = "model = " + Quoted("m.gguf") + "\n";
  ASSERT_EQ(Parse(config + "fetch-images = [\"a.example\", \"*.b.example:8443\"]\n"), "");
  EXPECT_THAT(ResolveServeFlags(*flags_)->gateway_arguments,
              ElementsAre("--fetch-images", "a.example", "--fetch-images", "*.b.example:8443"));
  ASSERT_EQ(Parse(config, {"--fetch-images", "a.example,127.0.0.1:9000"}), "");
  EXPECT_THAT(ResolveServeFlags(*flags_)->gateway_arguments,
              ElementsAre("--fetch-images", "a.example", "--fetch-images", "127.0.0.1:9000"));
  EXPECT_THAT(Parse(config + "fetch-images = \"http://a.example\"\n"),
              HasSubstr("no host to fetch pictures from"));
}

// What waits for a worker waits for as long as what restarts it may take.
TEST_F(ServeFlagsTest, AGatewayWaitsLongerForAWorkerThanItsCircuitIsOpen) {
  const gateway::GatewayFlags gateway;
  EXPECT_GE(absl::Seconds(gateway.worker_wait_seconds),
            SupervisorOptions().open_delay + kServiceStartTime);
  EXPECT_EQ(gateway::ExecutorOptions().worker_wait, absl::Seconds(gateway.worker_wait_seconds));
}

TEST_F(ServeFlagsTest, AFlagThatDoesNothingWithoutAnotherIsRefused) {
  const std::string model = absl::StrFormat("model = %s\n", Quoted("m.gguf"));
  EXPECT_THAT(Parse(model + "metrics-port = 9000\n"), HasSubstr("--metrics"));
  EXPECT_EQ(Parse(model + "metrics-port = 9000\nmetrics = true\n"), "");
  for (const std::string& flag :
       {"http-api-keys = " + Quoted("keys"), std::string("http-open = true"),
        std::string("http-cors = \"https://a.example\""), std::string("http-name = \"a\""),
        std::string("http-pull = \"default\""), std::string("fetch-images = \"a.example\"")}) {
    ASSERT_EQ(Parse(model + "http = \"off\"\n" + flag + "\n"), "");
    const absl::Status status = ResolveServeFlags(*flags_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << flag;
    EXPECT_THAT(std::string(status.message()), HasSubstr("does nothing with --http off"));
  }
}

}  // namespace
}  // namespace tandem
