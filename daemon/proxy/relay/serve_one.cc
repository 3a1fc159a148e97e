// The part of Connection that leads one request to its answer.

#include "daemon/proxy/record/recent_page.h"
#include "daemon/proxy/relay/connection.h"
#include "daemon/proxy/relay/exchange.h"
#include "daemon/proxy/request/cors.h"

namespace fineserve::proxy {
namespace {

// Limit on the body of a request that the proxy answers by itself, which has no
// use for a body.
constexpr uint64_t kLocalBodyBytes = 64 << 10;

}  // namespace

// Returns false if the connection must be closed.
asio::awaitable<bool> Connection::ServeOne() {
  Recording recording(&service_->recorder, service_->clock);
  recording_ = &recording;
  patience_ns_ = service_->limits.stall_ns();
  cors_.clear();
  RequestParser request(service_->limits.header_bytes,
                        service_->limits.body_bytes, &service_->bodies);
  if (!co_await Receive(&request, /*whole=*/false)) co_return false;
  const std::string id =
      service_->request_ids.For(request.Field("x-request-id"));
  const Route route = RouteOf(request);
  if (port_ == Port::kPublic) {
    cors_ = CorsFields(request, service_->routes->fleet()->proxy.origins);
  }
  if (Records(route)) BeginRecord(&request, id);
  const absl::optional<ApiError> refusal = RefusalOf(request, route);
  if (refusal) {
    co_await RefuseRequest(request, *refusal, id);
    co_return request.done() && Stays(request);
  }
  const bool is_ours = !GoesToEngine(route) || request.method() == "OPTIONS";
  if (is_ours) request.LimitBody(kLocalBodyBytes);
  if (!request.done() && !co_await ReceiveBody(&request)) co_return false;
  if (route == Route::kFrames && request.method() == "GET") {
    co_await ServeFrames(id);
    co_return false;
  }
  if (route == Route::kRequests && request.method() == "GET" &&
      service_->recorder.keeps() && IsFollowed(request.target())) {
    co_return co_await FollowRequests(request, id);
  }
  if (route == Route::kLog && request.method() == "GET") {
    co_return co_await ShowLog(request, id);
  }
  if (is_ours) {
    co_return co_await AnswerLocally(&request, route, id);
  }
  received_.Release();  // while the engine works
  Exchange exchange(this, service_, &request, route, id, recording.life());
  if (route == Route::kResponse) co_return co_await exchange.RunLookup();
  co_return co_await exchange.Run();
}

}  // namespace fineserve::proxy
