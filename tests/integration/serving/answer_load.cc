#include "tests/integration/serving/answer_load.h"

#include <gtest/gtest.h>
#include <stdio.h>

#include <algorithm>

#include "tools/lab/process/from_environment.h"
#include "tools/lab/stage/json_value.h"

namespace fineserve::integration {
namespace {

// Number of the last request in this process.
std::atomic<uint32_t> last_number = 0;

Ending Wrong(const std::string& what) {
  ADD_FAILURE() << what;
  return Ending::kWrong;
}

Ending ReadRefusal(HttpClient* client) {
  const std::string body = client->ReadBody();
  if (client->broken()) return Ending::kCut;
  return JsonText(body, "/error/message").empty()
             ? Wrong("refused without a reason: " + body)
             : Ending::kRefused;
}

Ending ReadWhole(HttpClient* client, HttpResponse head,
                 const std::string& expected) {
  head.body = client->ReadBody();
  if (client->broken()) return Ending::kCut;
  const std::string text = TextOf(head);
  return text == expected ? Ending::kRight
                          : Wrong(head.body + " is not " + expected);
}

// Reads the end of a stream after its last event. Anything further would belong
// to the next answer.
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
    // A killed engine may have cut its last event. If an answer that goes on
    // had lost a token, its text would show it.
    if (!IsJson(*event)) continue;
    if (JsonAt(*event, "/error") != "") {
      fprintf(stderr, "a stream ended with %s\n", event->c_str());
      return Ending::kErrorEvent;
    }
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

AnswerLoad::Question AnswerLoad::Next() {
  const uint32_t number = ++last_number;
  Question question = {0, "", shape_.answer_tokens,
                       shape_.mixed && number % 2 == 0,
                       shape_.mixed && number / 2 % 16 == 0};
  uint32_t prompt_tokens = shape_.prompt_tokens;
  if (!shape_.arrivals.empty()) {
    const size_t place = arrived_++, count = shape_.arrivals.size();
    const workload::Arrival& arrival = shape_.arrivals[place % count];
    question.at_s = arrival.at_s + static_cast<double>(place / count) *
                                       shape_.arrivals.back().at_s;
    prompt_tokens = std::min(prompt_tokens, arrival.lengths.input);
    question.answer_tokens =
        std::min(question.answer_tokens, arrival.lengths.output);
  } else if (shape_.mixed) {
    const uint32_t any = number * 2654435761u >> 8;  // Knuth's hash
    question.answer_tokens = 1 + any / prompt_tokens % question.answer_tokens;
    prompt_tokens = 1 + any % prompt_tokens;
  }
  question.prompt = Prompt(number, prompt_tokens);
  return question;
}

bool AnswerLoad::WaitUntil(double at_s) const {
  const auto due = began_ + std::chrono::duration<double>(at_s);
  while (!ending_ && std::chrono::steady_clock::now() < due) Breathe();
  return !ending_;
}

void AnswerLoad::AskOnce() {
  const Question question = Next();
  if (!WaitUntil(question.at_s)) return;
  HttpClient client(port_);
  if (!client.connected()) return Breathe();  // it was killed
  const Ending ending = Ask(&client, question);
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
  if (head.status == 429 || head.status == 503) return ReadRefusal(client);
  if (head.status == 502) return Ending::kBadGateway;
  if (head.status != 200) return Wrong(client->ReadBody());
  const std::string expected =
      model_.Expected(question.prompt, question.answer_tokens);
  return question.stream ? ReadStream(client, expected, question.leaves)
                         : ReadWhole(client, head, expected);
}

int WantedAnswers(int usual) {
  return process::FromEnvironment("FINESERVE_TEST_REQUESTS", usual);
}

}  // namespace fineserve::integration
