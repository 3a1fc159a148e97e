#ifndef SHIM_HOOKS_EXPORT_H_
#define SHIM_HOOKS_EXPORT_H_

// A function that the host sees; hooks/exports.map names all of them.
#define FINESERVE_EXPORT extern "C" __attribute__((visibility("default")))

#endif  // SHIM_HOOKS_EXPORT_H_
