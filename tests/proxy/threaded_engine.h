#ifndef TESTS_PROXY_THREADED_ENGINE_H_
#define TESTS_PROXY_THREADED_ENGINE_H_

#include <atomic>
#include <list>
#include <string>
#include <thread>

#include "tests/proxy/peer.h"

namespace fineserve::proxy_tests {

// An engine's manner of handling requests.
enum class Manner {
  kGood,
  kErrs,        // 500 at once
  kErrsByHalf,  // every second time
  kErrsLate,    // an error event behind its head
  kResets,      // closes instead of an answer
  kHangs,       // takes connections and says nothing, to probes neither
};

// An engine under load: each connection is served in a separate thread until
// its other end closes, so a client must end first. A good answer is a stream
// of kAnswer.
class ThreadedEngine {
 public:
  // `at` outlives it.
  ThreadedEngine(Listener* at, Manner manner);
  ~ThreadedEngine();
  ThreadedEngine(const ThreadedEngine&) = delete;
  ThreadedEngine& operator=(const ThreadedEngine&) = delete;

  // Returns the number of requests that were answered or reset.
  int requests() const { return requests_; }

 private:
  void AcceptAll();
  void Serve(Peer* peer);
  // Empty: none.
  std::string Answer(int turn) const;

  Listener* const at_;
  const Manner manner_;
  std::atomic<bool> ends_{false};
  std::atomic<int> requests_{0};
  std::list<std::thread> connections_;  // of acceptor_ until it has ended
  std::thread acceptor_;
};

extern const char kAnswer[];

}  // namespace fineserve::proxy_tests

#endif  // TESTS_PROXY_THREADED_ENGINE_H_
