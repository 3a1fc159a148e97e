#include "tools/lab/engines/ranks/http_front.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace stock_engine {
namespace {

constexpr timeval kPatience = {1, 0};  // with a client that sends nothing
constexpr size_t kMostBytes = 1 << 20;
constexpr char kCompletion[] =
    R"({"id": "cmpl-1", "object": "text_completion", "created": 1, )"
    R"("model": "group", "choices": [{"index": 0, "text": "checked", )"
    R"("logprobs": null, "finish_reason": "stop"}], "usage": )"
    R"({"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}})";

size_t BodyBytes(const std::string& head) {
  const char* const field = strcasestr(head.c_str(), "\r\ncontent-length:");
  return field == nullptr ? 0 : strtoul(strchr(field, ':') + 1, nullptr, 10);
}

// Returns head and body; empty if the client closes the connection or does not
// send everything in time.
std::string ReadRequest(int client) {
  std::string request;
  size_t end = std::string::npos;  // of the head
  char bytes[4096];
  while (request.size() < kMostBytes) {
    if (end == std::string::npos) end = request.find("\r\n\r\n");
    if (end != std::string::npos &&
        request.size() >= end + 4 + BodyBytes(request.substr(0, end))) {
      return request;
    }
    const ssize_t got = recv(client, bytes, sizeof(bytes), 0);
    if (got <= 0) break;
    request.append(bytes, static_cast<size_t>(got));
  }
  return "";
}

void SendAnswer(int client, const std::string& body) {
  const std::string answer =
      "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: " +
      std::to_string(body.size()) + "\r\nconnection: close\r\n\r\n" + body;
  send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
}

}  // namespace

HttpFront::HttpFront(uint16_t port)
    : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
          0 &&
      listen(listener_, SOMAXCONN) == 0) {
    return;
  }
  fprintf(stderr, "group_engine: cannot listen on port %u: %s\n", port,
          strerror(errno));
  exit(1);
}

HttpFront::~HttpFront() { close(listener_); }

void HttpFront::ServeOne(const std::function<void()>& answer) const {
  std::string request;
  const int client = TakeOne(&request);
  if (client < 0) return;
  answer();
  Complete(client);
}

int HttpFront::TakeOne(std::string* request) const {
  const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) return -1;
  setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  *request = ReadRequest(client);
  if (request->compare(0, 5, "POST ") == 0) return client;
  if (!request->empty()) SendAnswer(client, "{}");
  close(client);
  return -1;
}

void HttpFront::Complete(int client) {
  SendAnswer(client, kCompletion);
  close(client);
}

}  // namespace stock_engine
