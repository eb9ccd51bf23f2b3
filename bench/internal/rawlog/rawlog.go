// Package rawlog is the simplest possible durable log: records are appended to a file, which is synced once for all
// callers that wait at that moment. It has no order, no index and no checksums, and so is an upper bound of what a
// durable store can do on a disk.
package rawlog

import (
	"os"
)

// Log is an open log. Append is safe for concurrent use.
type Log struct {
	file  *os.File
	queue chan request
	done  chan struct{}
}

type request struct {
	body   []byte
	answer chan error
}

// maxBatch bounds how many records share a sync.
const maxBatch = 1024

// Create makes a log, in place of an old one. The caller must Close it.
func Create(path string) (*Log, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	l := &Log{file: f, queue: make(chan request, maxBatch), done: make(chan struct{})}
	go l.write()
	return l, nil
}

// Append returns when body is on disk.
func (l *Log) Append(body []byte) error {
	r := request{body: body, answer: make(chan error, 1)}
	l.queue <- r
	return <-r.answer
}

// Close closes the log. Do not call Append afterwards.
func (l *Log) Close() error {
	close(l.queue)
	<-l.done
	return l.file.Close()
}

func (l *Log) write() {
	defer close(l.done)
	var buf []byte
	for first := range l.queue {
		batch := []request{first}
		for len(l.queue) > 0 && len(batch) < maxBatch {
			batch = append(batch, <-l.queue)
		}
		buf = buf[:0]
		for _, r := range batch {
			buf = append(buf, r.body...)
		}
		_, err := l.file.Write(buf)
		if err == nil {
			err = l.file.Sync()
		}
		for _, r := range batch {
			r.answer <- err
		}
	}
}
