// Legacy sharing between processes: memory and events.

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/conformance/gate.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

constexpr uint64_t kIpcBytes = 4 * kMiB;

CUresult Open(const CUipcMemHandle& handle, CUdeviceptr* address) {
  return Cuda().cuIpcOpenMemHandle_v2(address, handle,
                                      CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

template <typename Handle>
void SendHandle(Channel& channel, const Handle& handle) {
  for (const char byte : handle.reserved) {
    channel.Send(static_cast<unsigned char>(byte));
  }
}

template <typename Handle>
Handle ReceiveHandle(Channel& channel) {
  Handle handle;
  for (char& byte : handle.reserved) {
    byte = static_cast<char>(channel.Receive());
  }
  return handle;
}

CONFORMANCE_TEST(Ipc, OpenedMemoryIsTheSameMemory) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    const auto handle = ReceiveHandle<CUipcMemHandle>(channel);
    CUdeviceptr address = 0;
    ASSERT_EQ(Open(handle, &address), CUDA_SUCCESS);
    EXPECT_EQ(gpu.Read(address), 11u);
    gpu.Write(address + kIpcBytes - 4, 12);
    EXPECT_EQ(Cuda().cuIpcCloseMemHandle(address), CUDA_SUCCESS);
    channel.Send(0);
  });
  const Session gpu;
  const CUdeviceptr address = Allocate(kIpcBytes);
  gpu.Write(address, 11);
  CUipcMemHandle handle;
  ASSERT_EQ(Cuda().cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
  SendHandle(peer.channel(), handle);
  peer.channel().Receive();
  EXPECT_EQ(gpu.Read(address + kIpcBytes - 4), 12u);
  peer.Join();
}

CONFORMANCE_TEST(Ipc, OpeningTwiceCountsAndYieldsTheSameAddress) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    const auto handle = ReceiveHandle<CUipcMemHandle>(channel);
    CUdeviceptr first = 0, second = 0;
    ASSERT_EQ(Open(handle, &first), CUDA_SUCCESS);
    ASSERT_EQ(Open(handle, &second), CUDA_SUCCESS);
    EXPECT_EQ(first, second);
    EXPECT_EQ(Cuda().cuIpcCloseMemHandle(first), CUDA_SUCCESS);
    gpu.Write(second, 13);  // still open once
    EXPECT_EQ(Cuda().cuIpcCloseMemHandle(second), CUDA_SUCCESS);
    EXPECT_NE(Cuda().cuIpcCloseMemHandle(second), CUDA_SUCCESS);
    channel.Send(0);
  });
  const Session gpu;
  CUipcMemHandle handle;
  ASSERT_EQ(Cuda().cuIpcGetMemHandle(&handle, Allocate(kIpcBytes)),
            CUDA_SUCCESS);
  SendHandle(peer.channel(), handle);
  peer.channel().Receive();
  peer.Join();
}

CONFORMANCE_TEST(Ipc, SmallNeighboursAreOpenedApart) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    CUdeviceptr first = 0, second = 0;
    ASSERT_EQ(Open(ReceiveHandle<CUipcMemHandle>(channel), &first),
              CUDA_SUCCESS);
    ASSERT_EQ(Open(ReceiveHandle<CUipcMemHandle>(channel), &second),
              CUDA_SUCCESS);
    EXPECT_EQ(gpu.Read(first), 1u);
    EXPECT_EQ(gpu.Read(second), 2u);
    channel.Send(0);
  });
  const Session gpu;
  for (uint32_t word : {1, 2}) {
    const CUdeviceptr address = Allocate(4096);
    gpu.Write(address, word);
    CUipcMemHandle handle;
    ASSERT_EQ(Cuda().cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
    SendHandle(peer.channel(), handle);
  }
  peer.channel().Receive();
  peer.Join();
}

CONFORMANCE_TEST(Ipc, ExporterCannotOpenItsOwnHandle) {
  const Session gpu;
  CUipcMemHandle handle;
  ASSERT_EQ(Cuda().cuIpcGetMemHandle(&handle, Allocate(kIpcBytes)),
            CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(Open(handle, &address), CUDA_ERROR_INVALID_CONTEXT);
}

CONFORMANCE_TEST(Ipc, VirtualMemoryIsRefused) {
  const Session gpu;
  CUipcMemHandle handle;
  EXPECT_EQ(
      Cuda().cuIpcGetMemHandle(&handle, gpu.NewMapping(gpu.granularity())),
      CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Ipc, PoolAndManagedMemoryAreRefused) {
  const Session gpu;
  CUipcMemHandle handle;
  CUdeviceptr address = 0;
  ASSERT_EQ(Cuda().cuMemAllocAsync(&address, kIpcBytes, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuIpcGetMemHandle(&handle, address),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cuda().cuMemAllocManaged(&address, kIpcBytes, CU_MEM_ATTACH_GLOBAL),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuIpcGetMemHandle(&handle, address),
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Ipc, HandleOfFreedMemoryIsRefused) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    CUdeviceptr address = 0;
    EXPECT_NE(Open(ReceiveHandle<CUipcMemHandle>(channel), &address),
              CUDA_SUCCESS);
    channel.Send(0);
  });
  const Session gpu;
  const CUdeviceptr address = Allocate(kIpcBytes);
  CUipcMemHandle handle;
  ASSERT_EQ(Cuda().cuIpcGetMemHandle(&handle, address), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemFree_v2(address), CUDA_SUCCESS);
  Allocate(kIpcBytes);  // takes the freed place, but was not exported
  SendHandle(peer.channel(), handle);
  peer.channel().Receive();
  peer.Join();
}

CONFORMANCE_TEST(Ipc, StreamWaitsForAnotherProcessesEvent) {
  Peer peer([](Channel& channel) {
    const Session gpu;
    CUevent event = nullptr;
    ASSERT_EQ(Cuda().cuIpcOpenEventHandle(
                  &event, ReceiveHandle<CUipcEventHandle>(channel)),
              CUDA_SUCCESS);
    const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
    ASSERT_EQ(Cuda().cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
    channel.Send(0);
    EXPECT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_SUCCESS);
    channel.Send(0);
  });
  const Session gpu;
  CUevent event = nullptr;
  ASSERT_EQ(Cuda().cuEventCreate(
                &event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS),
            CUDA_SUCCESS);
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  ASSERT_EQ(gate.Block(stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventRecord(event, stream), CUDA_SUCCESS);
  CUipcEventHandle handle;
  ASSERT_EQ(Cuda().cuIpcGetEventHandle(&handle, event), CUDA_SUCCESS);
  SendHandle(peer.channel(), handle);
  peer.channel().Receive();
  gate.Open();
  peer.channel().Receive();
  peer.Join();
}

CONFORMANCE_TEST(Ipc, InterprocessEventMustNotTime) {
  const Session gpu;
  CUevent event = nullptr;
  EXPECT_EQ(Cuda().cuEventCreate(&event, CU_EVENT_INTERPROCESS),
            CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Ipc, OrdinaryEventHasNoHandle) {
  const Session gpu;
  CUevent event = nullptr;
  ASSERT_EQ(Cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING),
            CUDA_SUCCESS);
  CUipcEventHandle handle;
  EXPECT_NE(Cuda().cuIpcGetEventHandle(&handle, event), CUDA_SUCCESS);
}

}  // namespace
}  // namespace fineserve::conformance
