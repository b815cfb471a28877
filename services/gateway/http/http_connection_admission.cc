// From a request's header to its handler: the parts of HttpConnection that admit a request, refuse it
// or hand it on.
#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/cancellation.h"
#include "services/common/base/client_text.h"
#include "services/common/base/random_bits.h"
#include "services/gateway/http/http_admission.h"
#include "services/gateway/http/http_connection.h"

namespace tandem::gateway {
namespace {

namespace asio = boost::asio;

// The client's own id if it is a plain token, else one at random.
std::string RequestId(const HttpRequest& head) {
  const std::string_view given = head.Header("x-request-id").value_or("");
  const bool plain =
      !given.empty() && given.size() <= 64 && std::all_of(given.begin(), given.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
               c == '.';
      });
  if (plain) return std::string(given);
  return absl::StrFormat("%016x", RandomBits());
}

// All fields of one name as one, as HTTP has it; of those that may come once alone this is invalid.
std::string AllOf(const HttpRequest& head, std::string_view name) {
  std::string all;
  for (const auto& [field, value] : head.headers) {
    if (!absl::EqualsIgnoreCase(absl::string_view(field.data(), field.size()),
                                absl::string_view(name.data(), name.size()))) {
      continue;
    }
    if (!all.empty()) all.push_back(',');
    all.append(value);
  }
  return all;
}

}  // namespace

bool HttpConnection::Admit() {
  const HttpRequest& head = reader_.head();
  const HttpServerOptions& options = core_->options;
  cors_.clear();
  if (core_->check_names) {
    if (const auto failure = RefuseHost(head, options.names)) {
      Refuse(*failure);
      return false;
    }
  }
  auto origin = AdmitOrigin(head, options.cors_origins);
  if (const auto* failure = std::get_if<HttpFailure>(&origin)) {
    Refuse(*failure);
    return false;
  }
  cors_ = std::get<HttpHeaders>(std::move(origin));
  if (!FindRoute(head)) return false;
  auto sender = AdmitSender(head, *route_, peer_, options.keys.get(), absl::Now());
  if (const auto* failure = std::get_if<HttpFailure>(&sender)) {
    Refuse(*failure);
    return false;
  }
  auto& lease = std::get<std::optional<KeyLease>>(sender);
  if (lease.has_value()) lease_.emplace(*std::move(lease));
  if (!AdmitGet(head)) return false;
  admitted_ = true;
  return true;
}

bool HttpConnection::FindRoute(const HttpRequest& head) {
  HttpRouter::Match match = core_->router.Find(head.method, head.path);
  route_ = match.route;
  route_variables_.variables = std::move(match.variables);
  if (route_ != nullptr) return true;
  if (match.allow.empty()) {
    Refuse({404,
            absl::NotFoundError(absl::StrFormat("'%s %s': no such path", ClientText(head.method),
                                                ClientText(head.path, 200))),
            std::nullopt});
  } else if (head.method == "OPTIONS") {
    HttpResponse response{.status = 204, .content_type = "", .body = "", .headers = {}};
    response.headers.emplace_back("Allow", match.allow);
    if (!cors_.empty()) {
      response.headers.emplace_back("Access-Control-Allow-Methods", match.allow);
      const auto wanted = head.Header("access-control-request-headers");
      if (wanted.has_value()) {
        response.headers.emplace_back("Access-Control-Allow-Headers", std::string(*wanted));
      }
      response.headers.emplace_back("Access-Control-Max-Age", "600");
    }
    const bool whole = reader_.state() == HttpRequestReader::State::kDone;
    const HttpRequest request = whole ? reader_.Take() : head;
    BeginAnswer(request, !whole);
    answer_->Send(std::move(response));
  } else {
    Refuse({405, absl::UnimplementedError(absl::StrFormat("this path has %s", match.allow)),
            std::nullopt},
           {{"Allow", match.allow}});
  }
  return false;
}

bool HttpConnection::AdmitGet(const HttpRequest& head) {
  is_get_ = IsGet(head) && !route_->open;
  if (!is_get_) return true;
  const auto wait = core_->gets.Take(Client()->tenant(), absl::Now());
  if (!wait.has_value()) return true;
  is_get_ = false;
  const int64_t seconds =
      std::max<int64_t>(absl::ToInt64Seconds(absl::Ceil(*wait, absl::Seconds(1))), 1);
  Refuse({429,
          absl::ResourceExhaustedError(absl::StrFormat(
              "more GETs than %d a second, or large answers to them; retry in %d s (--http-gets)",
              core_->options.gets_per_second, seconds)),
          seconds});
  return false;
}

