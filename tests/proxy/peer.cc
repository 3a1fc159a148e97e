#include "tests/proxy/peer.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace fineserve::proxy_tests {
namespace {

constexpr int kBoundMs = 120'000;  // a busy machine is slow, not wrong

bool WaitFor(int fd, int16_t events, int ms) {
  pollfd ready = {fd, events, 0};
  return poll(&ready, 1, ms) > 0;
}

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

driver::Descriptor TcpSocket() {
  return driver::Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// True if the first request on a connection is a question about the engine's
// health or models, which this function then answers.
bool AnswersProbe(int fd) {
  if (!WaitFor(fd, POLLIN, kBoundMs)) return false;
  char bytes[64];
  const ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_PEEK);
  const std::string begin(bytes, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (begin.rfind("GET /health ", 0) != 0 &&
      begin.rfind("GET /v1/models ", 0) != 0) {
    return false;
  }
  const std::string answer = Plain("{}");
  send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
  return true;
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(tolower(c));
  return text;
}

}  // namespace

const char kStreamHead[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    "Transfer-Encoding: chunked\r\n\r\n";
const char kLastChunk[] = "0\r\n\r\n";

std::string Plain(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

std::string Chunk(const std::string& bytes) {
  char size[32];
  snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  return size + bytes + "\r\n";
}

std::string Post(const std::string& path, const std::string& body,
                 const std::string& fields) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + fields +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

Peer Peer::To(uint16_t port, int room) {
  driver::Descriptor socket = TcpSocket();
  if (room != 0) {
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
  }
  const sockaddr_in address = Loopback(port);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0) {
    socket.Reset();
  }
  return Peer(std::move(socket));
}

void Peer::Send(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    ASSERT_TRUE(WaitFor(socket_.get(), POLLOUT, kBoundMs));
    const ssize_t n = send(socket_.get(), bytes.data() + sent,
                           bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    ASSERT_GT(n, 0) << strerror(errno);
    sent += static_cast<size_t>(n);
  }
}

size_t Peer::SendNow(const std::string& bytes) {
  const ssize_t n = send(socket_.get(), bytes.data(), bytes.size(),
                         MSG_NOSIGNAL | MSG_DONTWAIT);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

bool Peer::Fill() {
  if (!WaitFor(socket_.get(), POLLIN, kBoundMs)) {
    ADD_FAILURE() << "nothing came; so far: " << buffered_.substr(0, 500);
    return false;
  }
  char bytes[65536];
  const ssize_t n = recv(socket_.get(), bytes, sizeof(bytes), 0);
  if (n <= 0) return false;
  buffered_.append(bytes, static_cast<size_t>(n));
  return true;
}

std::string Peer::ReceiveUntil(const std::string& mark) {
  size_t at;
  while ((at = buffered_.find(mark)) == std::string::npos) {
    if (!Fill()) return std::exchange(buffered_, "");
  }
  std::string bytes = buffered_.substr(0, at + mark.size());
  buffered_.erase(0, bytes.size());
  return bytes;
}

std::string Peer::Receive(size_t n) {
  while (buffered_.size() < n && Fill()) {
  }
  std::string bytes = buffered_.substr(0, n);
  buffered_.erase(0, bytes.size());
  return bytes;
}

std::string Peer::ReceiveAll() {
  while (Fill()) {
  }
  return std::exchange(buffered_, "");
}

bool Peer::IsQuiet() {
  return buffered_.empty() && !WaitFor(socket_.get(), POLLIN, 0);
}

bool Peer::IsClosed() {
  const std::string rest = ReceiveAll();
  EXPECT_EQ(rest, "");
  return rest.empty();
}

void Peer::Abort() {
  const linger at_once = {1, 0};
  setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close();
}

int Peer::Message::status() const {
  const size_t blank = head.find(' ');
  return blank == std::string::npos ? 0 : atoi(head.c_str() + blank);
}

std::string Peer::Message::Field(const std::string& name) const {
  const std::string key = "\r\n" + name + ":";
  const size_t at = Lower(head).find(key);
  if (at == std::string::npos) return "";
  const size_t begin = head.find_first_not_of(' ', at + key.size());
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

Peer::Message Peer::ReceiveMessage() {
  Message message;
  message.head = ReceiveUntil("\r\n\r\n");
  message.body =
      Receive(strtoull(message.Field("content-length").c_str(), nullptr, 10));
  return message;
}

std::string Peer::ReceiveChunk() {
  const size_t n = strtoull(ReceiveUntil("\r\n").c_str(), nullptr, 16);
  std::string bytes = Receive(n);
  EXPECT_EQ(Receive(2), "\r\n");
  return bytes;
}

Listener::Listener() : socket_(TcpSocket()) {
  sockaddr_in address = Loopback(0);
  socklen_t n = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(socket_.get(), any, n), 0);
  EXPECT_EQ(listen(socket_.get(), 128), 0);
  EXPECT_EQ(getsockname(socket_.get(), any, &n), 0);
  port_ = ntohs(address.sin_port);
}

bool Listener::Look(int ms) {
  while (!next_.valid()) {
    if (!WaitFor(socket_.get(), POLLIN, ms)) return false;
    next_ = driver::Descriptor(
        accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (AnswersProbe(next_.get())) next_.Reset();
  }
  return true;
}

Peer Listener::Accept() {
  if (!Look(kBoundMs)) {
    ADD_FAILURE() << "no connection to the engine came";
    return Peer(driver::Descriptor());
  }
  return Peer(std::move(next_));
}

Peer Listener::AcceptAny() {
  return Peer(driver::Descriptor(
      accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
}

bool Listener::IsQuiet() { return !Look(0); }

}  // namespace fineserve::proxy_tests
