#ifndef TESTS_INTEGRATION_ANSWER_LOAD_H_
#define TESTS_INTEGRATION_ANSWER_LOAD_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "tests/integration/tiny_engine.h"

namespace fineserve::integration {

// Threads that each ask one request after another, every one another prompt,
// until told to end, and compare each answer with what the engine's model must
// answer. The engine must outlive it, as an object.
class AnswerLoad {
 public:
  struct Shape {
    uint32_t prompt_tokens;
    uint32_t answer_tokens;
  };

  AnswerLoad(const TinyEngine& engine, int clients, Shape shape)
      : AnswerLoad(engine, engine.port(), clients, shape) {}
  // Through a proxy.
  AnswerLoad(const TinyEngine& engine, uint16_t port, int clients, Shape shape);
  AnswerLoad(const AnswerLoad&) = delete;
  AnswerLoad& operator=(const AnswerLoad&) = delete;
  ~AnswerLoad() { End(); }

  void End();

  int right() const { return right_; }
  int wrong() const { return wrong_; }
  int lost() const { return lost_; }        // the server went away
  int refused() const { return refused_; }  // 429 or 503

 private:
  void AskOnce();

  const TinyEngine& engine_;
  const uint16_t port_;
  const Shape shape_;
  std::atomic<bool> ending_ = false;
  std::atomic<uint32_t> next_ = 0;
  std::atomic<int> right_ = 0, wrong_ = 0, lost_ = 0, refused_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace fineserve::integration

#endif  // TESTS_INTEGRATION_ANSWER_LOAD_H_
