#include "bench/proxy/load.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "bench/proxy/tcp.h"
#include "bench/report/report.h"

namespace fineserve::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Makes a request with a prompt of 2 KiB, some 500 tokens.
std::string Request(Kind kind) {
  const std::string word = kind == Kind::kPlain    ? ""
                           : kind == Kind::kStream ? ",\"stream\":true"
                                                   : ",\"hold\":true";
  const std::string body = "{\"model\":\"bench\",\"max_tokens\":200" + word +
                           ",\"prompt\":\"" + std::string(2048, 'p') + "\"}";
  return "POST /v1/completions HTTP/1.1\r\nHost: bench\r\n"
         "User-Agent: OpenAI/Python 1.99.0\r\nAccept: application/json\r\n"
         "Content-Type: application/json\r\nX-Stainless-Lang: python\r\n"
         "Authorization: Bearer none\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start)
      .count();
}

class Driver {
 public:
  Driver(uint16_t port, Kind kind, int connections) : request_(Request(kind)) {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    clients_.resize(static_cast<size_t>(connections));
    for (size_t i = 0; i < clients_.size(); ++i) {
      clients_[i].fd = ConnectTo(port);
      epoll_event event = {EPOLLIN, {}};
      event.data.u64 = i;
      epoll_ctl(epoll_, EPOLL_CTL_ADD, clients_[i].fd, &event);
    }
  }
  ~Driver() {
    for (const Client& client : clients_) close(client.fd);
    close(epoll_);
  }

  Load Run(double seconds) {
    const Clock::time_point start = Clock::now();
    for (Client& client : clients_) Ask(&client);
    epoll_event events[256];
    while (MicrosecondsSince(start) < seconds * 1e6) {
      const int n = epoll_wait(epoll_, events, 256, 100);
      for (int i = 0; i < n; ++i) Read(&clients_[events[i].data.u64]);
    }
    load_.seconds = MicrosecondsSince(start) * 1e-6;
    load_.requests = load_.latencies_us.size();
    std::sort(load_.latencies_us.begin(), load_.latencies_us.end());
    return std::move(load_);
  }

 private:
  struct Client {
    int fd = -1;
    Clock::time_point asked;
    std::string received;
  };

  void Ask(Client* client) {
    client->received.clear();
    client->asked = Clock::now();
    SendAll(client->fd, request_);
  }

  void Read(Client* client) {
    char bytes[16384];
    const ssize_t n = recv(client->fd, bytes, sizeof(bytes), 0);
    if (n < 0) return;
    if (n == 0) {
      Die("a connection ended: " + client->received);
    }
    client->received.append(bytes, static_cast<size_t>(n));
    if (!IsWholeMessage(client->received)) return;
    if (client->received.compare(0, 12, "HTTP/1.1 200") != 0) {
      Die("not served: " + client->received);
    }
    load_.latencies_us.push_back(MicrosecondsSince(client->asked));
    Ask(client);
  }

  const std::string request_;
  int epoll_;
  std::vector<Client> clients_;
  Load load_;
};

}  // namespace

double Load::LatencyUs(double q) const {
  if (latencies_us.empty()) return 0;
  const auto at = static_cast<size_t>(q * static_cast<double>(requests));
  return latencies_us[std::min(at, latencies_us.size() - 1)];
}

Load RunLoad(uint16_t port, Kind kind, int connections, double seconds) {
  return Driver(port, kind, connections).Run(seconds);
}

std::vector<int> HoldStreams(uint16_t port, int connections) {
  std::vector<int> held;
  const std::string request = Request(Kind::kHold);
  for (int i = 0; i < connections; ++i) {
    held.push_back(ConnectTo(port));
    SendAll(held.back(), request);
    std::string received;
    while (received.find("data: ") == std::string::npos) {
      char bytes[4096];
      const ssize_t n = recv(held.back(), bytes, sizeof(bytes), 0);
      if (n > 0) received.append(bytes, static_cast<size_t>(n));
    }
  }
  return held;
}

}  // namespace fineserve::bench
