#include "tools/tandem/bench/picture_measure.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/base/status_macros.h"
#include "tools/tandem/bench/bench_picture.h"

namespace tandem {
namespace {

constexpr char kFirstQuestion[] = "What is in the picture?";
constexpr char kOtherQuestion[] = "Which colours does it have?";
// Positions of a picture's markers and the lines around them, and of the text and the turn.
constexpr uint64_t kMarkers = 6, kText = 40;

// One request and what came of it.
struct Asked {
  v1::ChatRequest request;
  absl::Time first_token = absl::InfinitePast();
  uint32_t cached_tokens = 0;
  absl::Status status;
};

void Ask(GenerationStub& stub, Asked& asked) {
  grpc::ClientContext context;
  const auto reader = stub.Chat(&context, asked.request);
  v1::ChatResponse response;
  while (reader->Read(&response)) {
    if (response.tokens_size() > 0 && asked.first_token == absl::InfinitePast()) {
      asked.first_token = absl::Now();
    }
    if (response.has_usage()) asked.cached_tokens = response.usage().cached_tokens();
  }
  asked.status = FromGateway(reader->Finish());
  if (asked.status.ok() && asked.first_token == absl::InfinitePast()) {
    asked.status = absl::InternalError("a stream ended without a token");
  }
}

// All requests at once.
struct Round {
  absl::Duration to_first_tokens;  // of the slowest
  uint64_t cached_tokens = 0;      // of all prompts
  v1::PictureStatus before, after;
};

absl::StatusOr<v1::PictureStatus> Pictures(GenerationStub& stub) {
  TANDEM_ASSIGN_OR_RETURN(const auto status, FetchStatus(stub));
  if (status.has_pictures()) return status.pictures();
  return absl::UnimplementedError(
      "--images: the gateway does not report times of pictures; it is older than this program");
}

absl::StatusOr<Round> AskAll(GenerationStub& stub, std::vector<v1::ChatRequest> requests) {
  Round round;
  TANDEM_ASSIGN_OR_RETURN(round.before, Pictures(stub));
  std::vector<Asked> all(requests.size());
  for (size_t i = 0; i < all.size(); ++i) all[i].request = std::move(requests[i]);
  const absl::Time begin = absl::Now();
  std::vector<std::thread> threads;
  for (Asked& asked : all) threads.emplace_back([&stub, &asked] { Ask(stub, asked); });
  for (std::thread& thread : threads) thread.join();
  absl::Time last = begin;
  for (const Asked& asked : all) {
    TANDEM_RETURN_IF_ERROR(asked.status);
    last = std::max(last, asked.first_token);
    round.cached_tokens += asked.cached_tokens;
  }
  round.to_first_tokens = last - begin;
  TANDEM_ASSIGN_OR_RETURN(round.after, Pictures(stub));
  return round;
}

std::vector<v1::ChatRequest> Requests(const BenchPictureTest& test, const BenchOptions& options,
                                      const std::string& salt, uint64_t& seed) {
  std::vector<v1::ChatRequest> requests(test.batch);
  for (v1::ChatRequest& request : requests) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role("user");
    message->set_content(kFirstQuestion);
    for (uint32_t i = 0; i < test.images; ++i) {
      message->add_images()->set_data(MakeBenchPicture(options.image_side, seed++));
    }
    request.mutable_sampling()->set_temperature(0);
    request.mutable_limits()->set_max_tokens(1);
    request.mutable_limits()->set_ignore_eos(true);
    request.mutable_limits()->set_cache_salt(salt);
  }
  return requests;
}

void Add(const Round& round, BenchPictureTimes& times) {
  times.first_token_seconds.push_back(absl::ToDoubleSeconds(round.to_first_tokens));
  times.encoded += round.after.encoded() - round.before.encoded();
  times.cached += round.after.cached() - round.before.cached();
  times.cached_tokens += round.cached_tokens;
  times.decode_seconds += round.after.decode_seconds() - round.before.decode_seconds();
  times.prepare_seconds += round.after.prepare_seconds() - round.before.prepare_seconds();
  times.encode_seconds += round.after.encode_seconds() - round.before.encode_seconds();
}

}  // namespace

std::vector<BenchPictureTest> PlanPictureTests(const BenchOptions& options) {
  std::vector<BenchPictureTest> tests;
  for (const uint32_t batch : options.batches) {
    for (const uint32_t images : options.images) {
      if (images > 0) tests.push_back({.images = images, .batch = batch});
    }
  }
  return tests;
}

absl::Status CheckPictureTests(const std::vector<BenchPictureTest>& tests,
                               const v1::ModelInfo& model, uint32_t max_sequences) {
  for (const BenchPictureTest& test : tests) {
    if (model.image_tokens() == 0) {
      return absl::FailedPreconditionError(absl::StrFormat("%s: the gateway takes no pictures: %s",
                                                           test.Name(), model.no_images_reason()));
    }
    const uint64_t length = test.images * (model.image_tokens() + kMarkers) + kText;
    if (length > model.context_len()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: a prompt needs about %d positions, the cluster's context is %d (tandem serve "
          "--context or --kv-tokens, or fewer --images)",
          test.Name(), length, model.context_len()));
    }
    if (test.batch > max_sequences) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: %d sequences, the cluster runs at most %d at a time (tandem serve "
                          "--max-sequences)",
                          test.Name(), test.batch, max_sequences));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BenchPictureResult> MeasurePictures(
    GenerationStub& stub, const BenchPictureTest& test, const BenchOptions& options,
    const std::function<void(const std::string&)>& progress) {
  // The salt of this run: pictures are the same in each, and must not be in the cache.
  const std::string salt = absl::StrFormat("bench-%x", std::random_device{}());
  BenchPictureResult result{.test = test};
  uint64_t seed = options.seed << 32;
  if (options.warm_up) {
    TANDEM_RETURN_IF_ERROR(
        AskAll(stub, Requests({.images = 1, .batch = 1}, options, salt, seed)).status());
  }
  for (uint32_t i = 0; i < options.repetitions; ++i) {
    if (progress) {
      progress(absl::StrFormat("measuring %s, %d of %d", test.Name(), i + 1, options.repetitions));
    }
    std::vector<v1::ChatRequest> requests = Requests(test, options, salt, seed);
    TANDEM_ASSIGN_OR_RETURN(const Round first, AskAll(stub, requests));
    Add(first, result.first);
    result.rates.push_back(double{1} * test.images * test.batch /
                           absl::ToDoubleSeconds(first.to_first_tokens));
    for (v1::ChatRequest& request : requests) {
      request.mutable_messages(0)->set_content(kOtherQuestion);
    }
    TANDEM_ASSIGN_OR_RETURN(const Round again, AskAll(stub, std::move(requests)));
    Add(again, result.again);
  }
  return result;
}

}  // namespace tandem
