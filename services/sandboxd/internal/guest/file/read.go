package file

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/walk"
)

// Reader reads a part of a regular file. The caller closes it.
type Reader struct {
	// Info describes the file as it was opened.
	Info *sandboxv1.FileInfo

	file *os.File
	path string
	left int64 // bytes to give; below 0: to the end
	max  int64 // bytes that may be given; 0: no bound
	read int64
}

// Open opens a file for reading from offset on: at most limit bytes (0: to the end). A file with more than maxBytes
// left is OUTPUT_LIMIT (0: no bound), found before anything is read where the size shows it, and while reading where it
// grows. Folders are IS_A_DIRECTORY, pipes, sockets and devices INVALID_PATH.
func (p Place) Open(path string, offset, limit, maxBytes int64) (*Reader, error) {
	r := &Reader{path: path, left: limit, max: maxBytes}
	if limit <= 0 {
		r.left = -1
	}
	err := p.do("read", path, func(full string) (err error) {
		var info os.FileInfo
		if r.file, info, err = walk.Regular(full); err != nil {
			return err
		}
		if r.Info = describe(path, full, info); generated(r.file) {
			r.Info.Size = 0
		}
		if rest := r.Info.GetSize() - offset; maxBytes > 0 && rest > maxBytes && (limit <= 0 || limit > maxBytes) {
			return fault.TooLarge(path, maxBytes)
		}
		_, err = r.file.Seek(offset, io.SeekStart)
		return err
	})
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// generated reports whether the kernel makes the content of a file as it is read, so that the size of the file is not
// that of its content.
func generated(f *os.File) bool {
	var at unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &at) != nil {
		return false
	}
	switch at.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC:
		return true
	}
	return false
}

// Read reads on; it fails with OUTPUT_LIMIT when the file grew over the bound.
func (r *Reader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if r.left > 0 && int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.file.Read(p)
	r.read += int64(n)
	if r.left > 0 {
		r.left -= int64(n)
	}
	if r.max > 0 && r.read > r.max {
		return 0, fault.TooLarge(r.path, r.max)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fault.File("read", r.path, err)
	}
	return n, err
}

// Close ends the reading.
func (r *Reader) Close() {
	if r.file != nil {
		r.file.Close()
	}
}
