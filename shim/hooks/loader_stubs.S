// void* dlsym(void* handle, const char* name)
// void* dlvsym(void* handle, const char* name, const char* version)
// void* dlopen(const char* file, int flags)
// void* dlmopen(Lmid_t space, const char* file, int flags)
//
// A C function here would become the caller that glibc sees: RTLD_NEXT would
// then search after the shim instead of after the program's library, and dlopen
// would search the shim's RUNPATH instead of the caller's. So each stub calls
// its filter, with the return address as fourth argument, restores registers
// and stack, and jumps to the real function.

    .macro FINESERVE_ENTER symbol, filter, real
    .globl  \symbol
    .type   \symbol, @function
    .hidden \filter
    .hidden \real
    .p2align 4
\symbol:
    .cfi_startproc
    endbr64
    pushq   %rdi
    .cfi_adjust_cfa_offset 8
    pushq   %rsi
    .cfi_adjust_cfa_offset 8
    // After three pushes and the return address the stack is aligned to 16
    // bytes.
    pushq   %rdx
    .cfi_adjust_cfa_offset 8
    movq    24(%rsp), %rcx
    call    \filter
    .endm

    .macro FINESERVE_RESTORE
    popq    %rdx
    .cfi_adjust_cfa_offset -8
    popq    %rsi
    .cfi_adjust_cfa_offset -8
    popq    %rdi
    .cfi_adjust_cfa_offset -8
    .endm

    // The filter answers in rax, with rdx not 0, or leaves the call to the real
    // function.
    .macro FINESERVE_LOOKUP_STUB symbol, filter, real
    FINESERVE_ENTER \symbol, \filter, \real
    movq    %rdx, %rcx
    FINESERVE_RESTORE
    testq   %rcx, %rcx
    jnz     1f
    jmp     *\real(%rip)
1:
    ret
    .cfi_endproc
    .size   \symbol, .-\symbol
    .endm

    // The filter returns the flags that the real function gets in `register`.
    .macro FINESERVE_OPEN_STUB symbol, filter, real, register
    FINESERVE_ENTER \symbol, \filter, \real
    FINESERVE_RESTORE
    movl    %eax, \register
    jmp     *\real(%rip)
    .cfi_endproc
    .size   \symbol, .-\symbol
    .endm

    .text
    FINESERVE_LOOKUP_STUB dlsym, fineserve_filter_dlsym, fineserve_real_dlsym
    FINESERVE_LOOKUP_STUB dlvsym, fineserve_filter_dlvsym, fineserve_real_dlvsym
    FINESERVE_OPEN_STUB dlopen, fineserve_filter_dlopen, fineserve_real_dlopen, %esi
    FINESERVE_OPEN_STUB dlmopen, fineserve_filter_dlmopen, fineserve_real_dlmopen, %edx
    .section .note.GNU-stack, "", @progbits
