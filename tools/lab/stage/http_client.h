#ifndef TOOLS_LAB_STAGE_HTTP_CLIENT_H_
#define TOOLS_LAB_STAGE_HTTP_CLIENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kernels/driver/descriptor.h"

namespace fineserve::stage {

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;
};

// One connection to a server on this machine. Every wait has a limit. A wait
// that reaches its limit, or input that is not HTTP, fails the test; the result
// is then what was read so far. Supports Content-Length and chunks. Not
// thread-safe.
class HttpClient {
 public:
  explicit HttpClient(uint16_t port);

  bool connected() const { return connected_; }

  // Sends a request. If `body` is not empty, it is JSON. `headers` consists of
  // whole lines, each with its "\r\n".
  void Send(const std::string& method, const std::string& path,
            const std::string& body = "", const std::string& headers = "");
  void SendRaw(const std::string& bytes);

  // Reads status and headers. ReadBody or ReadEvent then reads the body.
  HttpResponse ReadHead();
  std::string ReadBody();
  // Returns the next event of a stream, without "data: "; null at the end of
  // the body.
  std::optional<std::string> ReadEvent();

  // Send, ReadHead and ReadBody.
  HttpResponse Ask(const std::string& method, const std::string& path,
                   const std::string& body = "",
                   const std::string& headers = "");

  // True if the server closed the connection before the end of what was read
  // last.
  bool broken() const { return broken_; }
  void Close() { socket_.Reset(); }

 private:
  bool Fill();  // reads more; false at the end or the bound
  std::string ReadLine();
  std::string ReadBytes(size_t count);
  // Reads the next chunk of the body, or the rest of a body with a length.
  std::optional<std::string> ReadPiece();

  driver::Descriptor socket_;
  bool connected_ = false;
  std::string buffered_;
  bool chunked_ = false;
  bool ended_ = false;  // the body
  bool broken_ = false;
  size_t left_bytes_ = 0;  // of a body with a length
  std::string events_;     // read, not yet an event
};

}  // namespace fineserve::stage

#endif  // TOOLS_LAB_STAGE_HTTP_CLIENT_H_
