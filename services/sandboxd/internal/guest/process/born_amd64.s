#include "textflag.h"

// func born(args *cloneArgs, size uintptr, calls *call, failed *uintptr) (pid uintptr)
//
// The child has the parent's memory and stack, so it writes to neither but through failed: it makes no call and never returns.
// The registers below survive system calls.
TEXT ·born(SB), NOSPLIT|NOFRAME, $0-40
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	calls+16(FP), R12
	MOVQ	failed+24(FP), R13
	MOVQ	$435, AX	// clone3
	SYSCALL
	TESTQ	AX, AX
	JZ	next
	MOVQ	AX, pid+32(FP)
	RET
next:
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	SYSCALL
	ADDQ	$40, R12
	CMPQ	AX, $-4095
	JCS	next
	NEGQ	AX
	MOVQ	AX, 0(R13)
	MOVQ	$127, DI
	MOVQ	$231, AX	// exit_group
	SYSCALL
	INT	$3
