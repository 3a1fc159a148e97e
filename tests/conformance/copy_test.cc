// Copies and fills that are not linear.

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "tests/conformance/gate.h"
#include "tests/conformance/isolation.h"
#include "tests/conformance/session.h"

namespace fineserve::conformance {
namespace {

CUdeviceptr Zeroed(const Session& gpu, uint64_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemsetD8_v2(address, 0, bytes), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  return address;
}

std::vector<uint8_t> Bytes(CUdeviceptr address, size_t count) {
  std::vector<uint8_t> bytes(count);
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(bytes.data(), address, count), CUDA_SUCCESS);
  return bytes;
}

CONFORMANCE_TEST(Copy, TwoDimensionsRespectPitchesAndOffsets) {
  const Session gpu;
  const CUdeviceptr device = Zeroed(gpu, 64);
  uint8_t host[4][8];
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 8; ++x) host[y][x] = static_cast<uint8_t>(10 * y + x);
  }
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = 8;
  copy.srcXInBytes = 2;
  copy.srcY = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = 16;
  copy.dstXInBytes = 5;
  copy.WidthInBytes = 3;
  copy.Height = 2;
  ASSERT_EQ(Cuda().cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  const auto bytes = Bytes(device, 64);
  std::vector<uint8_t> expected(64, 0);
  for (size_t y = 0; y < 2; ++y) {
    for (size_t x = 0; x < 3; ++x) {
      expected[y * 16 + 5 + x] = host[y + 1][x + 2];
    }
  }
  EXPECT_EQ(bytes, expected);
}

CONFORMANCE_TEST(Copy, ThreeDimensionsRespectSlices) {
  const Session gpu;
  const CUdeviceptr from = Zeroed(gpu, 128), to = Zeroed(gpu, 128);
  std::vector<uint8_t> bytes(128);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
  ASSERT_EQ(Cuda().cuMemcpyHtoD_v2(from, bytes.data(), bytes.size()),
            CUDA_SUCCESS);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.srcPitch = 8;
  copy.srcHeight = 4;
  copy.srcZ = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.dstDevice = to;
  copy.dstPitch = 16;
  copy.dstHeight = 2;
  copy.WidthInBytes = 4;
  copy.Height = 2;
  copy.Depth = 2;
  ASSERT_EQ(Cuda().cuMemcpy3DAsync_v2(&copy, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  const auto seen = Bytes(to, 128);
  for (size_t z = 0; z < 2; ++z) {
    for (size_t y = 0; y < 2; ++y) {
      for (size_t x = 0; x < 4; ++x) {
        EXPECT_EQ(seen[z * 32 + y * 16 + x], bytes[(z + 1) * 32 + y * 8 + x]);
      }
    }
  }
  EXPECT_EQ(seen[4], 0);
}

CONFORMANCE_TEST(Copy, RowsLongerThanThePitchAreRefused) {
  const Session gpu;
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = Zeroed(gpu, 64);
  copy.dstDevice = Zeroed(gpu, 64);
  copy.srcPitch = copy.dstPitch = 8;
  copy.WidthInBytes = 9;
  copy.Height = 2;
  EXPECT_EQ(Cuda().cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Copy, PeerCopyBetweenContextsOfOneDevice) {
  const Session gpu;
  const CUdeviceptr from = Zeroed(gpu, 64), to = Zeroed(gpu, 64);
  gpu.Write(from, 5);
  ASSERT_EQ(Cuda().cuMemcpyPeer(to, gpu.context(), from, gpu.context(), 64),
            CUDA_SUCCESS);
  EXPECT_EQ(gpu.Read(to), 5u);
}

CONFORMANCE_TEST(Fill, ElementsAreRepeated) {
  const Session gpu;
  const CUdeviceptr address = Zeroed(gpu, 16);
  ASSERT_EQ(Cuda().cuMemsetD16_v2(address + 2, 0x0201, 3), CUDA_SUCCESS);
  EXPECT_EQ(Bytes(address, 10),
            (std::vector<uint8_t>{0, 0, 1, 2, 1, 2, 1, 2, 0, 0}));
  EXPECT_EQ(Cuda().cuMemsetD16_v2(address + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

CONFORMANCE_TEST(Fill, RowsLeaveTheGapsAlone) {
  const Session gpu;
  const CUdeviceptr address = Zeroed(gpu, 16);
  ASSERT_EQ(Cuda().cuMemsetD2D8_v2(address, 4, 9, 2, 3), CUDA_SUCCESS);
  EXPECT_EQ(Bytes(address, 12),
            (std::vector<uint8_t>{9, 9, 0, 0, 9, 9, 0, 0, 9, 9, 0, 0}));
}

// A thread's default stream is not the context's default stream.
CONFORMANCE_TEST(PerThread, DefaultStreamsAreApartFromNonBlockingOnes) {
  const Session gpu;
  const CUdeviceptr address = Zeroed(gpu, 4);
  const CUstream other = NewStream(CU_STREAM_NON_BLOCKING);
  Gate gate;
  ASSERT_EQ(gate.Block(other), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32Async_ptsz(address, 6, 1, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize_ptsz(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamQuery(other), CUDA_ERROR_NOT_READY);
}

CONFORMANCE_TEST(PerThread, LegacyDefaultStreamWaitsForIt) {
  const Session gpu;
  Gate gate;
  ASSERT_EQ(gate.Block(reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD)),
            CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamQuery_ptsz(nullptr), CUDA_ERROR_NOT_READY);
  CUevent event = nullptr;
  ASSERT_EQ(Cuda().cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventRecord(event, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  gate.Open();
  EXPECT_EQ(Cuda().cuEventSynchronize(event), CUDA_SUCCESS);
}

CONFORMANCE_TEST(PerThread, EachThreadHasItsOwn) {
  const Session gpu;
  Gate gate;
  ASSERT_EQ(gate.Block(reinterpret_cast<CUstream>(CU_STREAM_PER_THREAD)),
            CUDA_SUCCESS);
  std::thread other([&] {
    EXPECT_EQ(Cuda().cuCtxSetCurrent(gpu.context()), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuStreamQuery_ptsz(nullptr), CUDA_SUCCESS);
  });
  other.join();
  EXPECT_EQ(Cuda().cuStreamQuery_ptsz(nullptr), CUDA_ERROR_NOT_READY);
}

}  // namespace
}  // namespace fineserve::conformance
