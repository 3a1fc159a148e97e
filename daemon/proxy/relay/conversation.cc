#include "daemon/proxy/relay/conversation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/log/log.h"

namespace fineserve::proxy {
namespace {

constexpr size_t kLeastReadBytes = 4096;
constexpr size_t kMostReadBytes = 64 << 10;
// vLLM's answer to /tokenize begins with the count; its list of tokens is as
// long as the prompt, and is not held
// (vllm/entrypoints/serve/tokenize/protocol.py).
constexpr size_t kBeginningBytes = 1024;

bool IsInformational(unsigned status) { return status / 100 == 1; }

}  // namespace

std::string Conversation::Server::Authority() const {
  return tls && port == 443 ? host : absl::StrCat(host, ":", port);
}

// If a kept connection turns out to have been closed by the server, this says
// nothing about the server, so a new connection is tried. This side closes a
// connection only for a reason: the client has gone, or the server's time is
// over.
asio::awaitable<Conversation::Ended> Conversation::Reach(
    const Server& server, const std::string& head, Patience patience) {
  answered_ = false;  // by this one
  reached_ = absl::StrCat(server.tls ? "https://" : "", server.Authority());
  socket_ = service_->engines.Take(reached_);
  bool reused = socket_.has_value();
  for (;;) {
    if (!reused && !co_await Open(server, patience.to_accept)) {
      error_ = EngineError::kConnect;
      co_return Ended::kNotAnswered;
    }
    if (patience.to_answer != 0) client_->Guard(&*socket_, patience.to_answer);
    const Ended ended = co_await Ask(head);
    const bool again =
        ended == Ended::kNotAnswered && reused && socket_->is_open();
    if (!again) co_return ended;
    error_.reset();
    reused = false;
  }
}

// Opens a new connection.
asio::awaitable<bool> Conversation::Open(Server server, uint32_t seconds) {
  socket_.emplace(client_->executor());
  client_->Guard(&*socket_, seconds);
  const error_code e = co_await Connect(&*socket_, server.host, server.port);
  client_->Unguard();
  if (e || abandoned_) co_return false;
  Prepare(&*socket_);
  WatchLink(&*socket_);
  if (!server.tls) co_return true;
  absl::StatusOr<tcp::socket> plain =
      co_await service_->tls.Wrap(*std::move(socket_), server.host);
  socket_.reset();
  if (!plain.ok()) {
    log::Warning("{}", std::string(plain.status().message()));
    co_return false;
  }
  socket_.emplace(*std::move(plain));
  co_return !abandoned_;
}

void Conversation::Keep() {
  received_.Consume(std::exchange(parsed_bytes_, 0));
  // The socket is already closed if the client has gone.
  if (abandoned_ || !socket_->is_open()) return;
  if (!answer_->keep_alive() || !received_.empty()) return;
  service_->engines.Keep(reached_, *std::move(socket_),
                         service_->clock->NowNs());
}

// Returns kWhole once the head of an answer has come.
asio::awaitable<Conversation::Ended> Conversation::Ask(
    const std::string& head) {
  received_ = ByteBuffer();
  read_bytes_ = kLeastReadBytes;
  parsed_bytes_ = 0;
  answered_ = false;
  Buffers buffers = {asio::buffer(head)};
  if (!request_->body()->empty()) {
    buffers.push_back(asio::buffer(*request_->body()));
  }
  error_code e = WriteNow(&*socket_, &buffers);
  if (!e && !buffers.empty()) {
    e = co_await WriteRest(&*socket_, &buffers, [](size_t) {});
  }
  // An engine may refuse a large body before it has read all of it. Its answer
  // can be read even if the write failed.
  co_return co_await AwaitAnswer();
}

asio::awaitable<Conversation::Ended> Conversation::AwaitAnswer() {
  const bool to_head = request_->method() == "HEAD";
  do {
    answer_.emplace(service_->limits.header_bytes, to_head);
    Parse();  // the next answer may have come behind an informational one
    error_code e;
    while (!e && !answer_->broken() && !answer_->header_done()) {
      e = co_await Read();
    }
    if (abandoned_) co_return Ended::kClientGone;
    if (e || answer_->broken()) co_return Cut();
  } while (IsInformational(answer_->status()));
  co_return Ended::kWhole;
}

Conversation::Ended Conversation::Cut() {
  if (!error_) error_ = EngineError::kReset;
  return answered_ ? Ended::kBroken : Ended::kNotAnswered;
}

bool Conversation::IsEventStream() const {
  return absl::StartsWith(answer_->Field("content-type"), "text/event-stream");
}

asio::awaitable<error_code> Conversation::Read() {
  pieces_.clear();
  received_.Consume(std::exchange(parsed_bytes_, 0));
  const size_t before = received_.bytes().size();
  const error_code e = co_await ReadSome(&*socket_, &received_, read_bytes_);
  if (e == asio::error::eof && answer_->header_done()) {
    answer_->FeedEnd();
    co_return error_code();
  }
  if (e) co_return e;
  answered_ = true;
  const bool full = received_.bytes().size() - before == read_bytes_;
  if (full) read_bytes_ = std::min(2 * read_bytes_, kMostReadBytes);
  Parse();
  co_return error_code();
}

void Conversation::Parse() {
  received_.Consume(std::exchange(parsed_bytes_, 0));
  parsed_bytes_ = answer_->Feed(received_.bytes(), &pieces_);
}

asio::awaitable<bool> Conversation::ReadBeginning(std::string* text) {
  for (;;) {
    for (const absl::string_view piece : pieces_) {
      const absl::string_view held =
          piece.substr(0, kBeginningBytes - text->size());
      text->append(held.data(), held.size());
    }
    if (answer_->done()) co_return true;
    if (co_await Read() || answer_->broken()) co_return false;
  }
}

void Conversation::Abandon() {
  abandoned_ = true;
  Close();
}

void Conversation::GiveUp() {
  error_ = EngineError::kTimeout;
  Close();
}

void Conversation::Close() {
  error_code ignored;
  if (socket_) socket_->close(ignored);
}

}  // namespace fineserve::proxy
