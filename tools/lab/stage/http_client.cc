#include "tools/lab/stage/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "tools/lab/process/eventually.h"

namespace fineserve::stage {
namespace {

constexpr timeval kBound = {process::kPatience.count(), 0};

std::string Small(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

HttpClient::HttpClient(uint16_t port)
    : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &kBound, sizeof(kBound));
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &kBound, sizeof(kBound));
  connected_ = connect(socket_.get(), reinterpret_cast<sockaddr*>(&address),
                       sizeof(address)) == 0;
}

void HttpClient::Send(const std::string& method, const std::string& path,
                      const std::string& body, const std::string& headers) {
  std::string request = method + " " + path + " HTTP/1.1\r\nHost: test\r\n";
  if (!body.empty()) {
    request += "Content-Type: application/json\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n";
  }
  SendRaw(request + headers + "\r\n" + body);
}

void HttpClient::SendRaw(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = send(socket_.get(), bytes.data() + sent,
                           bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;  // the answer, or its lack, will show it
    sent += static_cast<size_t>(n);
  }
}

bool HttpClient::Fill() {
  char chunk[16384];
  const ssize_t n = recv(socket_.get(), chunk, sizeof(chunk), 0);
  if (n < 0 && errno == EAGAIN) {
    ADD_FAILURE() << "the server sent nothing in " << kBound.tv_sec << " s";
  }
  if (n <= 0) return false;
  buffered_.append(chunk, static_cast<size_t>(n));
  return true;
}

std::string HttpClient::ReadLine() {
  size_t end;
  while ((end = buffered_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return std::exchange(buffered_, "");
  }
  std::string line = buffered_.substr(0, end);
  buffered_.erase(0, end + 2);
  return line;
}

std::string HttpClient::ReadBytes(size_t count) {
  while (buffered_.size() < count && Fill()) {
  }
  std::string bytes = buffered_.substr(0, count);
  buffered_.erase(0, bytes.size());
  return bytes;
}

HttpResponse HttpClient::ReadHead() {
  HttpResponse response;
  const std::string status = ReadLine();  // "HTTP/1.1 200 OK"
  if (status.size() > 9) response.status = atoi(status.c_str() + 9);
  for (std::string line = ReadLine(); !line.empty(); line = ReadLine()) {
    const size_t colon = std::min(line.find(": "), line.size());
    response.headers[Small(line.substr(0, colon))] =
        line.substr(std::min(colon + 2, line.size()));
  }
  chunked_ = response.headers["transfer-encoding"] == "chunked";
  left_bytes_ =
      strtoull(response.headers["content-length"].c_str(), nullptr, 10);
  ended_ = !chunked_ && left_bytes_ == 0;
  broken_ = response.status == 0;
  events_.clear();
  return response;
}

std::optional<std::string> HttpClient::ReadPiece() {
  if (ended_) return {};
  size_t count = left_bytes_;
  if (chunked_) {
    const std::string length = ReadLine();
    broken_ |= length.empty();
    count = strtoull(length.c_str(), nullptr, 16);
  }
  ended_ = !chunked_ || count == 0;
  std::string piece = ReadBytes(count);
  if (chunked_) ReadLine();
  if (piece.size() < count) ended_ = broken_ = true;
  return piece;
}

std::string HttpClient::ReadBody() {
  std::string body;
  while (const auto piece = ReadPiece()) body += *piece;
  return body;
}

std::optional<std::string> HttpClient::ReadEvent() {
  size_t end;
  while ((end = events_.find("\n\n")) == std::string::npos) {
    const auto piece = ReadPiece();
    if (!piece) return {};
    events_ += *piece;
  }
  std::string event = events_.substr(0, end);
  events_.erase(0, end + 2);
  EXPECT_EQ(event.rfind("data: ", 0), 0u) << event;
  return event.substr(std::min<size_t>(6, event.size()));
}

HttpResponse HttpClient::Ask(const std::string& method, const std::string& path,
                             const std::string& body,
                             const std::string& headers) {
  Send(method, path, body, headers);
  HttpResponse response = ReadHead();
  response.body = ReadBody();
  return response;
}

}  // namespace fineserve::stage
