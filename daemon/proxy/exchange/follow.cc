// A stream of the requests that end, for the admin port.

#include <stdio.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/proxy/exchange/connection.h"
#include "daemon/proxy/record/life_json.h"
#include "daemon/proxy/record/recent_page.h"

namespace fineserve::proxy {
namespace {

constexpr size_t kMostFollowers = 16;
// One turn of a stream, so that other connections have theirs.
constexpr size_t kMostBytes = 64 << 10;

// A Recorder's follower for as long as it lives.
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

// The lines from number *next on, which moves on. A reader that was too slow
// learns how many it missed.
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

}  // namespace

// The connection is closed at the end: its client has gone, or takes nothing.
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

}  // namespace fineserve::proxy
