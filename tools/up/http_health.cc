#include "tools/up/http_health.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <resolv.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/fleet/config/health_probe.h"
#include "kernels/driver/descriptor.h"

namespace fineserve::fsctl {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
using Health = HealthChecks::Health;
using Clock = std::chrono::steady_clock;

// As much of an answer as says whether the server is well.
constexpr size_t kAnswerBytes = 16;

// Without a port.
Addresses Resolve(const std::string& host, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  getaddrinfo(host.c_str(), nullptr, &hints, &found);
  return {found, &freeaddrinfo};
}

// Each name server that is silent is asked once, for a second; once more with
// the domain, if resolv.conf has a search list.
Addresses LookUpName(const std::string& host) {
  res_init();
  _res.retrans = 1;
  _res.retry = 1;
  return Resolve(host, 0);
}

sockaddr_storage At(const addrinfo& address, uint16_t port) {
  sockaddr_storage at = {};
  memcpy(&at, address.ai_addr, address.ai_addrlen);
  // In one place for both families.
  static_assert(offsetof(sockaddr_in, sin_port) ==
                offsetof(sockaddr_in6, sin6_port));
  reinterpret_cast<sockaddr_in*>(&at)->sin_port = htons(port);
  return at;
}

// SO_SNDTIMEO bounds connect as well.
driver::Descriptor Connect(const addrinfo& to, uint16_t port, int timeout_ms) {
  driver::Descriptor fd(socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const sockaddr_storage at = At(to, port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&at),
              to.ai_addrlen) != 0) {
    fd.Reset();
  }
  return fd;
}

// One question on its way.
struct Question {
  std::string request;
  uint16_t port = 0;
  const addrinfo* next = nullptr;  // address to try if this one fails
  driver::Descriptor socket = {};  // not valid: it is over
  size_t sent = 0;                 // bytes of the request
  std::string answer = {};
  Health health = Health::kDoesNot;
};

// Begins to connect to the next address that lets it, if there is one.
void Connect(Question* q) {
  q->socket.Reset();
  while (!q->socket.valid() && q->next != nullptr) {
    const addrinfo* to = std::exchange(q->next, q->next->ai_next);
    q->socket.Reset(
        socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const sockaddr_storage at = At(*to, q->port);
    const bool begun =
        connect(q->socket.get(), reinterpret_cast<const sockaddr*>(&at),
                to->ai_addrlen) == 0 ||
        errno == EINPROGRESS;
    if (!begun) q->socket.Reset();
  }
}

// True if there is more to send or to receive.
bool Proceed(Question* q) {
  if (q->sent < q->request.size()) {
    const ssize_t n = send(q->socket.get(), q->request.data() + q->sent,
                           q->request.size() - q->sent, MSG_NOSIGNAL);
    if (n > 0) q->sent += static_cast<size_t>(n);
    return n > 0 || errno == EAGAIN;
  }
  char piece[kAnswerBytes];
  const ssize_t n = recv(q->socket.get(), piece, sizeof(piece), 0);
  if (n < 0) return errno == EAGAIN;
  q->answer.append(piece, static_cast<size_t>(n));
  const bool serves = config::SaysHealthy(q->answer).value_or(false);
  q->health = serves ? Health::kServes : Health::kDoesNot;
  return n > 0 && q->answer.size() < kAnswerBytes;
}

void Turn(Question* q) {
  if (Proceed(q)) return;
  if (q->sent != 0) q->next = nullptr;  // it was connected
  Connect(q);
}

// Until all are over, or the time is.
void Await(std::vector<Question>* questions, Clock::time_point deadline) {
  for (;;) {
    std::vector<pollfd> ready;
    for (const Question& q : *questions) {
      const bool sends = q.sent < q.request.size();
      ready.push_back({q.socket.get(),
                       static_cast<short>(sends ? POLLOUT : POLLIN),  // NOLINT
                       0});
    }
    const bool all_over =
        std::all_of(questions->begin(), questions->end(),
                    [](const Question& q) { return !q.socket.valid(); });
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - Clock::now());
    if (all_over || left.count() <= 0) return;
    if (poll(ready.data(), ready.size(), static_cast<int>(left.count())) <= 0) {
      return;
    }
    for (size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].revents != 0) Turn(&(*questions)[i]);
    }
  }
}

}  // namespace

bool IsTaken(const std::string& host, uint16_t port, int timeout_ms) {
  const Addresses addresses = LookUpName(host);
  return addresses != nullptr && Connect(*addresses, port, timeout_ms).valid();
}

HealthChecks::Host& HealthChecks::HostOf(const Server& server) {
  Host& host = hosts_[server.host];
  if (host.addresses == nullptr && !host.is_name) {
    host.addresses = Resolve(server.host, AI_NUMERICHOST);
    host.is_name = host.addresses == nullptr;
  }
  return host;
}

void HealthChecks::LookUp(const std::vector<Server>& servers, uint64_t now_ns) {
  if (now_ns < next_look_up_ns_) return;
  Host* due = nullptr;
  std::string name;
  for (const Server& server : servers) {
    Host& host = HostOf(server);
    if (!host.is_name || host.answers) continue;
    const bool is_due =
        host.looked_up_ns == 0 || now_ns - host.looked_up_ns >= kLookUpNs;
    if (!is_due || (due && due->looked_up_ns <= host.looked_up_ns)) continue;
    due = &host;
    name = server.host;
  }
  if (due == nullptr) return;
  const auto began = Clock::now();
  Addresses found = LookUpName(name);
  if (found != nullptr) due->addresses = std::move(found);
  due->looked_up_ns = now_ns;
  const std::chrono::nanoseconds took = Clock::now() - began;
  next_look_up_ns_ = now_ns + kLookUpPeriods * took.count();
}

std::vector<Health> HealthChecks::Ask(const std::vector<Server>& servers,
                                      int timeout_ms) {
  std::vector<Question> questions;
  for (const Server& server : servers) {
    const Host& host = HostOf(server);
    Question& q = questions.emplace_back();
    q.request = config::HealthRequest(server.host, server.port);
    q.port = server.port;
    q.next = host.addresses.get();
    if (q.next == nullptr && host.looked_up_ns != 0) {
      q.health = Health::kUnknownHost;
    }
    Connect(&q);
  }
  Await(&questions, Clock::now() + std::chrono::milliseconds(timeout_ms));
  for (const Server& server : servers) HostOf(server).answers = false;
  std::vector<Health> answers;
  for (size_t i = 0; i < servers.size(); ++i) {
    answers.push_back(questions[i].health);
    HostOf(servers[i]).answers |= questions[i].health == Health::kServes;
  }
  return answers;
}

}  // namespace fineserve::fsctl
