package bound

import "time"

// The program that serves a sandbox from within, and the files that it reads and that the sandbox's users can change.
const (
	// AccountFileBytes bounds how much of /etc/passwd and of /etc/group of a sandbox is read. Users beyond it are
	// unknown.
	AccountFileBytes = 1 << 20
	// GuestAnswer bounds the wait for an answer from within a sandbox, for a piece of a stream, and for the connection
	// to it; for the result of a command, beyond the command's own timeout (one without is waited for). Then the call
	// ends with DEADLINE_EXCEEDED.
	GuestAnswer = time.Minute
	// GuestWork bounds calls that may take long by themselves: to remove a folder, and to write input that a command
	// does not read. Then the call ends with DEADLINE_EXCEEDED.
	GuestWork = 10 * time.Minute
)

// Memory of a sandbox's guest, which is its own: commands have the sandbox's.
const (
	// GuestMemoryBytes is the memory that the guest works with.
	GuestMemoryBytes = 64 << 20
	// GuestOutputBytes bounds the output of commands that it keeps, and so does an eighth of the sandbox's memory
	// (GuestOutput); beyond it the oldest results lose their output, and are marked.
	GuestOutputBytes = 128 << 20
)

// GuestOutput bounds the output that the guest of a sandbox with that memory keeps; 0 is a sandbox without a bound of
// memory.
func GuestOutput(memoryBytes int64) int64 {
	if memoryBytes <= 0 {
		return GuestOutputBytes
	}
	return min(memoryBytes/8, GuestOutputBytes)
}

// GuestMemory bounds the memory of a guest that keeps that much output (0: GuestOutputBytes), of which a collector may
// hold up to twice the amount.
func GuestMemory(outputBytes int64) int64 {
	if outputBytes <= 0 {
		outputBytes = GuestOutputBytes
	}
	return GuestMemoryBytes + 2*outputBytes
}
