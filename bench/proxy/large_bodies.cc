#include "bench/proxy/large_bodies.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "bench/micro/run_first.h"
#include "bench/proxy/tcp.h"
#include "bench/report/report.h"

namespace fineserve::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = size_t{31} << 20;
constexpr size_t kChunkBytes = 64 << 10;
constexpr unsigned kPauseUs = 3000;  // between two probes

constexpr char kHead[] =
    "POST /v1/completions HTTP/1.1\r\nHost: bench\r\n"
    "Content-Type: application/json\r\n";

std::string Body(LargeBody kind) {
  std::string body = "{\"model\":\"bench\",\"max_tokens\":1,\"prompt\":";
  if (kind == LargeBody::kTokens) {
    for (body += "[1"; body.size() < kBytes;) body += ",42";
    return body + "]}";
  }
  return body + "\"" + std::string(kBytes - body.size(), 'p') + "\"}";
}

std::string Request(LargeBody kind) {
  const std::string body = Body(kind);
  if (kind != LargeBody::kChunks) {
    return kHead + ("Content-Length: " + std::to_string(body.size())) +
           "\r\n\r\n" + body;
  }
  std::string request =
      kHead + std::string("Transfer-Encoding: chunked\r\n\r\n");
  for (size_t at = 0; at < body.size(); at += kChunkBytes) {
    const std::string chunk = body.substr(at, kChunkBytes);
    char size[32];
    snprintf(size, sizeof(size), "%zx\r\n", chunk.size());
    request += size + chunk + "\r\n";
  }
  return request + "0\r\n\r\n";
}

// Sends the request and waits for its complete answer; returns an empty string
// if the connection ended.
std::string Ask(int fd, const std::string& request) {
  SendAll(fd, request);
  std::string received;
  while (!IsWholeMessage(received)) {
    char bytes[4096];
    pollfd there = {fd, POLLIN, 0};
    poll(&there, 1, 1000);
    const ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return "";
    if (n > 0) received.append(bytes, static_cast<size_t>(n));
  }
  return received;
}

bool IsGood(const std::string& answer) {
  return answer.compare(0, 12, "HTTP/1.1 200") == 0;
}

void Probe(uint16_t port, const std::atomic<bool>& ends, Beside* beside) {
  RunThreadFirst(0);
  const int fd = ConnectTo(port);
  while (!ends) {
    usleep(kPauseUs);
    const auto start = Clock::now();
    if (!IsGood(Ask(fd, "GET /health HTTP/1.1\r\nHost: bench\r\n\r\n"))) {
      Die("the probe was not answered");
    }
    beside->waits_ms.push_back(
        std::chrono::duration<double, std::milli>(Clock::now() - start)
            .count());
  }
  close(fd);
}

}  // namespace

double Beside::WaitMs(double q) const {
  const auto at = static_cast<size_t>(q * static_cast<double>(waits_ms.size()));
  return waits_ms.empty() ? 0 : waits_ms[std::min(at, waits_ms.size() - 1)];
}

Beside MeasureBeside(uint16_t port, LargeBody kind, int connections,
                     double seconds) {
  const std::string request = Request(kind);
  Beside beside;
  std::atomic<bool> ends = false;
  std::atomic<uint64_t> bodies = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < connections; ++i) {
    clients.emplace_back([&] {
      const int fd = ConnectTo(port);
      while (!ends) {
        const std::string answer = Ask(fd, request);
        if (!IsGood(answer)) Die("a large body was not served: " + answer);
        ++bodies;
      }
      close(fd);
    });
  }
  std::thread probe([&] { Probe(port, ends, &beside); });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  ends = true;
  probe.join();
  for (std::thread& client : clients) client.join();
  beside.bodies = bodies;
  std::sort(beside.waits_ms.begin(), beside.waits_ms.end());
  return beside;
}

}  // namespace fineserve::bench
