#ifndef TOOLS_EMUCUDA_STREAM_SHARED_EVENT_H_
#define TOOLS_EMUCUDA_STREAM_SHARED_EVENT_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "kernels/driver/cuda_structs.h"
#include "tools/emucuda/machine/driver_types.h"

namespace fineserve::emucuda {

// The state of an interprocess event: two counters in a memfd, which every
// process that opened the event maps. Recordings are numbered from 1. The
// recordings of a process that died count as finished, since its work is gone.
// Thread-safe.
class SharedEvent {
 public:
  // Returns null if the kernel refuses the memfd.
  static std::shared_ptr<SharedEvent> Create();
  // Returns null if the handle names no event of a living process of this user.
  static std::shared_ptr<SharedEvent> Import(
      const driver::CUipcEventHandle& handle);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  void Export(driver::CUipcEventHandle* handle) const;

  uint64_t Record();        // starts a new recording
  uint64_t Latest() const;  // 0 if never recorded
  void Finish(uint64_t recording);
  bool Finished(uint64_t recording) const;
  void Wait(uint64_t recording) const;

 private:
  struct Page {
    std::atomic<uint64_t> recorded;
    std::atomic<uint64_t> finished;
    std::atomic<uint32_t> recorder;  // pid
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  SharedEvent(Descriptor file, Page* page)
      : file_(std::move(file)), page_(page) {}
  static std::shared_ptr<SharedEvent> Map(Descriptor file);

  const Descriptor file_;
  Page* const page_;
};

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_STREAM_SHARED_EVENT_H_
