#ifndef TESTS_PROXY_SITE_H_
#define TESTS_PROXY_SITE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/proxy/peer.h"
#include "tools/lab/stage/process.h"

namespace fineserve::proxy_tests {

// A real fineserve-proxy process; the test plays both the clients and the
// engines: "chat" has the engines a and b, "code" has c.
class ProxyTest : public ::testing::Test {
 protected:
  ~ProxyTest() override;

  // `settings` are further lines of [proxy], `flags` those of the command line,
  // `more` is as in WriteFleet.
  void Start(const std::string& settings = "",
             const std::vector<std::string>& flags = {},
             const std::string& more = "");
  // Writes the fleet file, with `more` at its end.
  void WriteFleet(const std::string& settings, const std::string& more = "");
  void WriteFile(const std::string& path, const std::string& text);

  // Returns a new client that has sent these bytes.
  Peer Client(const std::string& bytes = "") {
    Peer client = Peer::To(port_);
    client.Send(bytes);
    return client;
  }
  Peer Admin() { return Peer::To(admin_port_); }
  // A GET by a new client.
  Peer::Message Get(const std::string& path, bool admin = false);
  // Returns the value on the line of /metrics that begins with `line`; -1 if
  // none does.
  double Metric(const std::string& line);

  // Accepts as engine a or b, whichever the proxy connects to next.
  Peer AcceptChat();

  // A stream of "chat" whose first event has arrived.
  struct Stream {
    Peer client;
    Peer engine;
  };
  Stream Begin(const std::string& target = "/v1/chat/completions");

  static std::string Program();

  const process::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  std::string chats_;  // further lines of the model chat
  Listener a_, b_, c_;
  std::unique_ptr<stage::Process> proxy_;
  uint16_t port_ = 0;
  uint16_t admin_port_ = 0;
};

extern const char kChat[];      // a chat completion's body
extern const char kStream[];    // the same, streaming
extern const char kAnswered[];  // an answer to kChat

}  // namespace fineserve::proxy_tests

#endif  // TESTS_PROXY_SITE_H_
