#include "textflag.h"

// func vforkExec(first, calls *syscallArgs, failed *uintptr) (pid uintptr)
//
// The child may have no stack, and writes through failed alone: it makes no call and never returns.
// The registers below survive system calls.
TEXT ·vforkExec(SB), NOSPLIT|NOFRAME, $0-32
	MOVQ	first+0(FP), R11
	MOVQ	calls+8(FP), R12
	MOVQ	failed+16(FP), R13
	MOVQ	0(R11), AX
	MOVQ	8(R11), DI
	MOVQ	16(R11), SI
	MOVQ	24(R11), DX
	MOVQ	32(R11), R10
	MOVQ	40(R11), R8
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	MOVQ	AX, pid+24(FP)
	RET
child:
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	MOVQ	40(R12), R8
	SYSCALL
	ADDQ	$48, R12
	CMPQ	AX, $-4095
	JCS	child
	NEGQ	AX
	MOVQ	AX, 0(R13)
	MOVQ	$127, DI
	MOVQ	$231, AX	// exit_group
	SYSCALL
	INT	$3
