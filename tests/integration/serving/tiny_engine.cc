#include "tests/integration/serving/tiny_engine.h"

#include <gtest/gtest.h>

#include "tools/lab/stage/figures.h"

namespace fineserve::integration {

TinyEngine::TinyEngine(const std::string& program, const std::string& model,
                       std::vector<std::string> arguments,
                       const Process::Environment& environment)
    : TinyModel(model) {
  arguments.insert(arguments.begin(),
                   {program, "--model", model, "--port", "0", "--lines"});
  process_ = std::make_unique<Process>(arguments, environment);
  const std::string ready = process_->ReadLine();
  unsigned port = 0;
  EXPECT_EQ(sscanf(ready.c_str(), "ready port=%u", &port), 1)
      << ready << process_->Stderr();
  port_ = static_cast<uint16_t>(port);
}

std::string TinyModel::Body(const std::string& prompt, uint32_t tokens,
                            const std::string& more) const {
  return "{\"model\": \"" + model_ + "\", \"prompt\": \"" + prompt +
         "\", \"max_tokens\": " + std::to_string(tokens) +
         ", \"ignore_eos\": true" + more + "}";
}

std::string TinyModel::Expected(const std::string& prompt,
                                uint32_t tokens) const {
  return tinyserve::Text(
      tinyserve::ExpectedAnswer(model_, tinyserve::Tokenise(prompt),
                                {.most_tokens = tokens, .ignore_end = true}));
}

std::string TinyEngine::Complete(const std::string& prompt,
                                 uint32_t tokens) const {
  return TextOf(
      HttpClient(port_).Ask("POST", "/v1/completions", Body(prompt, tokens)));
}

void TinyEngine::HoldAfter(uint32_t tokens) {
  process_->Tell("hold " + std::to_string(tokens));
}

void TinyEngine::AwaitHold() {
  EXPECT_EQ(process_->ReadLine(), "ok holding") << process_->Stderr();
}

void TinyEngine::Continue() {
  EXPECT_EQ(process_->Ask("continue"), "ok continued") << process_->Stderr();
}

uint64_t TinyEngine::Stat(const std::string& name) {
  return static_cast<uint64_t>(stage::FigureIn(process_->Ask("stats"), name));
}

double TinyEngine::Metric(const std::string& name) const {
  const double value =
      stage::MetricOf(HttpClient(port_).Ask("GET", "/metrics").body, name);
  EXPECT_GE(value, 0) << name;
  return value;
}

std::string Prompt(uint32_t number, uint32_t tokens) {
  std::string prompt = "request " + std::to_string(number);
  for (uint32_t i = 2; i < tokens; ++i) prompt += " w" + std::to_string(i);
  return prompt;
}

std::string TextOf(const HttpResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  return JsonText(response.body, kTextOfAnswer);
}

}  // namespace fineserve::integration
