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

using Addresses = std::shared_ptr<addrinfo>;
using Health = HealthChecks::Health;
using Clock = std::chrono::steady_clock;

// The first bytes of an answer, which show whether the server is well.
constexpr size_t kAnswerBytes = 16;

// Without a port.
Addresses Resolve(const std::string& host, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  getaddrinfo(host.c_str(), nullptr, &hints, &found);
  return found == nullptr ? nullptr : Addresses(found, &freeaddrinfo);
}

// Asks each silent name server once, for a second; once more with the domain,
// if resolv.conf has a search list.
Addresses LookUpName(const std::string& host) {
  res_init();
  _res.retrans = 1;
  _res.retry = 1;
  return Resolve(host, 0);
}

sockaddr_storage At(const addrinfo& address, uint16_t port) {
  sockaddr_storage at = {};
  memcpy(&at, address.ai_addr, address.ai_addrlen);
  // The port is at the same offset for both families.
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

}  // namespace

bool IsTaken(const std::string& host, uint16_t port, int timeout_ms) {
  const Addresses addresses = LookUpName(host);
  return addresses != nullptr && Connect(*addresses, port, timeout_ms).valid();
}

// A health check of one server, repeated over time.
struct HealthChecks::Question {
  Health health = Health::kDoesNot;  // by the last one that is over
  Clock::time_point since = {};
  uint64_t asked_ns = 0;
  uint16_t port = 0;
  Addresses addresses = {};
  const addrinfo* next = nullptr;  // address to try if this one fails
  driver::Descriptor socket = {};  // not valid: it is over
  std::string request = {};
  size_t sent = 0;  // bytes of the request
  std::string answer = {};

  bool sends() const { return sent < request.size(); }
  void Begin(const Server& server, const Addresses& to);
  // Connects to the next address to which a connection can be started, if any.
  void Connect();
  // Sends or receives. Returns false if the check is over.
  bool Proceed();
  void Turn();
};

void HealthChecks::Question::Begin(const Server& server, const Addresses& to) {
  since = Clock::now();
  port = server.port;
  addresses = to;
  next = to.get();
  request = config::HealthRequest(server.host, server.port);
  sent = 0;
  answer.clear();
  Connect();
}

void HealthChecks::Question::Connect() {
  socket.Reset();
  while (!socket.valid() && next != nullptr) {
    const addrinfo* to = std::exchange(next, next->ai_next);
    socket.Reset(
        ::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const sockaddr_storage at = At(*to, port);
    const bool begun =
        connect(socket.get(), reinterpret_cast<const sockaddr*>(&at),
                to->ai_addrlen) == 0 ||
        errno == EINPROGRESS;
    if (!begun) socket.Reset();
  }
  if (!socket.valid()) health = Health::kDoesNot;
}

bool HealthChecks::Question::Proceed() {
  if (sends()) {
    const ssize_t n = send(socket.get(), request.data() + sent,
                           request.size() - sent, MSG_NOSIGNAL);
    if (n > 0) sent += static_cast<size_t>(n);
    return n > 0 || errno == EAGAIN;
  }
  char piece[kAnswerBytes];
  const ssize_t n = recv(socket.get(), piece, sizeof(piece), 0);
  if (n < 0) return errno == EAGAIN;
  answer.append(piece, static_cast<size_t>(n));
  return n > 0 && answer.size() < kAnswerBytes;
}

void HealthChecks::Question::Turn() {
  if (Proceed()) return;
  if (sent == 0) return Connect();  // it was not connected
  const bool serves = config::SaysHealthy(answer).value_or(false);
  health = serves ? Health::kServes : Health::kDoesNot;
  socket.Reset();
}

HealthChecks::HealthChecks(int patience_ms) : patience_ms_(patience_ms) {}

HealthChecks::~HealthChecks() = default;

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

HealthChecks::Question* HealthChecks::QuestionTo(const Server& server,
                                                 uint64_t now_ns) {
  auto& q = questions_[{server.host, server.port}];
  if (q == nullptr) q = std::make_unique<Question>();
  const Host& host = HostOf(server);
  if (!q->socket.valid()) {
    q->asked_ns = now_ns;
    q->Begin(server, host.addresses);
  }
  if (host.addresses == nullptr && host.looked_up_ns != 0) {
    q->health = Health::kUnknownHost;
  }
  return q.get();
}

// Waits until all questions are over, or for `wait_ms`.
void HealthChecks::Await(const std::vector<Question*>& questions, int wait_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(wait_ms);
  for (;;) {
    std::vector<pollfd> ready;
    for (const Question* q : questions) {
      ready.push_back({q->socket.get(),
                       static_cast<short>(q->sends() ? POLLOUT  // NOLINT
                                                     : POLLIN),
                       0});
    }
    const bool all_over =
        std::all_of(questions.begin(), questions.end(),
                    [](const Question* q) { return !q->socket.valid(); });
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (all_over || left.count() <= 0) return;
    if (poll(ready.data(), ready.size(), static_cast<int>(left.count())) <= 0) {
      return;
    }
    for (size_t i = 0; i < ready.size(); ++i) {
      if (ready[i].revents != 0) questions[i]->Turn();
    }
  }
}

std::vector<HealthChecks::Answer> HealthChecks::Ask(
    const std::vector<Server>& servers, uint64_t now_ns, int wait_ms) {
  decltype(questions_) asked;
  for (const Server& server : servers) {
    asked.insert(questions_.extract({server.host, server.port}));
  }
  questions_ = std::move(asked);
  std::vector<Question*> questions;
  for (const Server& server : servers) {
    questions.push_back(QuestionTo(server, now_ns));
    HostOf(server).answers = false;
  }
  Await(questions, wait_ms);
  const auto patience = std::chrono::milliseconds(patience_ms_);
  std::vector<Answer> answers;
  for (size_t i = 0; i < servers.size(); ++i) {
    Question* const q = questions[i];
    if (q->socket.valid() && Clock::now() - q->since >= patience) {
      q->health = Health::kDoesNot;
      q->socket.Reset();
    }
    answers.push_back({q->health, q->socket.valid() ? now_ns : q->asked_ns});
    HostOf(servers[i]).answers |= q->health == Health::kServes;
  }
  return answers;
}

}  // namespace fineserve::fsctl
