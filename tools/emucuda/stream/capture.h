#ifndef TOOLS_EMUCUDA_STREAM_CAPTURE_H_
#define TOOLS_EMUCUDA_STREAM_CAPTURE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "tools/emucuda/machine/annotated_mutex.h"
#include "tools/emucuda/machine/driver_types.h"
#include "tools/emucuda/stream/graph.h"

namespace fineserve::emucuda {

class Stream;

// A place in a capture: what a stream had added to it so far. An event that is
// recorded on a capturing stream holds one.
struct CapturedPoint;

// A capture under way: what would be submitted to its streams becomes nodes of
// its graph, in the order of the calls, which is one that every event of the
// program allows. A stream joins by waiting for an event of the capture.
// Thread-safe. It never ends twice: End takes it off all of its streams.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  // Begins to capture `stream`. ILLEGAL_STATE if it captures already.
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
  // What goes wrong in a capture shows at its end, too: the same error.
  CUresult Invalidate(CUresult why);

  CUresult Add(const Stream& stream, std::function<CUresult()> work);
  std::shared_ptr<const CapturedPoint> PointOf(const Stream& stream);
  // `stream` waits for the point; joins if it does not capture yet.
  CUresult Wait(const std::shared_ptr<Stream>& stream,
                const CapturedPoint& point);
  // `graph` gets null unless the capture is valid.
  CUresult End(const Stream& stream, driver::CUgraph* graph);

  // Whether calls that could end a capture are forbidden to this thread.
  bool ForbidsUnsafeCalls() const;

 private:
  struct Joined {
    std::weak_ptr<Stream> stream;
    uint64_t added = 0;    // nodes
    uint64_t awaited = 0;  // of these, by another stream
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

// Of a stream in that capture; null: in none.
driver::CUstreamCaptureStatus CaptureStatus(const Capture* capture);

// This thread's mode, which cuThreadExchangeStreamCaptureMode sets.
driver::CUstreamCaptureMode& ThreadCaptureMode();

// For calls that may end a capture elsewhere (allocations, questions about
// events): STREAM_CAPTURE_UNSUPPORTED, and the capture is invalid, if one is
// under way that this thread's mode does not allow them beside.
CUresult CheckUnsafeCall();

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_STREAM_CAPTURE_H_
