// Exported functions: copies and fills.

#include "tools/lab/device/cudart/registered_code.h"
#include "tools/lab/device/cudart/runtime_api.h"

namespace fineserve::cudart {
namespace {

cudaError_t Copy(void* to, const void* from, size_t bytes,
                 cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return Ask<&DriverCalls::cuMemcpyHtoD>(Address(to), from, bytes);
    case cudaMemcpyDeviceToHost:
      return Ask<&DriverCalls::cuMemcpyDtoH>(to, Address(from), bytes);
    case cudaMemcpyDeviceToDevice:
      return Ask<&DriverCalls::cuMemcpyDtoD>(Address(to), Address(from), bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return Ask<&DriverCalls::cuMemcpy>(Address(to), Address(from), bytes);
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t CopyAsync(void* to, const void* from, size_t bytes,
                      cudaMemcpyKind kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return Ask<&DriverCalls::cuMemcpyHtoDAsync>(Address(to), from, bytes,
                                                  stream);
    case cudaMemcpyDeviceToHost:
      return Ask<&DriverCalls::cuMemcpyDtoHAsync>(to, Address(from), bytes,
                                                  stream);
    case cudaMemcpyDeviceToDevice:
      return Ask<&DriverCalls::cuMemcpyDtoDAsync>(Address(to), Address(from),
                                                  bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return Ask<&DriverCalls::cuMemcpyAsync>(Address(to), Address(from), bytes,
                                              stream);
  }
  return cudaErrorInvalidMemcpyDirection;
}

// Calls `row(offset in `to`, offset in `from`)` for every row until one fails.
template <typename Row>
cudaError_t ForEachRow(size_t to_pitch, size_t from_pitch, size_t width_bytes,
                       size_t rows, Row row) {
  if (width_bytes > to_pitch || width_bytes > from_pitch) {
    return cudaErrorInvalidPitchValue;
  }
  for (size_t i = 0; i < rows; ++i) {
    const cudaError_t error = row(i * to_pitch, i * from_pitch);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

char* At(void* base, size_t offset) {
  return static_cast<char*>(base) + offset;
}

const char* At(const void* base, size_t offset) {
  return static_cast<const char*>(base) + offset;
}

// Runs `body(address)` on a part of a variable, if [offset, offset + bytes) is
// inside the variable.
template <typename Body>
cudaError_t CallOnSymbol(const void* symbol, size_t bytes, size_t offset,
                         Body body) {
  return CallInContext([&] {
    Variable variable;
    const cudaError_t error = FindVariable(symbol, &variable);
    if (error != cudaSuccess) return error;
    if (offset > variable.bytes || bytes > variable.bytes - offset) {
      return cudaErrorInvalidValue;
    }
    return body(At(variable.address, offset));
  });
}

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind) {
  return CallInContext([&] { return Copy(to, from, bytes, kind); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return CallInContext(
      [&] { return CopyAsync(to, from, bytes, kind, stream); });
}

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from,
                         size_t from_pitch, size_t width_bytes, size_t rows,
                         cudaMemcpyKind kind) {
  return CallInContext([&] {
    return ForEachRow(to_pitch, from_pitch, width_bytes, rows,
                      [&](size_t to_offset, size_t from_offset) {
                        return Copy(At(to, to_offset), At(from, from_offset),
                                    width_bytes, kind);
                      });
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                              size_t from_pitch, size_t width_bytes,
                              size_t rows, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  return CallInContext([&] {
    return ForEachRow(to_pitch, from_pitch, width_bytes, rows,
                      [&](size_t to_offset, size_t from_offset) {
                        return CopyAsync(At(to, to_offset),
                                         At(from, from_offset), width_bytes,
                                         kind, stream);
                      });
  });
}

// Ignores the device numbers: with unified addressing, an address shows which
// device it is on.
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from,
                           int from_device, size_t bytes) {
  return Forward<&DriverCalls::cuMemcpy>(Address(to), Address(from), bytes);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from,
                                int from_device, size_t bytes,
                                cudaStream_t stream) {
  return Forward<&DriverCalls::cuMemcpyAsync>(Address(to), Address(from), bytes,
                                              stream);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from,
                               size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  return CallOnSymbol(symbol, bytes, offset, [&](void* address) {
    return Copy(address, from, bytes, kind);
  });
}

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from,
                                    size_t bytes, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
  return CallOnSymbol(symbol, bytes, offset, [&](void* address) {
    return CopyAsync(address, from, bytes, kind, stream);
  });
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes,
                                 size_t offset, cudaMemcpyKind kind) {
  return CallOnSymbol(symbol, bytes, offset, [&](const void* address) {
    return Copy(to, address, bytes, kind);
  });
}

cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol,
                                      size_t bytes, size_t offset,
                                      cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return CallOnSymbol(symbol, bytes, offset, [&](const void* address) {
    return CopyAsync(to, address, bytes, kind, stream);
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return Forward<&DriverCalls::cuMemsetD8>(
      Address(to), static_cast<unsigned char>(value), bytes);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes,
                            cudaStream_t stream) {
  return Forward<&DriverCalls::cuMemsetD8Async>(
      Address(to), static_cast<unsigned char>(value), bytes, stream);
}

cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width_bytes,
                         size_t rows) {
  return CallInContext([&] {
    return ForEachRow(pitch, pitch, width_bytes, rows,
                      [&](size_t offset, size_t) {
                        return Ask<&DriverCalls::cuMemsetD8>(
                            Address(At(to, offset)),
                            static_cast<unsigned char>(value), width_bytes);
                      });
  });
}

cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value,
                              size_t width_bytes, size_t rows,
                              cudaStream_t stream) {
  return CallInContext([&] {
    return ForEachRow(
        pitch, pitch, width_bytes, rows, [&](size_t offset, size_t) {
          return Ask<&DriverCalls::cuMemsetD8Async>(
              Address(At(to, offset)), static_cast<unsigned char>(value),
              width_bytes, stream);
        });
  });
}

}  // namespace fineserve::cudart
