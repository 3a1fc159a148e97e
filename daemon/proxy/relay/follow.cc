// Streams the requests that end, for the admin port.

#include <stdio.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/proxy/page/page.h"
#include "daemon/proxy/record/life.h"
#include "daemon/proxy/record/recent_page.h"
#include "daemon/proxy/relay/connection.h"

namespace fineserve::proxy {
namespace {

constexpr size_t kMostFollowers = 16;
// Limit on the bytes that a stream writes at a time, so that other connections
// get their turns.
constexpr size_t kMostBytes = 64 << 10;

// Follows a Recorder as long as this object lives.
class Following {
 public:
  Following(Recorder* recorder, std::function<void()> on_ended)
      : recorder_(recorder), on_ended_(std::move(on_ended)) {
    recorder_->Follow(&on_ended_);
  }
  ~Following() { recorder_->Unfollow(&on_ended_); }
  Following(const Following&) = delete;
  Following& operator=(const Following&) = delete;

 private:
  Recorder* const recorder_;
  Recorder::Follower on_ended_;
};

// Returns the lines from number *next on, and moves *next past them. A reader
// that was too slow gets the number of lines that it missed.
std::string LinesFrom(const Recorder& recorder, const RecentQuery& query,
                      uint64_t* next) {
  std::string lines;
  if (*next < recorder.oldest()) {
    absl::StrAppend(&lines, "{\"missed\":", recorder.oldest() - *next, "}\n");
    *next = recorder.oldest();
  }
  for (; *next < recorder.ended() && lines.size() < kMostBytes; ++*next) {
    const auto life = recorder.Ended(*next);
    if (!query.Takes(*life)) continue;
    absl::StrAppend(&lines, LifeLine(*life, life->ended_ns), "\n");
  }
  return lines;
}

std::string Chunk(const std::string& bytes) {
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n");
}

constexpr int kHeldBytes = 32 << 10;

// Returns the head of a stream, which ends with its connection. `retry` is the
// time in ms after which a browser asks again.
std::string FramesHead(const std::string& request_id) {
  return absl::StrCat(
      "HTTP/1.1 200 OK\r\ncontent-type: ", kFramesType,
      "\r\ncache-control: no-store\r\nx-request-id: ", request_id,
      "\r\nconnection: close\r\n\r\n", "retry: 1000\n\n");
}

ApiError TooManyViewers() {
  ApiError error = ServerError(
      503, "too_many_viewers",
      absl::StrCat("as many as may look at this proxy at a time (",
                   Feed::kMostViewers, ") do; close one of the others"));
  error.retry_after_ms = 5000;
  return error;
}

}  // namespace

// Closes the connection at the end, because the client has gone or does not
// read.
asio::awaitable<bool> Connection::FollowRequests(
    const RequestParser& request, const std::string& request_id) {
  Recorder& recorder = service_->recorder;
  const absl::optional<RecentQuery> query = ReadRecentQuery(request.target());
  if (!query || !request.http_1_1() || recorder.followers() >= kMostFollowers) {
    const ApiError error =
        !query ? ClientError(400, "bad_query", "this path takes ?model=NAME")
        : !request.http_1_1()
            ? ClientError(400, "bad_version", "this path needs HTTP/1.1")
            : ServerError(503, "too_many", "too many clients follow already");
    co_return co_await Answer(request, ErrorAnswer(error), request_id);
  }
  const std::string head = absl::StrCat(
      "HTTP/1.1 200 OK\r\ncontent-type: application/jsonl\r\n"
      "cache-control: no-store\r\ntransfer-encoding: chunked\r\n"
      "x-request-id: ",
      request_id, "\r\nconnection: close\r\n\r\n");
  Buffers buffers = {asio::buffer(head)};
  if (!co_await Write(&buffers)) co_return false;
  Wakeup news;
  bool left = false;
  Watch([&] {
    left = true;
    news.Set();
  });
  {
    const Following following(&recorder, [&news] { news.Set(); });
    uint64_t next = recorder.ended();
    while (!left) {
      const std::string lines = LinesFrom(recorder, *query, &next);
      if (lines.empty()) {
        co_await news.Wait();
        continue;
      }
      const std::string chunk = Chunk(lines);
      buffers = {asio::buffer(chunk)};
      if (!co_await Write(&buffers)) break;
    }
  }
  Unwatch();
  co_return false;
}

// Serves frames until either side closes. A viewer that does not read for a
// while is dropped.
asio::awaitable<void> Connection::ServeFrames(const std::string& request_id) {
  const std::unique_ptr<Feed::Seat> seat = service_->feed->TakeSeat();
  if (seat == nullptr) {
    const std::string text = LocalAnswerText(ErrorAnswer(TooManyViewers()),
                                             false, request_id, false);
    Buffers buffers = {asio::buffer(text)};
    co_await Write(&buffers);
    co_return;
  }
  // Keeps the send buffer small: frames that the system holds for a viewer are
  // out of date when they are read.
  error_code ignored;
  socket_.set_option(asio::socket_base::send_buffer_size(kHeldBytes), ignored);
  Watch([&seat] { seat->Leave(); });
  const uint32_t seconds = service_->limits.viewer_stall_s;
  auto event = std::make_shared<const std::string>(FramesHead(request_id));
  while (event != nullptr) {
    Buffers buffers = {asio::buffer(*event)};
    error_code e = WriteNow(&socket_, &buffers);
    if (!e && !buffers.empty()) {
      Guard(seconds);
      e = co_await WriteRest(&socket_, &buffers,
                             [this, seconds](size_t) { Guard(seconds); });
      Unguard();
    }
    if (e) break;
    event = co_await seat->Next();
  }
  Unwatch();
}

// Returns false if the connection must be closed.
asio::awaitable<bool> Connection::ShowLog(const RequestParser& request,
                                          const std::string& request_id) {
  const std::string engine = EngineOfLog(request.target());
  const absl::Duration patience = absl::Seconds(service_->limits.log_s);
  LocalAnswer answer;
  if (service_->limits.log_s == 0) {
    answer = ErrorAnswer(ClientError(
        404, "logs_off", "this proxy was started with --no-page-logs"));
  } else if (service_->routes->Engine(engine) == nullptr) {
    answer = ErrorAnswer(ClientError(
        404, "engine_not_found",
        absl::StrCat("the fleet has no engine `",
                     absl::CHexEscape(engine.substr(0, 200)), "`")));
  } else {
    const LogPlace place = service_->logs;
    const auto read = [=]() -> asio::awaitable<LocalAnswer> {
      co_return EngineLog(place, engine, patience);
    };
    answer = co_await asio::co_spawn(service_->log_reader->get_executor(), read,
                                     asio::use_awaitable);
  }
  co_return co_await Answer(request, answer, request_id);
}

}  // namespace fineserve::proxy
