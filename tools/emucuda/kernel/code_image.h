#ifndef TOOLS_EMUCUDA_KERNEL_CODE_IMAGE_H_
#define TOOLS_EMUCUDA_KERNEL_CODE_IMAGE_H_

namespace fineserve::emucuda {

// Whether `code` begins as something that a driver can load: a fat binary of
// the known version (or nvcc's wrapper of one), a 64-bit ELF image for CUDA
// devices, or PTX text, whose first directive is its version. As the driver's
// calls, it is not told how long the image is, and reads no more than it needs.
bool LooksLikeCode(const void* code);

// How much of a file is enough to be asked about, zeros behind its end.
inline constexpr int kCodeHeaderBytes = 4096;

}  // namespace fineserve::emucuda

#endif  // TOOLS_EMUCUDA_KERNEL_CODE_IMAGE_H_
