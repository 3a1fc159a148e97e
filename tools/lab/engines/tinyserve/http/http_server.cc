#include "tools/lab/engines/tinyserve/http/http_server.h"

#include <sys/socket.h>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <deque>
#include <memory>
#include <utility>
#include <variant>

namespace tinyserve {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using net::ip::tcp;

constexpr uint32_t kMostHeaderBytes = 64 << 10;  // as uvicorn's h11
constexpr uint64_t kMostBodyBytes = 64 << 20;
constexpr auto kAwait = net::as_tuple(net::use_awaitable);

using Request = http::request<http::string_body>;

// Tokens on their way from the engine to a client. Confined to the HTTP
// thread; the engine's thread posts to it.
struct TokenQueue {
  explicit TokenQueue(const net::any_io_executor& executor)
      : changed(executor, net::steady_timer::time_point::max()) {}

  struct Item {
    Token token;
    Finish finish;
  };
  std::deque<Item> items;
  bool client_gone = false;
  net::steady_timer changed;  // cancelled when something is new
};

// One connection, with one request after another. Lives as long as its
// coroutine and the wait for the client to close it.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Service* service)
      : socket_(std::move(socket)), service_(service) {}

  static net::awaitable<void> Run(std::shared_ptr<Connection> self) {
    while (co_await self->ServeOne()) {
    }
    error_code ignored;
    self->socket_.shutdown(tcp::socket::shutdown_both, ignored);
    self->socket_.close(ignored);
  }

 private:
  net::awaitable<bool> ServeOne();
  net::awaitable<bool> ReadBody(
      http::request_parser<http::string_body>* parser);
  net::awaitable<bool> Send(Answer answer);
  net::awaitable<bool> RefuseUnread(error_code error);
  net::awaitable<bool> Generate(Endpoint endpoint);
  net::awaitable<bool> SendStream(const Reply& reply, const Generation& request,
                                  TokenQueue* queue, bool* finished);
  net::awaitable<bool> SendStreamHead();
  net::awaitable<bool> SendWhole(const Reply& reply, const Generation& request,
                                 TokenQueue* queue, bool* finished);
  net::awaitable<bool> Write(std::string text);
  net::awaitable<bool> AwaitToken(TokenQueue* queue);
  void WatchForEnd(const std::shared_ptr<TokenQueue>& queue);
  std::string Framed(const std::string& events) const;

  tcp::socket socket_;
  Service* const service_;
  beast::flat_buffer buffer_;
  Request request_;
  std::string request_id_;
};

std::string Copy(beast::string_view text) {
  return std::string(text.data(), text.size());
}

// True if the connection stays open.
net::awaitable<bool> Connection::ServeOne() {
  http::request_parser<http::string_body> parser;
  parser.header_limit(kMostHeaderBytes);
  parser.body_limit(kMostBodyBytes);
  if (!co_await ReadBody(&parser)) co_return false;
  request_ = parser.release();
  const std::string target = Copy(request_.target());
  request_id_ = Copy(request_["X-Request-Id"]);
  if (request_id_.empty()) request_id_ = service_->NewRequestId();
  service_->Arrived(request_id_, Copy(request_["traceparent"]));
  const Question question = {Copy(request_.method_string()),
                             target.substr(0, target.find('?')),
                             Copy(request_[http::field::content_type])};
  auto at_once = service_->AnswerAtOnce(question, request_.body());
  if (at_once) co_return co_await Send(std::move(*at_once));
  switch (service_->NextFault()) {
    case Fault::kNone:
      break;
    case Fault::kError: {
      // Has a name because gcc 12 destroys a temporary in a co_await twice.
      const ApiError error = {500, "EngineCore encountered an issue.",
                              "InternalServerError", ""};
      co_return co_await Send(Failure(error));
    }
    case Fault::kReset:
      socket_.set_option(net::socket_base::linger(true, 0));
      co_return false;
  }
  co_return co_await Generate(*Service::EndpointOf(question.path));
}

