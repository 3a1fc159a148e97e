#include "bench/proxy/upstream.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <string>
#include <unordered_map>

#include "bench/proxy/tcp.h"

namespace fineserve::bench {
namespace {

const std::string kEvent =
    "data: {\"id\":\"cmpl-0123456789abcdef\",\"object\":\"text_completion\","
    "\"created\":1700000000,\"model\":\"bench\",\"choices\":[{\"index\":0,"
    "\"text\":\" token\",\"logprobs\":null,\"finish_reason\":null}]}\n\n";

std::string Chunk(const std::string& bytes) {
  char size[32];
  snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  return size + bytes + "\r\n";
}

std::string PlainAnswer() {
  std::string body = "{\"choices\":[{\"index\":0,\"text\":\"" +
                     std::string(860, 'x') +
                     "\"}],\"usage\":{\"prompt_tokens\":500,\"total_tokens\":"
                     "700,\"completion_tokens\":200}}";
  return "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: "
         "application/json\r\ncontent-length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

const std::string kStreamHead =
    "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; "
    "charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

class Server {
 public:
  explicit Server(int listener) : listener_(listener) {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    const itimerspec each_ms = {{0, 1'000'000}, {0, 1'000'000}};
    timerfd_settime(timer_, 0, &each_ms, nullptr);
    Watch(listener_);
    Watch(timer_);
  }

  [[noreturn]] void Run() {
    epoll_event events[256];
    for (;;) {
      const int n = epoll_wait(epoll_, events, 256, -1);
      for (int i = 0; i < n; ++i) Handle(events[i].data.fd);
    }
  }

 private:
  void Watch(int fd) {
    epoll_event event = {EPOLLIN, {}};
    event.data.fd = fd;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void Handle(int fd) {
    if (fd == listener_) {
      Accept();
    } else if (fd == timer_) {
      uint64_t ticks;
      if (read(timer_, &ticks, sizeof(ticks)) > 0) Tick();
    } else {
      Read(fd);
    }
  }

  void Accept() {
    int fd;
    while ((fd = accept4(listener_, nullptr, nullptr,
                         SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
      SetNoDelay(fd);
      Watch(fd);
    }
  }

  void Read(int fd) {
    char bytes[65536];
    const ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
    if (n < 0 && errno == EAGAIN) return;
    std::string& held = received_[fd];
    if (n > 0) held.append(bytes, static_cast<size_t>(n));
    if (n > 0 && !IsWholeMessage(held)) return;
    if (n > 0) Answer(fd, held);
    received_.erase(fd);
    if (n > 0) return;
    streams_.erase(fd);
    close(fd);
  }

  void Answer(int fd, const std::string& request) {
    static const std::string plain = PlainAnswer();
    static const std::string begun = kStreamHead + Chunk(kEvent);
    if (request.find("\"hold\"") != std::string::npos) {
      SendAll(fd, begun);
    } else if (request.find("\"stream\":true") != std::string::npos) {
      SendAll(fd, begun);
      streams_[fd] = kEvents - 1;
    } else {
      SendAll(fd, plain);
    }
  }

  void Tick() {
    static const std::string next = Chunk(kEvent);
    static const std::string last = Chunk(kEvent) + "0\r\n\r\n";
    for (auto it = streams_.begin(); it != streams_.end();) {
      const bool ends = --it->second == 0;
      SendAll(it->first, ends ? last : next);
      it = ends ? streams_.erase(it) : std::next(it);
    }
  }

  const int listener_;
  int epoll_;
  int timer_;
  std::unordered_map<int, std::string> received_;
  std::unordered_map<int, int> streams_;  // events left to send
};

}  // namespace

Upstream::Upstream() {
  const int listener = Listen(&port_);
  server_.emplace([listener]() -> int { Server(listener).Run(); });
  close(listener);
}

}  // namespace fineserve::bench
