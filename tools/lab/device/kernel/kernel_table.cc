#include "tools/lab/device/kernel/kernel_table.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/fingerprint.h"
#include "tools/lab/device/kernel/host_kernel.h"
#include "tools/lab/device/machine/annotated_mutex.h"
#include "tools/lab/device/virtual_memory/device_work.h"

namespace fineserve::emucuda {
namespace {

constexpr uint64_t kBufferBytes = uint64_t{1} << 20;

// An element type as the Itanium C++ ABI mangles it. No mangled name is a
// prefix of another, because every one is self-delimiting.
struct ElementType {
  std::string_view mangled;
  size_t bytes;
};
constexpr ElementType kElementTypes[] = {
    {"a", 1},  // signed char
    {"b", 1},  // bool
    {"c", 1},
    {"h", 1},  // unsigned char
    {"s", 2},  // short
    {"t", 2},
    {"i", 4},  // int
    {"j", 4},
    {"f", 4},
    {"l", 8},  // long
    {"m", 8},
    {"d", 8},
    {"N3c104HalfE", 2},
    {"N3c108BFloat16E", 2},
    {"N3c107complexINS_4HalfEEE", 4},
    {"N3c107complexIfEE", 8},
    {"N3c107complexIdEE", 16},
    {"N3c1011Float8_e5m2E", 1},
    {"N3c1013Float8_e4m3fnE", 1},
    {"N3c1015Float8_e4m3fnuzE", 1},
    {"N3c1015Float8_e5m2fnuzE", 1},
    {"N3c1014Float8_e8m0fnuE", 1},
};

size_t ElementBytes(std::string_view mangled) {
  const auto* const found =
      std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                   [&](const ElementType& type) {
                     return mangled.starts_with(type.mangled);
                   });
  return found == std::end(kElementTypes) ? 0 : found->bytes;
}

CUresult WriteElements(const AddressSpace& space, int device, CUdeviceptr to,
                       const std::vector<char>& element, uint64_t bytes) {
  std::vector<char> buffer(
      std::min(bytes, kBufferBytes / element.size() * element.size()));
  for (size_t i = 0; i < buffer.size(); i += element.size()) {
    memcpy(&buffer[i], element.data(), element.size());
  }
  while (bytes > 0) {
    const uint64_t piece = std::min<uint64_t>(bytes, buffer.size());
    const CUresult result = CopyIn(space, device, to, buffer.data(), piece);
    if (result != CUDA_SUCCESS) return result;
    to += piece;
    bytes -= piece;
  }
  return CUDA_SUCCESS;
}

// Runs at::native::vectorized_elementwise_kernel and
// unrolled_elementwise_kernel with FillFunctor<T> (PyTorch,
// aten/src/ATen/native/cuda/CUDALoops.cuh, FillKernel.cu): (int count, T value,
// char* to[1], …).
CUresult RunFill(const AddressSpace& space, int device,
                 const KernelArguments& arguments) {
  const auto count = ArgumentAs<int>(arguments[0]);
  const std::vector<char>& value = arguments[1];
  const auto to = ArgumentAs<CUdeviceptr>(arguments[2]);
  if (count <= 0) return CUDA_SUCCESS;
  const uint64_t bytes = static_cast<uint64_t>(count) * value.size();
  const bool zero =
      std::all_of(value.begin(), value.end(), [](char c) { return c == 0; });
  return zero ? Fill(space, device, to, {.value = 0, .width = 1}, bytes)
              : WriteElements(space, device, to, value, bytes);
}

// An element of 8 or 16 bytes is a pattern only if its words are all the same.
std::optional<Pattern> PatternOf(const std::vector<char>& element) {
  const uint32_t width =
      static_cast<uint32_t>(std::min(element.size(), sizeof(uint32_t)));
  Pattern pattern = {.value = 0, .width = width};
  memcpy(&pattern.value, element.data(), width);
  for (size_t at = width; at < element.size(); at += width) {
    if (memcmp(&element[at], element.data(), width) != 0) return std::nullopt;
  }
  return pattern;
}

std::vector<KernelFill> Fills(const KernelArguments& arguments) {
  const auto count = ArgumentAs<int>(arguments[0]);
  const std::optional<Pattern> pattern = PatternOf(arguments[1]);
  if (count <= 0 || !pattern) return {};
  const auto to = ArgumentAs<CUdeviceptr>(arguments[2]);
  return {{to, *pattern, static_cast<uint64_t>(count) * arguments[1].size()}};
}

// Finds PyTorch's kernel that fills with one value (torch.zeros, ones, full,
// fill_), by its mangled name. Returns nullopt for any other name.
std::optional<HostKernel> FindFillKernel(std::string_view name) {
  constexpr std::string_view kKernels[] = {"29vectorized_elementwise_kernelI",
                                           "27unrolled_elementwise_kernelI"};
  constexpr std::string_view kFunctor = "11FillFunctorI";
  const bool elementwise = std::any_of(
      std::begin(kKernels), std::end(kKernels),
      [&](auto kernel) { return name.find(kernel) != std::string_view::npos; });
  const size_t functor = name.find(kFunctor);
  if (!elementwise || functor == std::string_view::npos) return std::nullopt;
  const size_t bytes = ElementBytes(name.substr(functor + kFunctor.size()));
  if (bytes == 0) return std::nullopt;
  return HostKernel{.argument_bytes = {sizeof(int), bytes, sizeof(CUdeviceptr)},
                    .run = RunFill,
                    .fills = Fills};
}

using kernels::ByteRange;
using kernels::Fingerprint;
using kernels::kLaneBytes;
using kernels::RangeList;

// The host twin works on a copy, piece by piece. It reaches device memory
// through the device's file, where an unmapped address causes an error instead
// of SIGSEGV.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
static_assert(kPieceBytes % kLaneBytes == 0);

// Adds the lanes of `range` to `sum`. Each piece is at the same offset within a
// lane as on the device.
CUresult AddLanes(const AddressSpace& space, int device, const ByteRange& range,
                  Fingerprint* sum) {
  std::vector<kernels::Lane> lanes(kPieceBytes / kLaneBytes + 1);
  char* const piece =
      reinterpret_cast<char*>(lanes.data()) + range.address % kLaneBytes;
  for (uint64_t done = 0; done < range.bytes; done += kPieceBytes) {
    const uint64_t bytes = std::min(kPieceBytes, range.bytes - done);
    const CUresult result =
        CopyOut(space, device, piece, range.address + done, bytes);
    if (result != CUDA_SUCCESS) return result;
    *sum += kernels::LaneShare({reinterpret_cast<uint64_t>(piece), bytes},
                               done / kLaneBytes, 0, 1);
  }
  return CUDA_SUCCESS;
}

CUresult RunFingerprint(const AddressSpace& space, int device,
                        const KernelArguments& arguments) {
  const auto list = ArgumentAs<RangeList>(arguments[0]);
  const auto digests = ArgumentAs<CUdeviceptr>(arguments[1]);
  // With so many ranges, a device would read past its arguments.
  if (list.count > kernels::kRangesPerLaunch) {
    return driver::CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  for (uint32_t r = 0; r < list.count; ++r) {
    const CUdeviceptr at = digests + (list.first + r) * sizeof(Fingerprint);
    Fingerprint sum;
    CUresult result = CopyOut(space, device, &sum, at, sizeof(sum));
    sum += kernels::LengthTerm(list.ranges[r].bytes);
    if (result == CUDA_SUCCESS) {
      result = AddLanes(space, device, list.ranges[r], &sum);
    }
    if (result == CUDA_SUCCESS) {
      result = CopyIn(space, device, at, &sum, sizeof(sum));
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

// Finds one of FineServe's own kernels (kernels/*.cu), which the kernel's host
// twin runs. Returns nullopt for any other name.
std::optional<HostKernel> FindOwnKernel(std::string_view name) {
  if (name == kernels::kFingerprintKernel) {
    return HostKernel{
        .argument_bytes = {sizeof(RangeList), sizeof(CUdeviceptr)},
        .run = RunFingerprint,
        .fills = nullptr};
  }
  return std::nullopt;
}

// The kernels that programs registered. Never destroyed.
struct Registry {
  Mutex mutex;
  std::map<std::string, HostKernel, std::less<>> kernels
      EMUCUDA_GUARDED_BY(mutex);
};

Registry& Registered() {
  static Registry& registry = *new Registry;
  return registry;
}

}  // namespace

void RegisterHostKernel(std::string name, HostKernel kernel) {
  Registry& registry = Registered();
  const MutexLock lock(registry.mutex);
  registry.kernels[std::move(name)] = std::move(kernel);
}

std::optional<HostKernel> FindHostKernel(std::string_view mangled_name) {
  {
    Registry& registry = Registered();
    const MutexLock lock(registry.mutex);
    const auto found = registry.kernels.find(mangled_name);
    if (found != registry.kernels.end()) return found->second;
  }
  std::optional<HostKernel> own = FindOwnKernel(mangled_name);
  return own ? std::move(own) : FindFillKernel(mangled_name);
}
}  // namespace fineserve::emucuda
