#ifndef DAEMON_ABI_OLD_POOL_H_
#define DAEMON_ABI_OLD_POOL_H_

#include <cstdint>
#include <string>

namespace fineserve::abi {

// A daemon that dies leaves its pool to the engines that map it. Describes them
// in one line: "the pool of a former daemon (pid 4711) is still held by pid
// 4712 (engine vllm): 12 slabs, 384 MiB; …". Empty if no process but this one
// holds an old pool of this GPU: one of another epoch than `epoch`.
std::string DescribeOldPool(const uint8_t (&gpu_uuid)[16], uint64_t epoch = 0);

// How many processes but this one hold such a pool.
uint32_t CountOldPoolHolders(const uint8_t (&gpu_uuid)[16], uint64_t epoch);

}  // namespace fineserve::abi

#endif  // DAEMON_ABI_OLD_POOL_H_
