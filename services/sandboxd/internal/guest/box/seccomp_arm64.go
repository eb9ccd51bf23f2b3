package box

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	// firstForeignCall lies beyond all numbers: this machine has one set.
	firstForeignCall = 0xffffffff
)

// machineCalls are allowed calls that only this kind of machine has: none.
var machineCalls []uint32

// machineWatchCalls are older ways to begin to watch files.
var machineWatchCalls []uint32
