#ifndef TESTS_CONFORMANCE_GATE_H_
#define TESTS_CONFORMANCE_GATE_H_

#include <condition_variable>
#include <mutex>

#include "tests/conformance/session.h"

namespace fineserve::conformance {

// Holds a stream at a host function until Open is called, so that tests control
// the order of events without clocks. The destructor opens the gate and waits
// until no stream is inside. Thread-safe.
class Gate {
 public:
  ~Gate() {
    Open();
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return blocked_ == 0; });
  }

  // Makes everything submitted to `stream` from now on wait for Open.
  CUresult Block(CUstream stream) {
    const CUresult result = Cuda().cuLaunchHostFunc(stream, &Gate::Enter, this);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (result == CUDA_SUCCESS) ++blocked_;
    return result;
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  static void Enter(void* gate) { static_cast<Gate*>(gate)->Wait(); }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    --blocked_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;  // both guarded by mutex_
  int blocked_ = 0;
};

}  // namespace fineserve::conformance

#endif  // TESTS_CONFORMANCE_GATE_H_
