#include "tests/integration/serving/answer_load.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/integration/json_value.h"

namespace fineserve::integration {
namespace {

// Of requests, in this process.
std::atomic<uint32_t> last_number = 0;

Ending Wrong(const std::string& what) {
  ADD_FAILURE() << what;
  return Ending::kWrong;
}

Ending ReadWhole(HttpClient* client, HttpResponse head,
                 const std::string& expected) {
  head.body = client->ReadBody();
  if (client->broken()) return Ending::kCut;
  const std::string text = TextOf(head);
  return text == expected ? Ending::kRight
                          : Wrong(head.body + " is not " + expected);
}

// At the last event. Anything after it would belong to the next answer.
Ending EndOfStream(HttpClient* client, const std::string& text,
                   const std::string& expected) {
  if (text != expected) return Wrong("[DONE] after " + text);
  if (const auto more = client->ReadEvent()) return Wrong("then " + *more);
  return client->broken() ? Ending::kCut : Ending::kRight;
}

Ending ReadStream(HttpClient* client, const std::string& expected,
                  bool leaves) {
  std::string text;
  while (const auto event = client->ReadEvent()) {
    if (*event == "[DONE]") return EndOfStream(client, text, expected);
    // The last event of a killed engine may be cut. If a token were lost in an
    // answer that goes on, the text would show it.
    if (!IsJson(*event)) continue;
    if (JsonAt(*event, "/error") != "") return Ending::kErrorEvent;
    if (JsonAt(*event, kTextOfAnswer) == "") {
      return Wrong("no token: " + *event);
    }
    text += JsonText(*event, kTextOfAnswer);
    if (expected.compare(0, text.size(), text) != 0) return Wrong(text);
    if (leaves) return Ending::kLeft;
  }
  return client->broken() ? Ending::kCut : Wrong("no end after " + text);
}

}  // namespace

AnswerLoad::AnswerLoad(const TinyModel& model, uint16_t port, int clients,
                       Shape shape)
    : model_(model), port_(port), shape_(shape) {
  for (int client = 0; client < clients; ++client) {
    threads_.emplace_back([this] {
      while (!ending_) AskOnce();
    });
  }
}

void AnswerLoad::End() {
  AskNoMore();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

AnswerLoad::Question AnswerLoad::Next() const {
  const uint32_t number = ++last_number;
  if (!shape_.mixed) {
    return {Prompt(number, shape_.prompt_tokens), shape_.answer_tokens, false,
            false};
  }
  const uint32_t any = number * 2654435761u >> 8;  // Knuth's hash
  return {Prompt(number, 1 + any % shape_.prompt_tokens),
          1 + any / shape_.prompt_tokens % shape_.answer_tokens,
          number % 2 == 0, number / 2 % 16 == 0};
}

void AnswerLoad::AskOnce() {
  HttpClient client(port_);
  if (!client.connected()) return Breathe();  // it was killed
  const Ending ending = Ask(&client, Next());
  ++counts_[static_cast<size_t>(ending)];
  if (ending == Ending::kRefused) Breathe();
}

Ending AnswerLoad::Ask(HttpClient* client, const Question& question) const {
  client->Send("POST", "/v1/completions",
               model_.Body(question.prompt, question.answer_tokens,
                           question.stream ? ", \"stream\": true" : ""));
  if (question.leaves && !question.stream) return Ending::kLeft;
  const HttpResponse head = client->ReadHead();
  if (client->broken()) return Ending::kCut;
  if (head.status == 429 || head.status == 503) return Ending::kRefused;
  if (head.status == 502) return Ending::kBadGateway;
  if (head.status != 200) return Wrong(client->ReadBody());
  const std::string expected =
      model_.Expected(question.prompt, question.answer_tokens);
  return question.stream ? ReadStream(client, expected, question.leaves)
                         : ReadWhole(client, head, expected);
}

int WantedAnswers(int usual) {
  const char* wanted = getenv("FINESERVE_TEST_REQUESTS");
  return wanted == nullptr ? usual : atoi(wanted);
}

}  // namespace fineserve::integration
