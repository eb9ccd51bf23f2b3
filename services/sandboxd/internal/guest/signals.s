#include "textflag.h"

// func doNothing()
// A signal handler, in the convention of the kernel: it returns.
TEXT ·doNothing(SB), NOSPLIT|NOFRAME, $0-0
	RET

DATA ·doNothingPC(SB)/8, $·doNothing(SB)
GLOBL ·doNothingPC(SB), RODATA, $8
