#ifndef TOOLS_LAB_DEVICE_STREAM_CONTEXT_H_
#define TOOLS_LAB_DEVICE_STREAM_CONTEXT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/stream/stream.h"

namespace fineserve::emucuda {

// A device context: its streams, and whether it is alive. It is never deleted,
// so that a stale CUcontext is recognised and never dereferenced; it takes a
// few hundred bytes, and programs create few contexts. Thread-safe.
class Context {
 public:
  explicit Context(int device);

  int device() const { return device_; }
  uint64_t id() const { return id_; }  // unique in this process

  // A limit of this context; 0 means the device's limit.
  size_t limit(unsigned which) const { return limits_[which]; }
  void SetLimit(unsigned which, size_t value) { limits_[which] = value; }
  static constexpr unsigned kLimits = 10;  // CU_LIMIT_MAX of CUDA 13

  // Returns false if access is already in the requested state. `device` is the
  // peer's device.
  bool SetPeerAccess(int device, bool enabled) {
    return peers_[device].exchange(enabled) != enabled;
  }

  bool alive() const { return alive_.load(std::memory_order_acquire); }
  // Waits for all streams, then makes the context refuse further use.
  void Destroy();
  // Makes a primary context alive again; it keeps its handle from one life to
  // the next.
  void Revive();

  // Returns the first error that killed the context, or CUDA_SUCCESS.
  CUresult sticky() const { return sticky_.load(std::memory_order_acquire); }
  void Fail(CUresult error);

  std::shared_ptr<Stream> default_stream() const;
  // Returns the calling thread's own default stream, which is a blocking
  // stream.
  std::shared_ptr<Stream> per_thread_stream();
  std::shared_ptr<Stream> CreateStream(bool blocking, int priority = 0);

  // Appends an operation to a stream of this context, in the order that CUDA's
  // legacy rule demands: an operation on the default stream waits for all
  // earlier operations on blocking streams, and vice versa.
  CUresult Submit(Stream& stream, Operation operation);
  // Submits device work. The work is skipped once the context is dead, and an
  // error that it returns kills the context. On a stream that is being
  // captured, the work becomes a node of the graph; any other operation on such
  // a stream invalidates the capture.
  CUresult SubmitWork(Stream& stream, std::function<CUresult()> work);
  // Does the same and waits for the work. Returns the sticky error, if any.
  CUresult RunWork(Stream& stream, std::function<CUresult()> work);

  // For a stream: covers the work that was submitted to `stream` and, by the
  // legacy rule, before it.
  CUresult Synchronize(Stream& stream);
  bool Idle(Stream& stream);
  CUresult Synchronize();
  // Waits for all submitted work; captures continue.
  void AwaitWork() const;

 private:
  std::shared_ptr<Stream> NewStream(bool blocking, int priority)
      EMUCUDA_REQUIRES(mutex_);
  CUresult CheckCaptures(const Stream& stream) EMUCUDA_REQUIRES(mutex_);
  std::vector<Dependency> LegacyOrder(const Stream& stream)
      EMUCUDA_REQUIRES(mutex_);
  std::vector<std::shared_ptr<Stream>> Streams() const;

  const int device_;
  const uint64_t id_;
  // Independent settings without effect in the emulator.
  std::array<std::atomic<size_t>, kLimits> limits_ = {};
  std::array<std::atomic<bool>, kMaxDevices> peers_ = {};
  // Destroy, Revive and Fail store with release; the getters above load with
  // acquire.
  std::atomic<bool> alive_{true};
  std::atomic<CUresult> sticky_{CUDA_SUCCESS};

  // Held while a submission looks at the other streams and then pushes, so that
  // submissions have one order. Never held while an operation runs.
  mutable Mutex mutex_;
  std::shared_ptr<Stream> default_stream_ EMUCUDA_GUARDED_BY(mutex_);
  // The other streams; closed streams stay until they are idle.
  std::vector<std::weak_ptr<Stream>> streams_ EMUCUDA_GUARDED_BY(mutex_);
  // A thread may inherit the stream of a dead thread that had the same id.
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread_streams_
      EMUCUDA_GUARDED_BY(mutex_);
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_STREAM_CONTEXT_H_
