#ifndef DAEMON_SCHEDULING_LOCAL_GEMMA_FIXTURE_H_
#define DAEMON_SCHEDULING_LOCAL_GEMMA_FIXTURE_H_

#include <cstdint>

#include "daemon/contract/abi/kv_shape.h"

namespace fineserve::sched {

// Gemma 3 27B in vLLM: 10 layers attend to all tokens, 52 to 1,024 tokens.
inline constexpr abi::KvShape kGemma = {
    {{1, 16, 0}, {6, 16, 1024}}, 0, 2048, 1, 0};
inline constexpr uint32_t kGemmaBlock = 14;  // tokens, on average

}  // namespace fineserve::sched

#endif  // DAEMON_SCHEDULING_LOCAL_GEMMA_FIXTURE_H_
