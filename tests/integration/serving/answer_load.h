#ifndef TESTS_INTEGRATION_SERVING_ANSWER_LOAD_H_
#define TESTS_INTEGRATION_SERVING_ANSWER_LOAD_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/serving/tiny_engine.h"
#include "tools/lab/workload/trace.h"

namespace fineserve::integration {

// End of a request.
enum class Ending : size_t {
  kRight,       // whole, and every token is what it must be
  kWrong,       // a token differs, or an end that says nothing of a break
  kRefused,     // 429 or 503, with the reason
  kBadGateway,  // 502
  kErrorEvent,  // a stream that ended with an error event
  kCut,         // the connection ended in the middle
  kLeft,        // it was the client that went away
};
inline constexpr size_t kEndings = 7;

// Threads that each send one request after another until End, and compare each
// answer, even a partial one that broke off, with what the model must answer.
// No two requests of this process have the same prompt. A wrong answer fails
// the test. The model must outlive this object.
class AnswerLoad {
 public:
  struct Shape {
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
    // If true, lengths vary up to the two above, every other answer is a
    // stream, and one client in 16 leaves: from a stream after its first event,
    // otherwise as soon as it has sent its request.
    bool mixed = false;
    // If not empty, requests follow these arrivals one after another, starting
    // again after the last, each with the arrival's lengths but at most those
    // above.
    std::vector<workload::Arrival> arrivals = {};
  };

  AnswerLoad(const TinyEngine& engine, int clients, Shape shape)
      : AnswerLoad(engine, engine.port(), clients, shape) {}
  // Through a proxy.
  AnswerLoad(const TinyModel& model, uint16_t port, int clients, Shape shape);
  AnswerLoad(const AnswerLoad&) = delete;
  AnswerLoad& operator=(const AnswerLoad&) = delete;
  ~AnswerLoad() { End(); }

  void AskNoMore() { ending_ = true; }
  // Calls AskNoMore, and waits for the answers to all requests sent so far.
  void End();

  int Count(Ending ending) const {
    return counts_[static_cast<size_t>(ending)];
  }
  int right() const { return Count(Ending::kRight); }
  int wrong() const { return Count(Ending::kWrong); }
  int refused() const { return Count(Ending::kRefused); }
  // Returns the number of answers lost with the server, where the client got an
  // error or could notice.
  int lost() const {
    return Count(Ending::kBadGateway) + Count(Ending::kErrorEvent) +
           Count(Ending::kCut);
  }

 private:
  struct Question {
    double at_s;  // from this load's beginning
    std::string prompt;
    uint32_t answer_tokens;
    bool stream;
    bool leaves;
  };

  Question Next();
  // False if it ends before.
  bool WaitUntil(double at_s) const;
  void AskOnce();
  Ending Ask(HttpClient* client, const Question& question) const;

  const TinyModel& model_;
  const uint16_t port_;
  const Shape shape_;
  const std::chrono::steady_clock::time_point began_ =
      std::chrono::steady_clock::now();
  std::atomic<size_t> arrived_ = 0;
  std::atomic<bool> ending_ = false;
  std::array<std::atomic<int>, kEndings> counts_ = {};
  std::vector<std::thread> threads_;
};

// Returns the number of answers that a test under contention compares:
// $FINESERVE_TEST_REQUESTS, or else `usual`.
int WantedAnswers(int usual);

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_SERVING_ANSWER_LOAD_H_
