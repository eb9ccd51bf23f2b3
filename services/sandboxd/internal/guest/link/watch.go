package link

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// WatchFolder watches a folder until stop is called: changed gets a token when something in it was made, moved there,
// or given other rights. It fails where the folder cannot be watched, also because the user watches too much already.
func WatchFolder(path string) (changed <-chan struct{}, stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, nil, fmt.Errorf("watch a folder: %w", err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ATTRIB); err != nil {
		events.Close()
		return nil, nil, fmt.Errorf("watch %s: %w", path, err)
	}
	tokens, over := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(over)
		var unread [4 << 10]byte
		for {
			if _, err := events.Read(unread[:]); err != nil {
				return
			}
			select {
			case tokens <- struct{}{}:
			default:
			}
		}
	}()
	return tokens, func() { events.Close(); <-over }, nil
}
