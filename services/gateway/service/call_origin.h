// By which API a gRPC call was asked for, and the trace it belongs to.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "services/gateway/engine/request_run.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/trace/trace_context.h"

namespace tandem::gateway {

// Metadata that the HTTP edge's own calls carry.  A client that sends it is counted among REST's;
// nothing else depends on it.
inline constexpr char kApiMetadata[] = "tandem-api";
inline constexpr char kRestApi[] = "rest";

inline Api OriginOf(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kApiMetadata);
  return found != context.client_metadata().end() && found->second == kRestApi ? Api::kRest
                                                                               : Api::kGrpc;
}

// What calls made for an HTTP request say of its client (AddTenant).  Other callers' are not believed.
inline constexpr char kEdgeMetadata[] = "tandem-edge";  // a secret of this process
inline constexpr char kTenantMetadata[] = "tandem-tenant";
inline constexpr char kWeightMetadata[] = "tandem-weight";
inline constexpr char kOwnTracesMetadata[] = "tandem-own-traces";  // if it is there

// Empty where there is none.
std::string MetadataOf(const grpc::CallbackServerContext& context, const char* key);

// Has a call made for an HTTP request use the share of that request's client.
void AddTenant(const HttpClient& client, grpc::ClientContext& context);

// Whose share of the device a call uses, and its weight: the HTTP request's client, if the call is made
// for one in this process; else whoever is at the other end (GrpcPeerTenant).
TenantRef TenantOf(const grpc::CallbackServerContext& context);

// Whose traces a caller may see; nullopt: all.  Metadata can only narrow it.
std::optional<std::string> TraceScopeOf(const grpc::CallbackServerContext& context);

inline constexpr char kTraceParent[] = "traceparent";
inline constexpr char kRequestId[] = "x-request-id";  // in the answer
inline constexpr char kTraceState[] = "tracestate";
// The span that the HTTP edge has named to its client already; goes with kTraceParent.  A client
// that sends it names its request's span itself.
inline constexpr char kSpanMetadata[] = "tandem-span";

// Has a call made for an HTTP request go on with that request's span.
inline void AddTrace(const RequestTrace& trace, grpc::ClientContext& context) {
  TraceContext parent = trace.own;
  if (trace.parent_span_id != 0) parent.span_id = trace.parent_span_id;
  context.AddMetadata(kTraceParent, FormatTraceParent(parent));
  context.AddMetadata(kSpanMetadata, FormatTraceParent(trace.own));
  if (!trace.state.empty()) context.AddMetadata(kTraceState, trace.state);
}

// The trace of a call, by what its metadata say.
inline RequestTrace TraceOf(const grpc::CallbackServerContext& context,
                            const TraceSampler& sampler) {
  const auto all = [&context](const char* key) {
    std::string value;
    const auto [begin, end] = context.client_metadata().equal_range(key);
    for (auto field = begin; field != end; ++field) {
      if (!value.empty()) value.push_back(',');
      value.append(field->second.data(), field->second.size());
    }
    return value;
  };
  RequestTrace trace = sampler.Begin(all(kTraceParent), all(kTraceState));
  const auto named = ParseTraceParent(all(kSpanMetadata));
  if (!named.has_value() || named->trace_id != trace.own.trace_id) return trace;
  trace.own.span_id = named->span_id;
  if (trace.parent_span_id == named->span_id) trace.parent_span_id = 0;  // the edge began it
  return trace;
}

}  // namespace tandem::gateway
