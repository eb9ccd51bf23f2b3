package box

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// firstForeignCall begins the numbers of the x32 machine.
	firstForeignCall = 0x40000000
)
