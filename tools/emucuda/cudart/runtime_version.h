#ifndef TOOLS_EMUCUDA_CUDART_RUNTIME_VERSION_H_
#define TOOLS_EMUCUDA_CUDART_RUNTIME_VERSION_H_

namespace fineserve::cudart {

// The version of the runtime that we emulate, and of the oldest driver that it
// works with, as 1000 × major + 10 × minor.
inline constexpr int kRuntimeVersion = 13000;
inline constexpr int kRuntimeMajorVersion = 13000;

}  // namespace fineserve::cudart

#endif  // TOOLS_EMUCUDA_CUDART_RUNTIME_VERSION_H_
