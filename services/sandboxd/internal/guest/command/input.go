package command

import (
	"os"
	"sync"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// input is the standard input of a command. The zero value is one that is closed.
type input struct {
	writing sync.Mutex // orders writers; held while the command does not read
	mu      sync.Mutex
	file    *os.File // nil when closed
	offset  int64    // bytes accepted
}

// feed writes all of data in the background and closes, unless the input stays open for more.
func (in *input) feed(data []byte, stayOpen bool) {
	in.writing.Lock()
	go func() {
		defer in.writing.Unlock()
		in.send(data)
		if !stayOpen {
			in.close()
		}
	}()
}

// write accepts bytes at offset of the input, and skips those that were accepted before. If the command no longer
// reads, the rest is discarded. write blocks for as long as the command does not read.
func (in *input) write(offset int64, data []byte, eof bool) (accepted int64, err error) {
	in.writing.Lock()
	defer in.writing.Unlock()
	in.mu.Lock()
	at, open := in.offset, in.file != nil
	in.mu.Unlock()
	if offset > at {
		return at, rpcerr.InvalidField("offset", "%d bytes were accepted so far; write from there", at)
	}
	skip := min(at-offset, int64(len(data)))
	if data = data[skip:]; len(data) > 0 {
		if !open {
			return at, rpcerr.InvalidField("data", "standard input is closed")
		}
		in.send(data)
	}
	if eof {
		in.close()
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.offset, nil
}

// send writes data and counts it as accepted, even if nothing reads it any more. The caller holds writing.
func (in *input) send(data []byte) {
	in.mu.Lock()
	file := in.file
	in.mu.Unlock()
	if file != nil {
		_, _ = file.Write(data)
	}
	in.mu.Lock()
	in.offset += int64(len(data))
	in.mu.Unlock()
}

// close closes the input; a writer that waits gives up.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.file != nil {
		in.file.Close()
		in.file = nil
	}
}
