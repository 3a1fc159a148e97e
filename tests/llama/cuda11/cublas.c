/* cuBLAS 11 for a device that skips kernels: it computes nothing. */

int cublasCreate_v2(void** handle) {
  static int it;
  *handle = &it;
  return 0;
}

#define NOTHING(name) \
  int name(void) { return 0; }
NOTHING(cublasDestroy_v2)
NOTHING(cublasGemmBatchedEx)
NOTHING(cublasGemmEx)
NOTHING(cublasGemmStridedBatchedEx)
NOTHING(cublasSetMathMode)
NOTHING(cublasSetStream_v2)
NOTHING(cublasSgemm_v2)
