#ifndef TESTS_ENGINES_HELD_STREAM_H_
#define TESTS_ENGINES_HELD_STREAM_H_

// The default stream, which tests can keep busy. One thread.

#include <string>

namespace stock_engine {

class HeldStream {
 public:
  // Work that does not end before Resume, and an event behind it.
  static void Stall();
  static void Resume();

  // Captures a fill in a separate stream, in CUDA's default mode, and waits for
  // another stream during the capture.
  static void CaptureAndWait();

  // Waits for "stream", "context" or "event" (the one of the last Stall), or
  // asks whether "stream" or "event" is done, and for nothing else. False if
  // `what` is something else.
  static bool Wait(const std::string& what, bool ask);
};

}  // namespace stock_engine

#endif  // TESTS_ENGINES_HELD_STREAM_H_
