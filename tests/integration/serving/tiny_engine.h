#ifndef TESTS_INTEGRATION_SERVING_TINY_ENGINE_H_
#define TESTS_INTEGRATION_SERVING_TINY_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/site.h"
#include "tools/lab/engines/tinyserve/model/answer.h"
#include "tools/lab/stage/http_client.h"

namespace fineserve::integration {

// The answers that a tinyserve serving `model` must give, wherever it runs.
class TinyModel {
 public:
  explicit TinyModel(const std::string& model) : model_(model) {}

  const std::string& model() const { return model_; }
  // Returns the body of a request for an answer of `tokens` words.
  std::string Body(const std::string& prompt, uint32_t tokens,
                   const std::string& more = "") const;
  // The text that must come back.
  std::string Expected(const std::string& prompt, uint32_t tokens) const;

 private:
  const std::string model_;
};

// A tinyserve process.
class TinyEngine : public TinyModel {
 public:
  // Starts the engine and waits until it serves. `environment` decides about
  // device and preload.
  TinyEngine(const std::string& program, const std::string& model,
             std::vector<std::string> arguments,
             const Process::Environment& environment);

  Process& process() { return *process_; }
  uint16_t port() const { return port_; }

  // Sends a request over a new connection; returns "" and fails the test if
  // that fails.
  std::string Complete(const std::string& prompt, uint32_t tokens) const;

  // Makes the engine stop between two steps once an answer has so many tokens,
  // so that events between two tokens do not depend on time. No other request
  // may be sent before AwaitHold returns.
  void HoldAfter(uint32_t tokens);
  void AwaitHold();
  void Continue();

  // A number of `stats`.
  uint64_t Stat(const std::string& name);
  // Returns a value in /metrics, by the name without labels.
  double Metric(const std::string& name) const;

 private:
  std::unique_ptr<Process> process_;
  uint16_t port_ = 0;
};

// Returns a prompt of `tokens` tokens, different for each number.
std::string Prompt(uint32_t number, uint32_t tokens);

// JSON pointer to the words of a completion or an event.
inline constexpr char kTextOfAnswer[] = "/choices/0/text";

// Returns the text of a whole completion.
std::string TextOf(const HttpResponse& response);

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_SERVING_TINY_ENGINE_H_
