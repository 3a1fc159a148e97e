#ifndef TOOLS_LAB_DEVICE_NCCL_REDUCTION_H_
#define TOOLS_LAB_DEVICE_NCCL_REDUCTION_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tools/lab/device/nccl/nccl_types.h"

namespace fineserve::nccl {

// The number types that NCCL reduces: how they are stored, and how they are
// computed with.

inline float FloatOfBfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

inline uint16_t Bfloat16OfFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A float16 has 1 bit of sign, 5 of exponent (bias 15) and 10 of fraction.
inline float FloatOfFloat16(uint16_t bits) {
  const uint32_t sign = (uint32_t{bits} & 0x8000) << 16;
  const uint32_t exponent = bits >> 10 & 0x1f;
  const uint32_t fraction = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: fraction × 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -size : size;
  }
  const uint32_t wide = exponent == 0x1f ? 0xff : exponent - 15 + 127;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

inline uint16_t Float16OfFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00;   // not a number
  if (size >= 0x477ff000) return sign | 0x7c00;  // 65520 and more: infinity
  if (size < 0x38800000) {
    // The number is below 2^-14: adding 0.5 leaves it as a multiple of 2^-24,
    // rounded, in the low bits of the fraction.
    const float shifted = std::bit_cast<float>(size) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) -
                                        std::bit_cast<uint32_t>(0.5f));
  }
  const uint32_t rounded = size + 0xfff + (size >> 13 & 1);
  return sign | static_cast<uint16_t>((rounded - (112u << 23)) >> 13);
}

// A number that is computed with in the form in which it is stored.
template <typename T>
struct Plain {
  using Value = T;
  static constexpr size_t kBytes = sizeof(T);
  static T Load(const char* from) {
    T value;
    memcpy(&value, from, sizeof(value));
    return value;
  }
  static void Store(char* to, T value) { memcpy(to, &value, sizeof(value)); }
};

template <float (*kToFloat)(uint16_t), uint16_t (*kFromFloat)(float)>
struct Half {
  using Value = float;
  static constexpr size_t kBytes = sizeof(uint16_t);
  static float Load(const char* from) {
    return kToFloat(Plain<uint16_t>::Load(from));
  }
  static void Store(char* to, float value) {
    Plain<uint16_t>::Store(to, kFromFloat(value));
  }
};
using Float16 = Half<FloatOfFloat16, Float16OfFloat>;
using Bfloat16 = Half<FloatOfBfloat16, Bfloat16OfFloat>;

// Integers wrap around, including signed ones.
template <typename T>
T Add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

template <typename T>
T Multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

bool IsType(ncclDataType_t type);
size_t BytesOf(ncclDataType_t type);
// False for the 8-bit floats, which cannot be reduced on GPUs before compute
// capability 9.0 either.
bool CanReduce(ncclDataType_t type);

// The factor of an operator that ncclRedOpCreatePreMulSum created.
struct Factor {
  std::array<char, 8> value = {};
  // If set, the factor is read from this address when the work runs.
  const void* on_device = nullptr;
};

// Writes to[i] = from[i] × factor, for `count` numbers.
void Scale(ncclDataType_t type, const Factor& factor, const char* from,
           char* to, size_t count);

// Writes to[i] = parts[0][i] op parts[1][i] op …, for `count` numbers, in the
// order of the parts, so that every rank computes the same bits. `op` is one of
// the five built-in operators.
void Reduce(ncclDataType_t type, ncclRedOp_t op,
            const std::vector<const char*>& parts, char* to, size_t count);

}  // namespace fineserve::nccl

#endif  // TOOLS_LAB_DEVICE_NCCL_REDUCTION_H_
