#include "tools/emucuda/kernel/own_kernel.h"

#include <algorithm>
#include <vector>

#include "kernels/fingerprint.h"
#include "kernels/zero.h"
#include "tools/emucuda/memory/device_work.h"

namespace fineserve::emucuda {
namespace {

using kernels::ByteRange;
using kernels::kLaneBytes;
using kernels::RangeList;

// The twins work on a copy, piece by piece. They reach device memory through
// its file, where an unmapped address is an error and not a SIGSEGV.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
static_assert(kPieceBytes % kLaneBytes == 0);

// A copy of some bytes of device memory, at the same offset within a lane.
class Piece {
 public:
  Piece(CUdeviceptr address, uint64_t bytes)
      : address_(address),
        bytes_(bytes),
        lanes_(bytes / kLaneBytes + 2),
        begin_(reinterpret_cast<char*>(lanes_.data()) + address % kLaneBytes) {}

  CUresult Read(const AddressSpace& space, int device) {
    return CopyOut(space, device, begin_, address_, bytes_);
  }
  CUresult Write(const AddressSpace& space, int device) const {
    return CopyIn(space, device, address_, begin_, bytes_);
  }
  ByteRange range() const {
    return {reinterpret_cast<uint64_t>(begin_), bytes_};
  }

 private:
  CUdeviceptr address_;
  uint64_t bytes_;
  std::vector<kernels::Lane> lanes_;
  char* begin_;
};

// Calls `work(piece, its offset)` for the bytes of a range, in order.
template <typename Work>
CUresult ForEachPiece(const AddressSpace& space, int device, ByteRange range,
                      Work work) {
  CUresult result = CUDA_SUCCESS;
  for (uint64_t done = 0; done < range.bytes && result == CUDA_SUCCESS;
       done += kPieceBytes) {
    Piece piece(range.address + done,
                std::min(kPieceBytes, range.bytes - done));
    result = piece.Read(space, device);
    if (result == CUDA_SUCCESS) result = work(piece, done);
  }
  return result;
}

// If it does not fit, a device would read past its arguments.
bool Fits(const RangeList& list) {
  return list.count <= kernels::kRangesPerLaunch;
}

CUresult RunZero(const AddressSpace& space, int device,
                 const KernelArguments& arguments) {
  const auto list = ArgumentAs<RangeList>(arguments[0]);
  if (!Fits(list)) return driver::CUDA_ERROR_ILLEGAL_ADDRESS;
  CUresult result = CUDA_SUCCESS;
  for (uint32_t r = 0; r < list.count && result == CUDA_SUCCESS; ++r) {
    result = ForEachPiece(space, device, list.ranges[r],
                          [&](const Piece& piece, uint64_t) {
                            kernels::ZeroShare(piece.range(), 0, 1);
                            return piece.Write(space, device);
                          });
  }
  return result;
}

std::vector<KernelFill> ZeroFills(const KernelArguments& arguments) {
  const auto list = ArgumentAs<RangeList>(arguments[0]);
  std::vector<KernelFill> fills;
  for (uint32_t r = 0; Fits(list) && r < list.count; ++r) {
    fills.push_back({list.ranges[r].address, {}, list.ranges[r].bytes});
  }
  return fills;
}

CUresult RunFingerprint(const AddressSpace& space, int device,
                        const KernelArguments& arguments) {
  const auto list = ArgumentAs<RangeList>(arguments[0]);
  const auto digest = ArgumentAs<CUdeviceptr>(arguments[1]);
  if (!Fits(list)) return driver::CUDA_ERROR_ILLEGAL_ADDRESS;
  uint64_t sum = 0;
  CUresult result = CopyOut(space, device, &sum, digest, sizeof(sum));
  for (uint32_t r = 0; r < list.count && result == CUDA_SUCCESS; ++r) {
    const uint64_t number = uint64_t{list.first} + r;
    sum += kernels::LengthTerm(number, list.ranges[r].bytes);
    result = ForEachPiece(
        space, device, list.ranges[r],
        [&](const Piece& piece, uint64_t offset) {
          sum += kernels::LaneShare(
              piece.range(),
              kernels::FirstPosition(number) + offset / kLaneBytes, 0, 1);
          return CUDA_SUCCESS;
        });
  }
  if (result != CUDA_SUCCESS) return result;
  return CopyIn(space, device, digest, &sum, sizeof(sum));
}

}  // namespace

std::optional<HostKernel> FindOwnKernel(std::string_view name) {
  if (name == kernels::kZeroKernel) {
    return HostKernel{.argument_bytes = {sizeof(RangeList)},
                      .run = RunZero,
                      .fills = ZeroFills};
  }
  if (name == kernels::kFingerprintKernel) {
    return HostKernel{
        .argument_bytes = {sizeof(RangeList), sizeof(CUdeviceptr)},
        .run = RunFingerprint,
        .fills = nullptr};
  }
  return std::nullopt;
}

}  // namespace fineserve::emucuda
