#ifndef TOOLS_LAB_STAGE_JSON_VALUE_H_
#define TOOLS_LAB_STAGE_JSON_VALUE_H_

#include <string>

namespace fineserve::stage {

// Reads a JSON document at a pointer like "/models/0/name". These functions are
// here so that only one file of the tests compiles the JSON library.

// Returns the value as JSON: 4, "text", null. Empty if the document has no such
// place or is not JSON.
std::string JsonAt(const std::string& document, const std::string& pointer);

// Returns a string, without its quotes; empty if there is none.
std::string JsonText(const std::string& document, const std::string& pointer);

// Returns a number. If there is none, fails the test and returns -1.
int JsonInt(const std::string& document, const std::string& pointer);

bool IsJson(const std::string& document);

}  // namespace fineserve::stage

#endif  // TOOLS_LAB_STAGE_JSON_VALUE_H_
