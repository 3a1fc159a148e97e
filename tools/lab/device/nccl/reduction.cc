#include "tools/lab/device/nccl/reduction.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace fineserve::nccl {
namespace {

constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static_assert(std::size(kBytes) == ncclNumTypes);

// Calls body.template operator()<Number>() with the number class of a type.
template <typename Body>
void ForType(ncclDataType_t type, Body body) {
  switch (type) {
    case ncclInt8:
      return body.template operator()<Plain<int8_t>>();
    case ncclUint8:
      return body.template operator()<Plain<uint8_t>>();
    case ncclInt32:
      return body.template operator()<Plain<int32_t>>();
    case ncclUint32:
      return body.template operator()<Plain<uint32_t>>();
    case ncclInt64:
      return body.template operator()<Plain<int64_t>>();
    case ncclUint64:
      return body.template operator()<Plain<uint64_t>>();
    case ncclFloat16:
      return body.template operator()<Float16>();
    case ncclFloat32:
      return body.template operator()<Plain<float>>();
    case ncclFloat64:
      return body.template operator()<Plain<double>>();
    case ncclBfloat16:
      return body.template operator()<Bfloat16>();
    default:
      abort();  // CanReduce was not asked
  }
}

// Calls `combine` on two numbers at a time, and `finish` on the result.
template <typename Number, typename Combine, typename Finish>
void Fold(const std::vector<const char*>& parts, char* to, size_t count,
          Combine combine, Finish finish) {
  for (size_t at = 0; at < count * Number::kBytes; at += Number::kBytes) {
    auto value = Number::Load(parts[0] + at);
    for (size_t part = 1; part < parts.size(); ++part) {
      value = combine(value, Number::Load(parts[part] + at));
    }
    Number::Store(to + at, finish(value));
  }
}

template <typename Number>
void ReduceAs(ncclRedOp_t op, const std::vector<const char*>& parts, char* to,
              size_t count) {
  using Value = typename Number::Value;
  const auto as_it_is = [](Value value) { return value; };
  const auto mean = [&parts](Value sum) {
    return static_cast<Value>(sum / static_cast<Value>(parts.size()));
  };
  switch (op) {
    case ncclSum:
      return Fold<Number>(parts, to, count, Add<Value>, as_it_is);
    case ncclProd:
      return Fold<Number>(parts, to, count, Multiply<Value>, as_it_is);
    case ncclMax:
      return Fold<Number>(
          parts, to, count, [](Value a, Value b) { return std::max(a, b); },
          as_it_is);
    case ncclMin:
      return Fold<Number>(
          parts, to, count, [](Value a, Value b) { return std::min(a, b); },
          as_it_is);
    case ncclAvg:
      return Fold<Number>(parts, to, count, Add<Value>, mean);
    default:
      abort();  // operators are checked when they are submitted
  }
}

}  // namespace

bool IsType(ncclDataType_t type) { return type < ncclNumTypes; }

size_t BytesOf(ncclDataType_t type) { return kBytes[type]; }

bool CanReduce(ncclDataType_t type) { return type < ncclFloat8e4m3; }

void Scale(ncclDataType_t type, const Factor& factor, const char* from,
           char* to, size_t count) {
  const char* const value = factor.on_device != nullptr
                                ? static_cast<const char*>(factor.on_device)
                                : factor.value.data();
  ForType(type, [&]<typename Number>() {
    const auto by = Number::Load(value);
    for (size_t at = 0; at < count * Number::kBytes; at += Number::kBytes) {
      Number::Store(to + at, Multiply(Number::Load(from + at), by));
    }
  });
}

void Reduce(ncclDataType_t type, ncclRedOp_t op,
            const std::vector<const char*>& parts, char* to, size_t count) {
  ForType(type,
          [&]<typename Number>() { ReduceAs<Number>(op, parts, to, count); });
}

}  // namespace fineserve::nccl
