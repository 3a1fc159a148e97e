#ifndef TESTS_PROXY_COLLECTOR_H_
#define TESTS_PROXY_COLLECTOR_H_

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/proxy/peer.h"
#include "tools/lab/process/eventually.h"

namespace fineserve::proxy_tests {

// A collector of traces, played by the test's thread.
class Collector {
 public:
  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(listener_.port());
  }

  // Receives posts until there are `n` spans, and returns them by name; fails
  // the test if they do not arrive.
  std::map<std::string, nlohmann::json> AwaitSpans(size_t n) {
    std::map<std::string, nlohmann::json> spans;
    while (spans.size() < n) {
      if (!process::Eventually([this] { return !listener_.IsQuiet(); })) {
        ADD_FAILURE() << "only " << spans.size() << " spans have come";
        break;
      }
      Peer poster = listener_.Accept();
      const Peer::Message post = poster.ReceiveMessage();
      poster.Send(Plain("{}"));
      const auto body = nlohmann::json::parse(post.body);
      for (const auto& span :
           body.at("resourceSpans")[0].at("scopeSpans")[0].at("spans")) {
        spans[span.at("name")] = span;
      }
    }
    return spans;
  }

 private:
  Listener listener_;
};

}  // namespace fineserve::proxy_tests

#endif  // TESTS_PROXY_COLLECTOR_H_
