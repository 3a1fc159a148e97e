#include "tools/lab/device/virtual_memory/device_work.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace fineserve::emucuda {
namespace {

constexpr uint64_t kPage = 4096;
// Heuristic: for fewer bytes, writing zeros is cheaper than punching a hole.
constexpr uint64_t kHoleBytes = 16 * kPage;
constexpr uint64_t kBufferBytes = uint64_t{1} << 20;

CUresult TransferError() {
  return errno == EFAULT ? CUDA_ERROR_ILLEGAL_ADDRESS
                         : CUDA_ERROR_LAUNCH_FAILED;
}

// Calls `transfer` (pread or pwrite) until all bytes are moved.
template <typename Transfer, typename Byte>
CUresult TransferAll(Transfer transfer, int fd, uint64_t offset, Byte* memory,
                     uint64_t bytes) {
  while (bytes > 0) {
    const ssize_t done =
        transfer(fd, memory, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return TransferError();
    offset += static_cast<uint64_t>(done);
    memory += done;
    bytes -= static_cast<uint64_t>(done);
  }
  return CUDA_SUCCESS;
}

CUresult WriteAll(int fd, uint64_t offset, const char* from, uint64_t bytes) {
  return TransferAll(pwrite, fd, offset, from, bytes);
}

CUresult ReadAll(int fd, uint64_t offset, char* to, uint64_t bytes) {
  return TransferAll(pread, fd, offset, to, bytes);
}

CUresult WriteRepeatedly(int fd, uint64_t offset,
                         const std::vector<char>& buffer, uint64_t bytes) {
  while (bytes > 0) {
    const uint64_t piece = std::min<uint64_t>(bytes, buffer.size());
    if (const CUresult error = WriteAll(fd, offset, buffer.data(), piece)) {
      return error;
    }
    offset += piece;
    bytes -= piece;
  }
  return CUDA_SUCCESS;
}

std::vector<char> Repeat(Pattern pattern, uint64_t bytes) {
  std::vector<char> buffer(std::min(bytes, kBufferBytes));
  if (pattern.width == 1) {
    memset(buffer.data(), static_cast<int>(pattern.value), buffer.size());
    return buffer;
  }
  // The buffer holds whole patterns: it is 1 MiB long, or as long as the fill.
  for (size_t i = 0; i < buffer.size(); i += pattern.width) {
    memcpy(&buffer[i], &pattern.value, pattern.width);
  }
  return buffer;
}

// Zeroes [offset, offset + bytes): frees the whole pages and writes zeros at
// the edges.
CUresult Zero(int fd, uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  const uint64_t first = (offset + kPage - 1) & ~(kPage - 1);
  const uint64_t last = end & ~(kPage - 1);
  const std::vector<char> zeros(std::min(bytes, kHoleBytes + 2 * kPage));
  if (bytes < kHoleBytes || last < first + kHoleBytes) {
    return WriteRepeatedly(fd, offset, zeros, bytes);
  }
  if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(first),
                static_cast<off_t>(last - first)) != 0) {
    return TransferError();
  }
  const CUresult head = WriteRepeatedly(fd, offset, zeros, first - offset);
  const CUresult tail = WriteRepeatedly(fd, last, zeros, end - last);
  return head != CUDA_SUCCESS ? head : tail;
}

// Calls `work(segment)` for each piece of a device range, in order.
template <typename Work>
CUresult ForEachSegment(const AddressSpace& space, int device,
                        CUdeviceptr address, uint64_t bytes,
                        driver::CUmemAccess_flags access, Work work) {
  std::vector<Segment> segments;
  CUresult result = space.Resolve(device, address, bytes, access, &segments);
  for (const Segment& segment : segments) {
    if (result != CUDA_SUCCESS) break;
    result = work(segment);
  }
  return result;
}

int File(const Segment& segment) { return segment.object->allocation->fd(); }

}  // namespace