net::awaitable<bool> Connection::ReadBody(
    http::request_parser<http::string_body>* parser) {
  auto [head_error, head] =
      co_await http::async_read_header(socket_, buffer_, *parser, kAwait);
  if (head_error) co_return co_await RefuseUnread(head_error);
  if (beast::iequals(parser->get()[http::field::expect], "100-continue")) {
    if (!co_await Write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
  }
  auto [error, bytes] =
      co_await http::async_read(socket_, buffer_, *parser, kAwait);
  if (error) co_return co_await RefuseUnread(error);
  co_return true;
}

// Also answers bytes that are not HTTP, unless the connection has just ended.
net::awaitable<bool> Connection::RefuseUnread(error_code error) {
  if (error.category() !=
          make_error_code(http::error::end_of_stream).category() ||
      error == http::error::end_of_stream ||
      error == http::error::partial_message) {
    co_return false;
  }
  Answer answer = {.status = 400,
                   .content_type = "text/plain; charset=utf-8",
                   .body = "Invalid HTTP request received."};
  if (error == http::error::body_limit) answer.status = 413;
  if (error == http::error::header_limit) answer.status = 431;
  request_ = {};
  request_.keep_alive(false);
  co_await Send(std::move(answer));
  co_return false;
}

net::awaitable<bool> Connection::Send(Answer answer) {
  http::response<http::string_body> response;
  response.version(request_.version());
  response.result(answer.status);
  response.set(http::field::content_type, answer.content_type);
  if (!request_id_.empty()) response.set("X-Request-Id", request_id_);
  response.keep_alive(request_.keep_alive());
  response.body() = std::move(answer.body);
  response.prepare_payload();
  auto [error, bytes] = co_await http::async_write(socket_, response, kAwait);
  co_return !error && request_.keep_alive();
}

net::awaitable<bool> Connection::Write(std::string text) {
  auto [error, bytes] =
      co_await net::async_write(socket_, net::buffer(text), kAwait);
  co_return !error;
}

net::awaitable<bool> Connection::Generate(Endpoint endpoint) {
  const auto read =
      ReadGeneration(endpoint, request_.body(), service_->model());
  if (const auto* error = std::get_if<ApiError>(&read)) {
    co_return co_await Send(Failure(*error));
  }
  const auto& generation = std::get<Generation>(read);
  const Reply reply = service_->NewReply(endpoint, request_id_);
  const auto executor = co_await net::this_coro::executor;
  const auto queue = std::make_shared<TokenQueue>(executor);
  const uint64_t id =
      service_->engine()->Submit(generation.prompt, generation.wanted,
                                 [queue, executor](Token token, Finish finish) {
                                   net::post(executor, [queue, token, finish] {
                                     queue->items.push_back({token, finish});
                                     queue->changed.cancel();
                                   });
                                 });
  WatchForEnd(queue);
  bool finished = false;
  bool goes_on;
  if (generation.stream) {
    goes_on = co_await SendStream(reply, generation, queue.get(), &finished);
  } else {
    goes_on = co_await SendWhole(reply, generation, queue.get(), &finished);
  }
  if (!finished) service_->engine()->Abort(id);
  error_code ignored;
  socket_.cancel(ignored);  // the wait for the client's end
  if (!request_.keep_alive()) goes_on = false;
  co_return goes_on;
}

// Notices when the client closes its side while it waits for tokens. Stops
// watching a client that already sends its next request.
void Connection::WatchForEnd(const std::shared_ptr<TokenQueue>& queue) {
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this(),
                                              queue](error_code error) {
    if (error) return;
    char byte;
    const ssize_t got =
        recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0 || (got < 0 && errno == EAGAIN)) return;
    queue->client_gone = true;
    queue->changed.cancel();
  });
}

// False if the client is gone.
net::awaitable<bool> Connection::AwaitToken(TokenQueue* queue) {
  while (queue->items.empty() && !queue->client_gone) {
    co_await queue->changed.async_wait(kAwait);
  }
  co_return !queue->client_gone;
}

net::awaitable<bool> Connection::SendStreamHead() {
  http::response<http::empty_body> head(http::status::ok, request_.version());
  head.set(http::field::content_type, "text/event-stream; charset=utf-8");
  head.set("X-Request-Id", request_id_);
  head.keep_alive(request_.keep_alive());
  head.chunked(request_.version() > 10);
  http::response_serializer<http::empty_body> serializer(head);
  auto [error, bytes] =
      co_await http::async_write_header(socket_, serializer, kAwait);
  co_return !error;
}

