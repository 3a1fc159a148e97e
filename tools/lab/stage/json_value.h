#ifndef TOOLS_LAB_STAGE_JSON_VALUE_H_
#define TOOLS_LAB_STAGE_JSON_VALUE_H_

#include <string>

namespace fineserve::stage {

// Reads a JSON document at a pointer like "/models/0/name". Here so that only
// one file of the tests compiles the JSON library.

// As JSON: 4, "text", null. Empty if the document has no such place, or is
// none.
std::string JsonAt(const std::string& document, const std::string& pointer);

// A string, without its quotes; empty if there is none.
std::string JsonText(const std::string& document, const std::string& pointer);

// A number; -1, and a failed test, if there is none.
int JsonInt(const std::string& document, const std::string& pointer);

bool IsJson(const std::string& document);

}  // namespace fineserve::stage

#endif  // TOOLS_LAB_STAGE_JSON_VALUE_H_