CUresult Fill(const AddressSpace& space, int device, CUdeviceptr to,
              Pattern pattern, uint64_t bytes) {
  std::vector<char> buffer;
  if (pattern.value != 0) buffer = Repeat(pattern, bytes);
  return ForEachSegment(
      space, device, to, bytes, driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
      [&](const Segment& segment) {
        if (pattern.value == 0) {
          return Zero(File(segment), segment.file_offset, segment.bytes);
        }
        return WriteRepeatedly(File(segment), segment.file_offset, buffer,
                               segment.bytes);
      });
}

CUresult CopyIn(const AddressSpace& space, int device, CUdeviceptr to,
                const void* from, uint64_t bytes) {
  const char* next = static_cast<const char*>(from);
  return ForEachSegment(space, device, to, bytes,
                        driver::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                        [&](const Segment& segment) {
                          const char* piece = next;
                          next += segment.bytes;
                          return WriteAll(File(segment), segment.file_offset,
                                          piece, segment.bytes);
                        });
}

CUresult CopyOut(const AddressSpace& space, int device, void* to,
                 CUdeviceptr from, uint64_t bytes) {
  char* next = static_cast<char*>(to);
  return ForEachSegment(space, device, from, bytes,
                        driver::CU_MEM_ACCESS_FLAGS_PROT_READ,
                        [&](const Segment& segment) {
                          char* piece = next;
                          next += segment.bytes;
                          if (segment.object->allocation->MeetsBadPage(
                                  segment.file_offset, segment.bytes)) {
                            return kEccUncorrectable;
                          }
                          return ReadAll(File(segment), segment.file_offset,
                                         piece, segment.bytes);
                        });
}

CUresult CopyWithin(const AddressSpace& space, int device, CUdeviceptr to,
                    CUdeviceptr from, uint64_t bytes) {
  std::vector<char> buffer(std::min(bytes, kBufferBytes));
  while (bytes > 0) {
    const uint64_t piece = std::min<uint64_t>(bytes, buffer.size());
    CUresult result = CopyOut(space, device, buffer.data(), from, piece);
    if (result == CUDA_SUCCESS) {
      result = CopyIn(space, device, to, buffer.data(), piece);
    }
    if (result != CUDA_SUCCESS) return result;
    to += piece;
    from += piece;
    bytes -= piece;
  }
  return CUDA_SUCCESS;
}

CUresult Copy(const AddressSpace& space, int device, Place to, Place from,
              uint64_t bytes) {
  void* const host_to = reinterpret_cast<void*>(to.address);
  const void* const host_from = reinterpret_cast<const void*>(from.address);
  if (to.on_device && from.on_device) {
    return CopyWithin(space, device, to.address, from.address, bytes);
  }
  if (to.on_device) return CopyIn(space, device, to.address, host_from, bytes);
  if (from.on_device) {
    return CopyOut(space, device, host_to, from.address, bytes);
  }
  memmove(host_to, host_from, bytes);
  return CUDA_SUCCESS;
}

CUresult FillPlace(const AddressSpace& space, int device, Place to,
                   Pattern pattern, uint64_t bytes) {
  if (to.on_device) return Fill(space, device, to.address, pattern, bytes);
  char* next = reinterpret_cast<char*>(to.address);
  for (uint64_t done = 0; done < bytes; done += pattern.width) {
    memcpy(next + done, &pattern.value, pattern.width);
  }
  return CUDA_SUCCESS;
}

CUresult CopyBox(const AddressSpace& space, int device, const Box& box) {
  for (uint64_t z = 0; z < box.depth; ++z) {
    for (uint64_t y = 0; y < box.height; ++y) {
      Place to = box.to, from = box.from;
      to.address += z * box.to_slice + y * box.to_pitch;
      from.address += z * box.from_slice + y * box.from_pitch;
      if (const CUresult error = Copy(space, device, to, from, box.width)) {
        return error;
      }
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace fineserve::emucuda
