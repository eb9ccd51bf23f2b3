// Package sqlitefault puts a disk under SQLite that a test can make fail.
//
// It is a virtual file system of SQLite over the usual one: files are real, and a write or a sync fails while the test
// requests it.
package sqlitefault

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// Fault is the failing operation.
type Fault int32

// The faults of a disk.
const (
	None Fault = iota
	// Full has no space for anything written.
	Full
	// Sync accepts writes, and fails to bring them to the medium.
	Sync
	// Gone fails at everything: writes, syncs and reads.
	Gone
)

// Disk is a disk whose files fail together. Its methods are safe for concurrent use.
type Disk struct {
	name   string
	fault  atomic.Int32
	failed atomic.Int64
}

// New makes a disk that works. It lasts as long as the process, as SQLite's file systems do.
func New() *Disk {
	tls := libc.NewTLS()
	defer tls.Close()
	usual := sqlite3.Xsqlite3_vfs_find(tls, 0)
	registry.Lock()
	defer registry.Unlock()
	d := &Disk{name: fmt.Sprintf("fault%d", len(registry.systems))}
	p := copied(tls, at[sqlite3.Tsqlite3_vfs](usual))
	system := at[sqlite3.Tsqlite3_vfs](p)
	name, err := libc.CString(d.name)
	if err != nil {
		panic(err) // no memory
	}
	system.FzName, system.FpNext = name, 0
	system.FxOpen = pointer(open)
	registry.systems[p] = mounted{disk: d, usual: usual}
	if code := sqlite3.Xsqlite3_vfs_register(tls, p, 0); code != sqlite3.SQLITE_OK {
		panic(fmt.Sprintf("sqlitefault: register: %d", code))
	}
	return d
}

// Name is the file system's, for sqlite.Options.VFS.
func (d *Disk) Name() string { return d.name }

// Fail makes everything fail in that way from now on; None ends it.
func (d *Disk) Fail(f Fault) { d.fault.Store(int32(f)) }

// Failed counts the calls that failed.
func (d *Disk) Failed() int64 { return d.failed.Load() }

func (d *Disk) is(faults ...Fault) bool {
	now := Fault(d.fault.Load())
	for _, f := range faults {
		if now == f {
			d.failed.Add(1)
			return true
		}
	}
	return false
}

// mounted is a disk and the file system below it.
type mounted struct {
	disk  *Disk
	usual uintptr
}

// opened is a file with the methods that it had before.
type opened struct {
	disk  *Disk
	usual *sqlite3.Tsqlite3_io_methods
}

var registry = struct {
	sync.Mutex
	systems map[uintptr]mounted
	methods map[uintptr]uintptr // of failing files, by those of the usual ones
	files   map[uintptr]opened
}{systems: map[uintptr]mounted{}, methods: map[uintptr]uintptr{}, files: map[uintptr]opened{}}

func file(p uintptr) opened {
	registry.Lock()
	defer registry.Unlock()
	return registry.files[p]
}

func open(tls *libc.TLS, system, name, p uintptr, flags int32, out uintptr) int32 {
	registry.Lock()
	m := registry.systems[system]
	registry.Unlock()
	usual := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](at[sqlite3.Tsqlite3_vfs](m.usual).FxOpen)
	code := usual(tls, m.usual, name, p, flags, out)
	f := at[sqlite3.Tsqlite3_file](p)
	if code != sqlite3.SQLITE_OK || f.FpMethods == 0 {
		return code
	}
	registry.Lock()
	defer registry.Unlock()
	before := at[sqlite3.Tsqlite3_io_methods](f.FpMethods)
	methods, made := registry.methods[f.FpMethods]
	if !made {
		methods = copied(tls, before)
		registry.methods[f.FpMethods] = methods
		failing := at[sqlite3.Tsqlite3_io_methods](methods)
		failing.FxClose, failing.FxRead, failing.FxWrite, failing.FxSync = pointer(closeFile), pointer(read), pointer(write), pointer(syncFile)
	}
	registry.files[p] = opened{disk: m.disk, usual: before}
	f.FpMethods = methods
	return code
}

func closeFile(tls *libc.TLS, p uintptr) int32 {
	f := file(p)
	registry.Lock()
	delete(registry.files, p)
	registry.Unlock()
	return function[func(*libc.TLS, uintptr) int32](f.usual.FxClose)(tls, p)
}

func read(tls *libc.TLS, p, to uintptr, amount int32, offset int64) int32 {
	f := file(p)
	if f.disk.is(Gone) {
		return sqlite3.SQLITE_IOERR_READ
	}
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](f.usual.FxRead)(tls, p, to, amount, offset)
}

func write(tls *libc.TLS, p, from uintptr, amount int32, offset int64) int32 {
	f := file(p)
	switch {
	case f.disk.is(Full):
		return sqlite3.SQLITE_FULL
	case f.disk.is(Gone):
		return sqlite3.SQLITE_IOERR_WRITE
	}
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](f.usual.FxWrite)(tls, p, from, amount, offset)
}

func syncFile(tls *libc.TLS, p uintptr, flags int32) int32 {
	f := file(p)
	if f.disk.is(Sync, Gone) {
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	return function[func(*libc.TLS, uintptr, int32) int32](f.usual.FxSync)(tls, p, flags)
}

// copied is the address of a copy in SQLite's memory, which lasts as long as the process. The collector does not see
// what SQLite has of Go's memory, and the race detector refuses it.
func copied[T any](tls *libc.TLS, value *T) uintptr {
	p := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(*value)))
	if p == 0 {
		panic("sqlitefault: no memory")
	}
	*at[T](p) = *value
	return p
}

// at returns the value at an address of SQLite's memory.
func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// pointer is a function in the form of SQLite's translation to Go: the word that a func value is. It is only for
// functions of the package, which are never moved.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// function is the way back.
func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }
