// The stubs of late_calls.cc, of 32 bytes each. Each jumps to its target, with
// all arguments as they are. The first target is fineserve_late_enter, which
// calls fineserve_late_first with the stub's number, and goes on to where that
// says.

    .set    STUBS, 64

    .globl  fineserve_late_stubs
    .hidden fineserve_late_stubs
    .globl  fineserve_late_targets
    .hidden fineserve_late_targets
    .hidden fineserve_late_first

    .text

#if defined(__x86_64__)

    .macro FINESERVE_LATE_STUB number
    .p2align 5
    .cfi_startproc
    endbr64
    movl    $\number, %r11d
    jmp     *fineserve_late_targets+8*\number(%rip)
    .cfi_endproc
    .endm

    .type   fineserve_late_enter, %function
fineserve_late_enter:
    .cfi_startproc
    endbr64
    pushq   %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq    %rsp, %rbp
    .cfi_def_cfa_register %rbp
    // Aligned to 16 bytes: six integer and eight vector registers.
    subq    $176, %rsp
    movq    %rdi, 0(%rsp)
    movq    %rsi, 8(%rsp)
    movq    %rdx, 16(%rsp)
    movq    %rcx, 24(%rsp)
    movq    %r8, 32(%rsp)
    movq    %r9, 40(%rsp)
    movaps  %xmm0, 48(%rsp)
    movaps  %xmm1, 64(%rsp)
    movaps  %xmm2, 80(%rsp)
    movaps  %xmm3, 96(%rsp)
    movaps  %xmm4, 112(%rsp)
    movaps  %xmm5, 128(%rsp)
    movaps  %xmm6, 144(%rsp)
    movaps  %xmm7, 160(%rsp)
    movl    %r11d, %edi
    call    fineserve_late_first
    movq    %rax, %r11
    movq    0(%rsp), %rdi
    movq    8(%rsp), %rsi
    movq    16(%rsp), %rdx
    movq    24(%rsp), %rcx
    movq    32(%rsp), %r8
    movq    40(%rsp), %r9
    movaps  48(%rsp), %xmm0
    movaps  64(%rsp), %xmm1
    movaps  80(%rsp), %xmm2
    movaps  96(%rsp), %xmm3
    movaps  112(%rsp), %xmm4
    movaps  128(%rsp), %xmm5
    movaps  144(%rsp), %xmm6
    movaps  160(%rsp), %xmm7
    leave
    .cfi_def_cfa %rsp, 8
    .cfi_restore %rbp
    jmp     *%r11
    .cfi_endproc
    .size   fineserve_late_enter, .-fineserve_late_enter

#elif defined(__aarch64__)

    .macro FINESERVE_LATE_STUB number
    .p2align 5
    .cfi_startproc
    hint    #34  // bti c
    mov     w17, #\number
    adrp    x16, fineserve_late_targets+8*\number
    add     x16, x16, :lo12:fineserve_late_targets+8*\number
    ldar    x16, [x16]
    br      x16
    .cfi_endproc
    .endm

    .type   fineserve_late_enter, %function
fineserve_late_enter:
    .cfi_startproc
    hint    #34  // bti c
    stp     x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset 29, -224
    .cfi_offset 30, -216
    mov     x29, sp
    stp     x0, x1, [sp, #16]
    stp     x2, x3, [sp, #32]
    stp     x4, x5, [sp, #48]
    stp     x6, x7, [sp, #64]
    str     x8, [sp, #80]
    stp     q0, q1, [sp, #96]
    stp     q2, q3, [sp, #128]
    stp     q4, q5, [sp, #160]
    stp     q6, q7, [sp, #192]
    mov     w0, w17
    bl      fineserve_late_first
    mov     x16, x0
    ldp     x0, x1, [sp, #16]
    ldp     x2, x3, [sp, #32]
    ldp     x4, x5, [sp, #48]
    ldp     x6, x7, [sp, #64]
    ldr     x8, [sp, #80]
    ldp     q0, q1, [sp, #96]
    ldp     q2, q3, [sp, #128]
    ldp     q4, q5, [sp, #160]
    ldp     q6, q7, [sp, #192]
    ldp     x29, x30, [sp], #224
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    br      x16
    .cfi_endproc
    .size   fineserve_late_enter, .-fineserve_late_enter

#else
#error "this processor has no stubs for later functions"
#endif

    .type   fineserve_late_stubs, %function
    .p2align 5
fineserve_late_stubs:
    .set    number, 0
    .rept   STUBS
    FINESERVE_LATE_STUB number
    .set    number, number + 1
    .endr
    .p2align 5
    .size   fineserve_late_stubs, .-fineserve_late_stubs

    .section .data.rel.local, "aw"
    .p2align 3
    .type   fineserve_late_targets, %object
fineserve_late_targets:
    .rept   STUBS
    .quad   fineserve_late_enter
    .endr
    .size   fineserve_late_targets, .-fineserve_late_targets

    .section .note.GNU-stack, "", %progbits
