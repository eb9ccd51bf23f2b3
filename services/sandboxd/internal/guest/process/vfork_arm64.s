#include "textflag.h"

// func vforkExec(first, calls *syscallArgs, failed *uintptr) (pid uintptr)
//
// The child may have no stack, and writes through failed alone: it makes no call and never returns.
// The registers below survive system calls.
TEXT ·vforkExec(SB), NOSPLIT|NOFRAME, $0-32
	MOVD	first+0(FP), R9
	MOVD	calls+8(FP), R19
	MOVD	failed+16(FP), R20
	MOVD	0(R9), R8
	MOVD	8(R9), R0
	MOVD	16(R9), R1
	MOVD	24(R9), R2
	MOVD	32(R9), R3
	MOVD	40(R9), R4
	SVC
	CBZ	R0, child
	MOVD	R0, pid+24(FP)
	RET
child:
	MOVD	0(R19), R8
	MOVD	8(R19), R0
	MOVD	16(R19), R1
	MOVD	24(R19), R2
	MOVD	32(R19), R3
	MOVD	40(R19), R4
	SVC
	ADD	$48, R19
	CMN	$4095, R0
	BCC	child
	NEG	R0, R0
	MOVD	R0, (R20)
	MOVD	$127, R0
	MOVD	$94, R8	// exit_group
	SVC
	BRK
