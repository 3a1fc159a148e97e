#ifndef TOOLS_FSCTL_SLABS_ENGINE_NAMES_H_
#define TOOLS_FSCTL_SLABS_ENGINE_NAMES_H_

#include <cstdint>
#include <string>

#include "daemon/contract/abi/table_reader.h"

namespace fineserve::fsctl {

// Returns "" for an engine that the table does not list.
std::string EngineName(const abi::TableSnapshot& table, uint32_t id);

// "3 vllm-a"; "-" for 0, "3 (unknown)" for an engine that is not in the table.
std::string EngineCell(const abi::TableSnapshot& table, uint32_t id);

const char* EngineStateName(abi::EngineState state);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SLABS_ENGINE_NAMES_H_
