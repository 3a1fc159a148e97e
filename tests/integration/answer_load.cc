#include "tests/integration/answer_load.h"

#include <string>

namespace fineserve::integration {

AnswerLoad::AnswerLoad(const TinyEngine& engine, uint16_t port, int clients,
                       Shape shape)
    : engine_(engine), port_(port), shape_(shape) {
  for (int client = 0; client < clients; ++client) {
    threads_.emplace_back([this] {
      while (!ending_) AskOnce();
    });
  }
}

void AnswerLoad::End() {
  ending_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void AnswerLoad::AskOnce() {
  const std::string prompt = Prompt(next_++, shape_.prompt_tokens);
  HttpClient client(port_);
  if (!client.connected()) return Breathe();  // it was killed
  client.Send("POST", "/v1/completions",
              engine_.Body(prompt, shape_.answer_tokens));
  HttpResponse response = client.ReadHead();
  response.body = client.ReadBody();
  if (client.broken() || response.status == 502) {
    ++lost_;
  } else if (response.status == 429 || response.status == 503) {
    ++refused_;
    Breathe();
  } else if (TextOf(response) ==
             engine_.Expected(prompt, shape_.answer_tokens)) {
    ++right_;
  } else {
    ++wrong_;
  }
}

}  // namespace fineserve::integration