// Frames `events` as a chunk of the body. HTTP/1.0 has no chunks; there, the
// body ends with the connection.
std::string Connection::Framed(const std::string& events) const {
  if (request_.version() <= 10) return events;
  char length[20];
  snprintf(length, sizeof(length), "%zx\r\n", events.size());
  return length + events + "\r\n";
}

// Sends one event for each token. Sets *finished if the engine has finished the
// request.
net::awaitable<bool> Connection::SendStream(const Reply& reply,
                                            const Generation& request,
                                            TokenQueue* queue, bool* finished) {
  if (!co_await SendStreamHead()) co_return false;
  Usage usage = {request.prompt.size(), 0};
  const Usage* shown = request.continuous_usage ? &usage : nullptr;
  bool any_text = false;
  while (!*finished) {
    if (!co_await AwaitToken(queue)) co_return false;
    std::string out;
    if (reply.endpoint == Endpoint::kChat && usage.answer_tokens == 0) {
      out += Framed(Event(RoleChunk(reply, shown)));
    }
    for (; !queue->items.empty(); queue->items.pop_front()) {
      const TokenQueue::Item item = queue->items.front();
      const std::string word = Word(item.token);
      const bool joined = any_text && !word.empty();
      any_text |= !word.empty();
      ++usage.answer_tokens;
      *finished = item.finish != Finish::kNot;
      out += Framed(Event(
          TokenChunk(reply, joined ? " " + word : word, item.finish, shown)));
    }
    if (*finished && request.include_usage) {
      out += Framed(Event(UsageChunk(reply, usage)));
    }
    if (*finished) out += Framed(std::string(kDoneEvent));
    if (*finished && request_.version() > 10) out += "0\r\n\r\n";
    if (!co_await Write(std::move(out))) co_return false;
  }
  co_return request_.version() > 10;
}

net::awaitable<bool> Connection::SendWhole(const Reply& reply,
                                           const Generation& request,
                                           TokenQueue* queue, bool* finished) {
  std::vector<Token> tokens;
  Finish finish = Finish::kNot;
  while (finish == Finish::kNot) {
    if (!co_await AwaitToken(queue)) co_return false;
    for (; !queue->items.empty(); queue->items.pop_front()) {
      tokens.push_back(queue->items.front().token);
      finish = queue->items.front().finish;
    }
  }
  *finished = true;
  const Usage usage = {request.prompt.size(), tokens.size()};
  Answer answer;
  answer.body = WholeAnswer(reply, Text(tokens), finish, usage);
  co_return co_await Send(std::move(answer));
}

net::awaitable<void> Accept(tcp::acceptor* acceptor, Service* service) {
  for (;;) {
    auto [error, socket] = co_await acceptor->async_accept(kAwait);
    if (error) {  // of one client, or no descriptor is left
      net::steady_timer pause(acceptor->get_executor(),
                              std::chrono::milliseconds(50));
      co_await pause.async_wait(kAwait);
      continue;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto connection = std::make_shared<Connection>(std::move(socket), service);
    net::co_spawn(acceptor->get_executor(),
                  Connection::Run(std::move(connection)), net::detached);
  }
}

error_code Listen(const std::string& host, uint16_t port,
                  tcp::acceptor* acceptor) {
  error_code error;
  const auto address = net::ip::make_address(host, error);
  if (error) return error;
  const tcp::endpoint endpoint(address, port);
  if (acceptor->open(endpoint.protocol(), error)) return error;
  if (acceptor->set_option(tcp::acceptor::reuse_address(true), error)) {
    return error;
  }
  if (acceptor->bind(endpoint, error)) return error;
  return acceptor->listen(net::socket_base::max_listen_connections, error);
}

}  // namespace

bool ServeHttp(const std::string& host, uint16_t port, Service* service,
               const ServerEvents& events, std::string* why) {
  net::io_context context(1);
  tcp::acceptor acceptor(context);
  if (const error_code error = Listen(host, port, &acceptor)) {
    *why = host + ":" + std::to_string(port) + ": " + error.message();
    return false;
  }
  net::signal_set signals(context, SIGINT, SIGTERM);
  signals.async_wait([&context](error_code, int) { context.stop(); });
  net::co_spawn(context, Accept(&acceptor, service), net::detached);
  events.listening(acceptor.local_endpoint().port());
  context.run();
  events.ending();
  return true;
}

}  // namespace tinyserve
