// Flags of the programs that load models onto a Vulkan device.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/time/time.h"
#include "services/gpu_worker/stages/gpu_worker.h"

namespace tandem::gpu {

// --gpu.
inline void AddGpuFlag(CLI::App& app, GpuWorkerOptions& options) {
  app.add_option_function<std::string>(
         "--gpu",
         [&options](const std::string& text) {
           const auto policy = ParseGpuPolicy(text);
           if (!policy.ok()) throw CLI::ValidationError(std::string(policy.status().message()));
           options.gpu = *policy;
         },
         "require (a GPU), prefer (else a software driver) or software (a driver that computes on "
         "the processor)")
      ->type_name("TEXT:{require,prefer,software}")
      ->default_str("prefer");
}

// --poll-us.
inline void AddPollFlag(CLI::App& app, GpuWorkerOptions& options) {
  app.add_option_function<uint32_t>(
         "--poll-us", [&options](uint32_t us) { options.poll = absl::Microseconds(us); },
         "Ask the device for so long whether it is done before sleeping until it says so: saves "
         "waking a thread, keeps a processor busy")
      ->check(CLI::Range(0, 1'000'000))
      ->default_str("0");
}

// --longest-submission-ms.
inline void AddSubmissionFlag(CLI::App& app, GpuWorkerOptions& options) {
  app.add_option_function<uint32_t>(
         "--longest-submission-ms",
         [&options](uint32_t ms) { options.longest_submission = absl::Milliseconds(ms); },
         "Cut a step that may take longer into several submissions, so that a desktop on the same "
         "GPU goes on and the driver does not time out; 0: never; a software device is cut only "
         "where this is given")
      ->check(CLI::Range(0, 60'000))
      ->default_str(std::to_string(absl::ToInt64Milliseconds(kLongestSubmission)));
}

// --tune and --tune-seconds.
inline void AddTuneFlags(CLI::App& app, GpuWorkerOptions& options) {
  app.add_option_function<std::string>(
         "--tune",
         [&options](const std::string& text) {
           const auto mode = ParseTuneMode(text);
           if (!mode.ok()) throw CLI::ValidationError(std::string(mode.status().message()));
           options.tune = *mode;
         },
         "off, first-start (read the model's table, measure a moment where none is) or now")
      ->default_str("first-start");
  app.add_option("--tune-seconds", options.tune_seconds, "Device time that --tune=now takes")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
}

}  // namespace tandem::gpu