bool HttpConnection::AccountBody() {
  if (reader_.body_bytes() == 0) return true;
  const absl::Time now = absl::Now();
  if (body_ == nullptr) {
    const std::weak_ptr<HttpConnection> weak = weak_from_this();
    const auto give_way = [weak] {
      const auto self = weak.lock();
      if (self != nullptr) asio::post(self->socket_.get_executor(), [self] { self->GiveWay(); });
    };
    body_ = core_->bodies.Begin(Sender(), give_way, now);
  }
  if (body_->Grow(reader_.body_bytes(), now)) return true;
  Refuse(FailureOf(absl::UnavailableError("too many large requests at once")));
  return false;
}

// Another request has been given this one's memory.
void HttpConnection::GiveWay() {
  if (phase_ != Phase::kBody || body_ == nullptr || !body_->given_way()) return;
  Refuse({408,
          absl::DeadlineExceededError(
              "the body stopped arriving while other requests needed the room"),
          std::nullopt});
}

std::string HttpConnection::Sender() const {
  return lease_.has_value() ? "key " + lease_->client()->name() : peer_;
}

std::shared_ptr<HttpClient> HttpConnection::Client() const {
  return lease_.has_value() ? lease_->client() : anonymous_;
}

void HttpConnection::Refuse(const HttpFailure& failure, HttpHeaders headers) {
  const bool whole = reader_.state() == HttpRequestReader::State::kDone;
  const HttpRequest request = whole ? reader_.Take() : reader_.head();
  if (!whole) reader_.Discard();
  body_ = nullptr;
  for (auto& field : headers) cors_.push_back(std::move(field));
  BeginAnswer(request, /*close=*/!whole);
  answer_->SendFailure(failure);
}

void HttpConnection::Dispatch() {
  const HttpRoute& route = *route_;
  HttpRequest request = reader_.Take();
  request.variables = std::move(route_variables_.variables);
  request.client = Client();
  BeginAnswer(request, !reader_.keep_alive());
  request.id = answer_->context().id;
  request.trace = answer_->context().trace;
  auto responder = std::make_shared<HttpAnswerHandle>(answer_);
  if (request.body.empty() && !route.pooled) {
    route.handler(std::move(request), std::move(responder));
    return;
  }
  if (body_ != nullptr) body_->Complete();
  // The body is freed when the handler returns, and its memory is there for others.
  struct Work {
    std::shared_ptr<HttpConnection> self;  // the core outlives the share
    std::unique_ptr<BodyBudget::Share> body;
    HttpRequest request;
    std::shared_ptr<HttpResponder> responder;
  };
  const size_t body_bytes = request.body.size();
  auto work = std::make_shared<Work>(
      Work{shared_from_this(), std::move(body_), std::move(request), std::move(responder)});
  core_->pool->Post(Sender(), body_bytes, [&route, work = std::move(work)] {
    if (work->responder->gone()) return;
    const std::shared_ptr<HttpResponder> watched = work->responder;
    const CancellationScope scope([&watched] { return watched->gone(); });
    route.handler(std::move(work->request), std::move(work->responder));
  });
}

void HttpConnection::BeginAnswer(const HttpRequest& head, bool close) {
  EnterPhase(Phase::kAnswering, absl::InfiniteDuration());
  began_ = Clock::now();
  sent_bytes_ = 0;
  HttpAnswerContext context{
      .method = head.method,
      .path = head.path,
      .id = RequestId(head),
      .trace = core_->options.sampler.Begin(AllOf(head, "traceparent"), AllOf(head, "tracestate")),
      .headers = std::move(cors_),
      .http10 = reader_.http10(),
      .close = close || core_->draining,
      .max_unsent_bytes = core_->options.max_unsent_bytes,
      .sender = Sender()};
  cors_ = {};
  core_->BeginRequest();
  answer_ = std::make_shared<HttpAnswer>(weak_from_this(), std::move(context));
}

}  // namespace tandem::gateway
