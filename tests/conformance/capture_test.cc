// Stream capture: what becomes a graph, and what ends a capture.

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

// A stream that does not wait for the default stream, and two words of memory.
class Captured {
 public:
  Captured() {
    EXPECT_EQ(Cuda().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
              CUDA_SUCCESS);
    memory_ = gpu_.NewMapping(gpu_.granularity());
  }

  const Session& gpu() const { return gpu_; }
  CUstream stream() const { return stream_; }
  CUdeviceptr first() const { return memory_; }
  CUdeviceptr second() const { return memory_ + 4096; }

  void Begin(CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) const {
    EXPECT_EQ(Cuda().cuStreamBeginCapture_v2(stream_, mode), CUDA_SUCCESS);
  }
  CUresult End(CUgraph* graph) const {
    return Cuda().cuStreamEndCapture(stream_, graph);
  }
  CUresult Fill(CUdeviceptr to, unsigned word, CUstream stream) const {
    return Cuda().cuMemsetD32Async(to, word, 1, stream);
  }
  CUstreamCaptureStatus Status() const {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(Cuda().cuStreamIsCapturing(stream_, &status), CUDA_SUCCESS);
    return status;
  }
  // Expects that an error ended the capture and that the stream works again.
  void ExpectInvalid() const {
    EXPECT_EQ(Status(), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CUgraph graph = nullptr;
    EXPECT_EQ(End(&graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(graph, nullptr);
    EXPECT_EQ(Status(), CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT_EQ(Fill(memory_, 1, stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  void Launch(CUgraph graph) const {
    CUgraphExec exec = nullptr;
    ASSERT_EQ(Cuda().cuGraphInstantiateWithFlags(&exec, graph, 0),
              CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }

 private:
  Session gpu_;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
};

CUevent NewUntimedEvent() {
  CUevent event = nullptr;
  EXPECT_EQ(Cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING),
            CUDA_SUCCESS);
  return event;
}

// Makes a call in the mode that forbids only what conflicts with a capture.
CUresult Relaxed(const std::function<CUresult()>& call) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  EXPECT_EQ(Cuda().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  const CUresult result = call();
  EXPECT_EQ(Cuda().cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  return result;
}

CONFORMANCE_TEST(Capture, FillsAndCopiesRunAtEachLaunchAndNotBefore) {
  const Captured c;
  c.gpu().Write(c.first(), 1);
  c.gpu().Write(c.second(), 2);
  c.Begin();
  EXPECT_EQ(c.Fill(c.first(), 7, c.stream()), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemcpyDtoDAsync_v2(c.second(), c.first(), 4, c.stream()),
            CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(c.End(&graph), CUDA_SUCCESS);
  EXPECT_EQ(c.gpu().Read(c.first()), 1u);
  EXPECT_EQ(c.gpu().Read(c.second()), 2u);
  for (int launch = 0; launch < 2; ++launch) {
    c.gpu().Write(c.second(), 3);
    c.Launch(graph);
    EXPECT_EQ(c.gpu().Read(c.second()), 7u);
  }
}

CONFORMANCE_TEST(Capture, HostFunctionsAreCapturedToo) {
  const Captured c;
  int calls = 0;
  c.Begin();
  EXPECT_EQ(Cuda().cuLaunchHostFunc(
                c.stream(), [](void* n) { ++*static_cast<int*>(n); }, &calls),
            CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(c.End(&graph), CUDA_SUCCESS);
  EXPECT_EQ(calls, 0);
  c.Launch(graph);
  c.Launch(graph);
  EXPECT_EQ(calls, 2);
}

CONFORMANCE_TEST(Capture, StreamSaysThatItIsCaptured) {
  const Captured c;
  c.Begin();
  EXPECT_EQ(c.Status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t id = 0;
  CUgraph graph = nullptr;
  EXPECT_EQ(Cuda().cuStreamGetCaptureInfo_v2(c.stream(), &status, &id, &graph,
                                             nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(id, 0u);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(
      Cuda().cuStreamBeginCapture_v2(c.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL),
      CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(c.End(&graph), CUDA_SUCCESS);
  EXPECT_EQ(c.Status(), CU_STREAM_CAPTURE_STATUS_NONE);
}

CONFORMANCE_TEST(Capture, DefaultStreamCannotBeCaptured) {
  const Captured c;
  EXPECT_EQ(
      Cuda().cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
      CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

CONFORMANCE_TEST(Capture, SynchronisingItsStreamEndsIt) {
  const Captured c;
  c.Begin();
  EXPECT_EQ(Cuda().cuStreamSynchronize(c.stream()),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  c.ExpectInvalid();
}

CONFORMANCE_TEST(Capture, AllocationEndsItUnlessTheThreadIsRelaxed) {
  const Captured c;
  CUdeviceptr address = 0;
  c.Begin();
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&address, 4096),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  c.ExpectInvalid();
  c.Begin();
  EXPECT_EQ(Relaxed([&] { return Cuda().cuMemAlloc_v2(&address, 4096); }),
            CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(c.End(&graph), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Capture, QuestionAboutAnEventEndsItUnlessTheThreadIsRelaxed) {
  const Captured c;
  const CUevent event = NewUntimedEvent();
  EXPECT_EQ(Cuda().cuEventRecord(event, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  c.Begin();
  EXPECT_EQ(Relaxed([&] { return Cuda().cuEventQuery(event); }), CUDA_SUCCESS);
  EXPECT_EQ(c.Status(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EMULATED_ONLY("which queries end a capture");
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  c.ExpectInvalid();
}

struct UnsafeCall {
  const char* name;
  std::function<CUresult()> make;
  // True if the call frees memory. It then also waits for the context's
  // streams, which no capture mode allows.
  bool waits = false;
};

void ExpectEndsCaptureUnlessRelaxed(const Captured& c, const UnsafeCall& call) {
  SCOPED_TRACE(call.name);
  c.Begin();
  EXPECT_EQ(call.make(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  c.ExpectInvalid();
  if (call.waits) return;
  c.Begin();
  EXPECT_EQ(Relaxed(call.make), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(c.End(&graph), CUDA_SUCCESS);
}

CONFORMANCE_TEST(Capture, UnsafeCallsEndItUnlessTheThreadIsRelaxed) {
  EMULATED_ONLY("which calls are unsafe");
  const Captured c;
  const CUevent event = NewUntimedEvent();
  CUdeviceptr device = 0, managed = 0, made = 0;
  void *host = nullptr, *made_host = nullptr;
  size_t pitch = 0;
  ASSERT_EQ(Cuda().cuMemAlloc_v2(&device, 4096), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemAllocHost_v2(&host, 4096), CUDA_SUCCESS);
  const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemPoolProps props = {};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = here;
  CUmemoryPool pool = nullptr;
  alignas(4096) static char page[4096];
  // The calls of capture_rules.cc, with arguments that would be valid outside a
  // capture.
  const auto& cuda = Cuda();
  constexpr auto kAdvice = CU_MEM_ADVISE_SET_READ_MOSTLY;
  const UnsafeCall calls[] = {
      {"Alloc", [&] { return cuda.cuMemAlloc_v2(&made, 64); }},
      {"Pitch",
       [&] { return cuda.cuMemAllocPitch_v2(&made, &pitch, 64, 2, 4); }},
      {"Managed",
       [&] { return cuda.cuMemAllocManaged(&made, 64, CU_MEM_ATTACH_GLOBAL); }},
      {"Advise", [&] { return cuda.cuMemAdvise(managed, 4096, kAdvice, 0); }},
      {"Advise_v2",
       [&] { return cuda.cuMemAdvise_v2(managed, 4096, kAdvice, here); }},
      {"AllocHost", [&] { return cuda.cuMemAllocHost_v2(&made_host, 64); }},
      {"HostAlloc", [&] { return cuda.cuMemHostAlloc(&made_host, 64, 0); }},
      {"Register",
       [&] { return cuda.cuMemHostRegister_v2(page, sizeof(page), 0); }},
      {"Unregister", [&] { return cuda.cuMemHostUnregister(page); }, true},
      {"FreeHost", [&] { return cuda.cuMemFreeHost(host); }, true},
      {"Free(0)", [&] { return cuda.cuMemFree_v2(0); }},
      {"Free", [&] { return cuda.cuMemFree_v2(device); }, true},
      {"PoolCreate", [&] { return cuda.cuMemPoolCreate(&pool, &props); }},
      {"SetMemPool", [&] { return cuda.cuDeviceSetMemPool(0, pool); }},
      {"PoolDestroy", [&] { return cuda.cuMemPoolDestroy(pool); }},
      {"EventQuery", [&] { return cuda.cuEventQuery(event); }},
      {"EventSynchronize", [&] { return cuda.cuEventSynchronize(event); }},
  };
  for (const UnsafeCall& call : calls) ExpectEndsCaptureUnlessRelaxed(c, call);
}

CONFORMANCE_TEST(Capture, AttachingMemoryToItsStreamEndsIt) {
  const Captured c;
  CUdeviceptr managed = 0;
  ASSERT_EQ(Cuda().cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL),
            CUDA_SUCCESS);
  c.Begin();
  EXPECT_EQ(Cuda().cuStreamAttachMemAsync(c.stream(), managed, 0,
                                          CU_MEM_ATTACH_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  c.ExpectInvalid();
}

CONFORMANCE_TEST(Capture, AnotherThreadEndsOnlyAGlobalOne) {
  const Captured c;
  const auto allocate_elsewhere = [&] {
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      CUdeviceptr address = 0;
      Cuda().cuCtxSetCurrent(c.gpu().context());
      result = Cuda().cuMemAlloc_v2(&address, 4096);
    }).join();
    return result;
  };
  c.Begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(allocate_elsewhere(), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(c.End(&graph), CUDA_SUCCESS);
  c.Begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(allocate_elsewhere(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  c.ExpectInvalid();
}

CONFORMANCE_TEST(Capture, QuestionAboutACapturedEventEndsIt) {
  const Captured c;
  const CUevent event = NewUntimedEvent();
  c.Begin();
  EXPECT_EQ(Cuda().cuEventRecord(event, c.stream()), CUDA_SUCCESS);
  EXPECT_EQ(Relaxed([&] { return Cuda().cuEventQuery(event); }),
            CUDA_ERROR_CAPTURED_EVENT);
  c.ExpectInvalid();
}

CONFORMANCE_TEST(Capture, StreamJoinsAndRejoinsByEvents) {
  const Captured c;
  const CUstream other = NewStream(CU_STREAM_NON_BLOCKING);
  const CUevent fork = NewUntimedEvent(), join = NewUntimedEvent();
  c.gpu().Write(c.second(), 0);
  c.Begin();
  EXPECT_EQ(c.Fill(c.first(), 5, c.stream()), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventRecord(fork, c.stream()), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamWaitEvent(other, fork, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemcpyDtoDAsync_v2(c.second(), c.first(), 4, other),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventRecord(join, other), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamWaitEvent(c.stream(), join, 0), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(c.End(&graph), CUDA_SUCCESS);
  EXPECT_EQ(c.gpu().Read(c.second()), 0u);
  c.Launch(graph);
  EXPECT_EQ(c.gpu().Read(c.second()), 5u);
  EXPECT_EQ(c.Fill(c.second(), 6, other), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(c.gpu().Read(c.second()), 6u) << "the stream is its own again";
}

CONFORMANCE_TEST(Capture, WorkThatIsNotWaitedForIsRefusedAtTheEnd) {
  const Captured c;
  const CUstream other = NewStream(CU_STREAM_NON_BLOCKING);
  const CUevent fork = NewUntimedEvent();
  c.Begin();
  EXPECT_EQ(Cuda().cuEventRecord(fork, c.stream()), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamWaitEvent(other, fork, 0), CUDA_SUCCESS);
  EXPECT_EQ(c.Fill(c.first(), 5, other), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(c.End(&graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph, nullptr);
}

CONFORMANCE_TEST(Capture, EventFromOutsideEndsIt) {
  const Captured c;
  const CUevent outside = NewUntimedEvent();
  EXPECT_EQ(Cuda().cuEventRecord(outside, nullptr), CUDA_SUCCESS);
  c.Begin();
  EXPECT_EQ(Cuda().cuStreamWaitEvent(c.stream(), outside, 0),
            CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  c.ExpectInvalid();
}

CONFORMANCE_TEST(Capture, DefaultStreamEndsThatOfABlockingStream) {
  const Captured c;
  const CUstream blocking = NewStream(CU_STREAM_DEFAULT);
  ASSERT_EQ(
      Cuda().cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED),
      CUDA_SUCCESS);
  EXPECT_EQ(c.Fill(c.first(), 1, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CUgraph graph = nullptr;
  EXPECT_EQ(Cuda().cuStreamEndCapture(blocking, &graph),
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

CONFORMANCE_TEST(Capture, AnotherThreadMayEndOnlyARelaxedOne) {
  const Captured c;
  for (const auto mode :
       {CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL}) {
    c.Begin(mode);
    CUgraph graph = nullptr;
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      Cuda().cuCtxSetCurrent(c.gpu().context());
      result = c.End(&graph);
    }).join();
    EXPECT_EQ(result, mode == CU_STREAM_CAPTURE_MODE_RELAXED
                          ? CUDA_SUCCESS
                          : CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }
}

}  // namespace
}  // namespace fineserve::conformance
