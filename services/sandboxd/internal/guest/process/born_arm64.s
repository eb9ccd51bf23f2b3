#include "textflag.h"

// func born(args *cloneArgs, size uintptr, calls *call, failed *uintptr) (pid uintptr)
//
// The child has the parent's memory and stack, so it writes to neither but through failed: it makes no call and never returns.
// The registers below survive system calls.
TEXT ·born(SB), NOSPLIT|NOFRAME, $0-40
	MOVD	args+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	calls+16(FP), R19
	MOVD	failed+24(FP), R20
	MOVD	$435, R8	// clone3
	SVC
	CBZ	R0, next
	MOVD	R0, pid+32(FP)
	RET
next:
	MOVD	0(R19), R8
	MOVD	8(R19), R0
	MOVD	16(R19), R1
	MOVD	24(R19), R2
	MOVD	32(R19), R3
	SVC
	ADD	$40, R19
	CMN	$4095, R0
	BCC	next
	NEG	R0, R0
	MOVD	R0, (R20)
	MOVD	$127, R0
	MOVD	$94, R8	// exit_group
	SVC
	BRK
