// Package threadtest runs parts of tests on threads of their own.
package threadtest

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Go runs f in a goroutine on a thread that ends with it, so that f may change properties of the thread: its
// namespaces, its descriptors, its user. It never uses the first thread of the process, which would not end, and whose
// descriptors and mounts /proc/self shows.
func Go(f func()) {
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		defer runtime.UnlockOSThread()
		ended := make(chan struct{})
		go func() { // This thread stays occupied in the meantime.
			defer close(ended)
			runtime.LockOSThread()
			f()
		}()
		<-ended
	}()
}
