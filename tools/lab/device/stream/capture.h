#ifndef TOOLS_LAB_DEVICE_STREAM_CAPTURE_H_
#define TOOLS_LAB_DEVICE_STREAM_CAPTURE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/machine/driver_types.h"
#include "tools/lab/device/stream/graph.h"

namespace fineserve::emucuda {

class Stream;

// A point in a capture: how much a stream had added to the capture. An event
// that is recorded on a capturing stream holds such a point.
struct CapturedPoint;

// A capture in progress. Work that would be submitted to the capture's streams
// becomes nodes of its graph, in the order of the calls; this order satisfies
// every event wait in the program. A stream joins by waiting for an event of
// the capture. A capture ends only once, because End detaches it from all of
// its streams. Thread-safe.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  // Begins to capture `stream`. Returns ILLEGAL_STATE if the stream is already
  // being captured.
  static CUresult Begin(const std::shared_ptr<Stream>& stream,
                        driver::CUstreamCaptureMode mode);

  Capture(const std::shared_ptr<Stream>& origin,
          driver::CUstreamCaptureMode mode);

  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  uint64_t id() const { return id_; }
  bool valid() const { return valid_.load(std::memory_order_acquire); }
  driver::CUgraph handle() const { return handle_; }
  // Marks the capture as failed, so that its end fails, too. Returns `why`.
  CUresult Invalidate(CUresult why);

  CUresult Add(const Stream& stream, std::function<CUresult()> work);
  std::shared_ptr<const CapturedPoint> PointOf(const Stream& stream);
  // Makes `stream` wait for the point; the stream joins the capture if it is
  // not in one yet.
  CUresult Wait(const std::shared_ptr<Stream>& stream,
                const CapturedPoint& point);
  // Sets `graph` to null unless the capture is valid.
  CUresult End(const Stream& stream, driver::CUgraph* graph);

  // True if this thread must not make calls that could end a capture.
  bool ForbidsUnsafeCalls() const;

 private:
  struct Joined {
    std::weak_ptr<Stream> stream;
    uint64_t added = 0;    // nodes
    uint64_t awaited = 0;  // how many of them another stream waits for
  };

  const uint64_t id_;
  const Stream* const origin_;
  const driver::CUstreamCaptureMode mode_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  const driver::CUgraph handle_;
  std::atomic<bool> valid_{true};
  Mutex mutex_;
  std::map<const Stream*, Joined> streams_ EMUCUDA_GUARDED_BY(mutex_);
};

struct CapturedPoint {
  std::weak_ptr<Capture> capture;
  const Stream* stream = nullptr;
  uint64_t added = 0;
};

// Returns the capture status of a stream that is in `capture`, or in no capture
// if that is null.
driver::CUstreamCaptureStatus CaptureStatus(const Capture* capture);

// The calling thread's mode, which cuThreadExchangeStreamCaptureMode sets.
driver::CUstreamCaptureMode& ThreadCaptureMode();

// Checks a call for which IsUnsafeDuringCapture is true (capture_rules.h). If
// this thread's mode forbids the call during a capture that is in progress,
// invalidates that capture and returns STREAM_CAPTURE_UNSUPPORTED.
CUresult CheckUnsafeCall();

}  // namespace fineserve::emucuda

#endif  // TOOLS_LAB_DEVICE_STREAM_CAPTURE_H_
