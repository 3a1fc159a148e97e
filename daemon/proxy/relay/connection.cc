#include "daemon/proxy/relay/connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/proxy/page/page.h"
#include "daemon/proxy/record/recent_page.h"
#include "daemon/proxy/relay/note.h"
#include "daemon/proxy/request/cors.h"

namespace fineserve::proxy {
namespace {

// Most requests fit; a larger one takes several reads.
constexpr size_t kReadBytes = 4096;
constexpr size_t kBodyReadBytes = 64 << 10;
constexpr uint64_t kSecondNs = 1'000'000'000;

ApiError TooManyConnections() {
  ApiError error =
      ServerError(503, "too_many_connections",
                  "this proxy has reached its limit of connections; try again");
  error.retry_after_ms = 1000;
  return error;
}

ApiError Loops() {
  return ServerError(508, "loop",
                     "the request has passed this proxy before: an engine of "
                     "its fleet leads back to it");
}

// Returns the body of the answer about readiness. A proxy may be ready although
// no daemon decides. Requests are then not scheduled, so the body names the
// GPUs without a deciding daemon.
std::string ReadyBody(bool ready, const std::map<std::string, bool>& daemons) {
  std::vector<std::string> away;
  for (const auto& [gpu, decides] : daemons) {
    if (!decides) away.push_back(JsonQuote(gpu.empty() ? "any" : gpu));
  }
  return absl::StrCat("{\"ready\":", ready ? "true" : "false",
                      ",\"scheduled\":", away.empty() ? "true" : "false",
                      ",\"gpus_without_daemon\":[", absl::StrJoin(away, ","),
                      "]}");
}

ApiError LongLine() {
  return ClientError(431, "header_too_large",
                     "a line between the chunks of the request's body, or the "
                     "fields behind them, are too long");
}

ApiError Encoded() {
  return ClientError(415, "encoded_body",
                     "engines take no encoded bodies; send the body as it is, "
                     "without Content-Encoding");
}

ApiError StrangeName(absl::string_view host) {
  return ClientError(
      403, "strange_host",
      absl::StrCat("the admin port does not answer to ",
                   absl::CHexEscape(host.substr(0, 100)),
                   "; ask by address, or list the name in admin_names of the "
                   "fleet's [proxy]"));
}

ApiError NoOperator() {
  return ClientError(401, "no_operator",
                     "the admin port wants the key of an operator from other "
                     "machines, as a bearer or as the password");
}

bool IsEncoded(const RequestParser& request) {
  const absl::string_view coding = request.Field("content-encoding");
  return !coding.empty() && !absl::EqualsIgnoreCase(coding, "identity");
}

}  // namespace

Connection::Connection(tcp::socket socket, Port port, Service* service,
                       std::string client)
    : socket_(std::move(socket)),
      port_(port),
      service_(service),
      address_(std::move(client)) {
  service_->connections.insert(this);
  service_->metrics.SetConnections(service_->connections.size());
}

Connection::~Connection() {
  service_->connections.erase(this);
  service_->metrics.SetConnections(service_->connections.size());
}

asio::awaitable<void> Connection::Serve() {
  const auto self = shared_from_this();
  while (co_await ServeOne()) {
  }
  Close();
}

void Connection::Refuse() {
  const std::string text = LocalAnswerText(ErrorAnswer(TooManyConnections()),
                                           false, "", /*keep_alive=*/false);
  Buffers buffers = {asio::buffer(text)};
  WriteNow(&socket_, &buffers);
  Close();
}

// Reads the header, or the `whole` request. Returns false if the connection
// ended, or if the request is malformed; the client then has its error.
asio::awaitable<bool> Connection::Receive(RequestParser* request, bool whole) {
  const auto there = [&] {
    return whole ? request->done() : request->header_done();
  };
  idle_ = received_.empty() && !request->header_done();
  const uint64_t body_ends_ns =
      service_->clock->NowNs() + service_->limits.body_s * kSecondNs;
  Guard(idle_ ? service_->limits.idle_s : service_->limits.receive_s);
  for (;;) {
    received_.Consume(request->Feed(received_.bytes()));
    if (request->error()) {
      co_await RefuseRequest(*request, *request->error(), "");
      co_return false;
    }
    if (there()) break;
    // Bytes left over from a body can only be a line between chunks, or the
    // fields after them.
    if (received_.bytes().size() > service_->limits.header_bytes) {
      co_await RefuseRequest(*request, LongLine(), "");
      co_return false;
    }
    const size_t most = whole ? kBodyReadBytes : kReadBytes;
    if (co_await ReadSome(&socket_, &received_, most)) co_return false;
    // A header has a single deadline; each piece of a body has a separate one,
    // within the body's.
    if (idle_ || whole) Guard(service_->limits.receive_s);
    if (whole) deadline_ns_ = std::min(deadline_ns_, body_ends_ns);
    idle_ = false;
  }
  Unguard();
  co_return true;
}

asio::awaitable<bool> Connection::ReceiveBody(RequestParser* request) {
  if (!request->Field("expect").empty()) {
    static constexpr absl::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    Buffers buffers = {asio::buffer(kGoOn.data(), kGoOn.size())};
    if (!co_await Write(&buffers)) co_return false;
  }
  co_return co_await Receive(request, /*whole=*/true);
}

Route Connection::RouteOf(const RequestParser& request) const {
  return proxy::RouteOf(port_, request.target(),
                        service_->routes->fleet()->proxy.other_paths);
}

absl::optional<ApiError> Connection::RefusalOf(const RequestParser& request,
                                               Route route) const {
  const absl::string_view expect = request.Field("expect");
  if (!expect.empty() && !absl::EqualsIgnoreCase(expect, "100-continue")) {
    return ClientError(417, "bad_expectation",
                       "only Expect: 100-continue is supported");
  }
  const bool is_preflight = !cors_.empty() && IsPreflight(request);
  if (is_preflight) return absl::nullopt;
  if (GoesToEngine(route) && HasPassed(request, service_->via)) return Loops();
  const bool needs_key =
      route == Route::kModels || route == Route::kUsage || GoesToEngine(route);
  const Routes& routes = *service_->routes;
  if (needs_key) {
    auto refusal = RefuseByKey(routes.ClientOf(request).get(), absl::Now());
    if (refusal) return refusal;
  }
  if (GoesToEngine(route) && IsEncoded(request)) return Encoded();
  const absl::string_view host = request.Field("host");
  if (IsAdmins(route) && !MayNameAdmin(host, routes.fleet()->proxy)) {
    return StrangeName(host);
  }
  if (IsAdmins(route) &&
      !routes.keys().MayOperate(IsLocal(), request.Field("authorization"),
                                absl::Now())) {
    return NoOperator();
  }
  return RefuseByHead(route, request.method(), request.target());
}

bool Connection::IsLocal() const {
  error_code e;
  const tcp::endpoint peer = socket_.remote_endpoint(e);
  return !e && peer.address().is_loopback();
}

// Sends the error. If the request is not whole, the connection cannot be used
// again: the rest of the request is read and thrown away, so that the client
// reads the answer before a reset.
asio::awaitable<void> Connection::RefuseRequest(const RequestParser& request,
                                                const ApiError& error,
                                                const std::string& request_id) {
  service_->metrics.CountRequest("", error.status);
  // After bytes that are not a request, the start of the next one is unknown.
  const bool is_whole = request.done() && !request.error();
  const bool stays = is_whole && Stays(request);
  const bool to_head = request.header_done() && request.method() == "HEAD";
  const std::string id =
      request_id.empty() ? service_->request_ids.For("") : request_id;
  if (!recording_->begun() && port_ == Port::kPublic) BeginRecord(nullptr, id);
  NoteRefusal(error, recording_->life());
  const bool anthropic = request.header_done() && IsAnthropic(request.target());
  LocalAnswer answer = ErrorAnswer(error, anthropic);
  if (error.status == 401 && port_ == Port::kAdmin) {
    answer.fields += "www-authenticate: Basic realm=\"FineServe\"\r\n";
  }
  if (error.status == 405) {
    absl::StrAppend(&answer.fields, "allow: ", MethodsOf(RouteOf(request)),
                    "\r\n");
  }
  const std::string text = TextOf(std::move(answer), to_head, id, stays);
  Buffers buffers = {asio::buffer(text)};
  const bool sent = co_await Write(&buffers);
  if (sent && !is_whole) co_await Linger();
}

asio::awaitable<void> Connection::Linger() {
  error_code e;
  socket_.shutdown(tcp::socket::shutdown_send, e);
  Guard(service_->limits.linger_s);
  while (!e) {
    received_.Consume(received_.bytes().size());
    e = co_await ReadSome(&socket_, &received_, kBodyReadBytes);
  }
  Unguard();
}

asio::awaitable<bool> Connection::AnswerLocally(RequestParser* request,
                                                Route route,
                                                const std::string& request_id) {
  LocalAnswer answer;
  answer.body = "{}";
  if (request->method() == "OPTIONS") {
    answer.status = 204;
    const absl::string_view methods = MethodsOf(route);
    absl::StrAppend(&answer.fields, "allow: ",
                    methods.empty() ? "GET, HEAD, POST, OPTIONS" : methods,
                    "\r\n");
  } else if (route == Route::kReady) {
    const bool ready = !service_->draining && service_->admission->Ready();
    answer.status = ready ? 200 : 503;
    answer.body = ReadyBody(ready, service_->admission->Daemons());
  } else if (route == Route::kVersion) {
    answer.body = "{\"version\":\"" FINESERVE_VERSION "\"}";
  } else if (route == Route::kMetrics) {
    answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
    service_->metrics.SetDaemons(service_->admission->Daemons());
    service_->accounts.ForEach(absl::Now(), [this](const Client& client,
                                                   uint64_t spent) {
      service_->metrics.SetBudget(client.name, client.tokens_per_day, spent);
    });
    const AccessLog* log = service_->recorder.log();
    const OtlpExporter* spans = service_->exporter;
    service_->metrics.SetFollowed(
        log != nullptr ? log->counts() : AccessLog::Counts(),
        spans != nullptr ? spans->counts() : OtlpExporter::Counts());
    answer.body = service_->metrics.Render();
  } else if (route == Route::kPage) {
    answer = PageAnswer();
  } else if (route == Route::kFrames) {
    answer.content_type = kFramesType;
  } else if (route == Route::kLog) {
    answer.content_type = kLogType;
  } else if (route == Route::kModels || route == Route::kUsage) {
    // `known` is null if a reload has removed its key.
    const auto known = service_->routes->ClientOf(*request);
    const Client client = known ? *known : Client();
    if (route == Route::kModels) {
      answer = service_->routes->Models(request->target(), client);
    } else {
      answer.body = service_->accounts.Usage(client, absl::Now());
    }
  } else if (route == Route::kUsages) {
    answer.body = service_->accounts.Usages(absl::Now());
  } else if (route == Route::kRequests) {
    answer = RequestsPage(service_->recorder, request->target(),
                          service_->clock->NowNs());
  }
  Life* const life = recording_->life();
  life->status = answer.status;
  life->ending = Ending::kAnswered;
  life->bytes_out = answer.body.size();
  co_return co_await Answer(*request, answer, request_id);
}

bool Connection::Stays(const RequestParser& request) const {
  return request.keep_alive() && !service_->draining;
}

asio::awaitable<bool> Connection::Answer(const RequestParser& request,
                                         const LocalAnswer& answer,
                                         const std::string& request_id) {
  const bool stays = Stays(request);
  const std::string text =
      TextOf(answer, request.method() == "HEAD", request_id, stays);
  Buffers buffers = {asio::buffer(text)};
  co_return co_await Write(&buffers) && stays;
}

std::string Connection::TextOf(LocalAnswer answer, bool to_head,
                               const std::string& request_id,
                               bool stays) const {
  answer.fields += cors_;
  return LocalAnswerText(answer, to_head, request_id, stays);
}

asio::awaitable<bool> Connection::Write(Buffers* buffers) {
  const size_t all = asio::buffer_size(*buffers);
  error_code e = WriteNow(&socket_, buffers);
  Takes(all - asio::buffer_size(*buffers), 0);
  if (!e && !buffers->empty()) {
    uint64_t since_ns = service_->clock->NowNs();
    guarded_ = &socket_;
    deadline_ns_ = since_ns + patience_ns_;
    e = co_await WriteRest(&socket_, buffers, [&](size_t bytes) {
      const uint64_t now_ns = service_->clock->NowNs();
      Takes(bytes, now_ns - since_ns);
      since_ns = now_ns;
      deadline_ns_ = now_ns + patience_ns_;
    });
    Unguard();
  }
  co_return !e;
}

void Connection::Takes(size_t bytes, uint64_t waited_ns) {
  const Limits& limits = service_->limits;
  patience_ns_ -= std::min(patience_ns_, waited_ns);
  patience_ns_ = std::min(limits.stall_ns(),
                          patience_ns_ + bytes * kSecondNs / limits.least_rate);
}

void Connection::Guard(tcp::socket* socket, uint32_t seconds) {
  guarded_ = socket;
  deadline_ns_ = service_->clock->NowNs() + seconds * kSecondNs;
}

void Connection::CheckDeadline(uint64_t now_ns) {
  if (check_) check_(now_ns);
  if (guarded_ == nullptr || now_ns < deadline_ns_) return;
  error_code ignored;
  std::exchange(guarded_, nullptr)->close(ignored);
}

void Connection::CloseIfIdle() {
  if (idle_) Close();
}

void Connection::Close() {
  error_code ignored;
  socket_.close(ignored);
}

void Connection::Abort() {
  if (gone_) std::exchange(gone_, nullptr)();
  Close();
}

void Connection::Watch(std::function<void()> gone) {
  gone_ = std::move(gone);
  ArmWatch();
}

// The wait may outlive the request. It ends with the first bytes of the next
// request, so it need not be cancelled.
void Connection::ArmWatch() {
  if (watching_) return;
  watching_ = true;
  socket_.async_wait(tcp::socket::wait_read,
                     [self = shared_from_this()](error_code e) {
                       self->watching_ = false;
                       if (!e) self->OnReadable();
                     });
}

void Connection::OnReadable() {
  if (!gone_) return;
  if (IsClosedByPeer(&socket_)) {
    std::exchange(gone_, nullptr)();
  } else if (error_code ignored; socket_.available(ignored) == 0) {
    ArmWatch();  // what woke us has been read since
  }
}

}  // namespace fineserve::proxy
