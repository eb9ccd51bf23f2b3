package process

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory is what a child has of this program's memory beside the code: a plan and what its calls point to, of which it
// gets a copy, and what it says, which it shares. The collector knows nothing of it.
type memory struct {
	plan   *plan
	shared *childReport
	room   []byte // begins with the plan
	used   int    // bytes of room
	others []span // what children do not get
}

// plan is what a child does. Nothing in it points to the heap.
type plan struct {
	calls [maxCalls]syscallArgs
	count int
	mask  uint64 // the signals that the thread that forks blocks

	// What calls point to.
	limits    [maxLimits]unix.Rlimit
	how       unix.OpenHow
	byDefault signalAction
	capHeader unix.CapUserHeader
	capData   [2]unix.CapUserData
}

// childReport is a child's report. A traced child could write anything there, so it is not trusted.
type childReport struct {
	failed uintptr // the error number of the call that failed
}

// span is a part of the address space.
type span struct{ begin, end uintptr }

const (
	// roomBytes hold the arguments and the environment of a program, of which the kernel takes 6 MiB of text and
	// pointers. Each text takes a multiple of a pointer's size here, so they need up to 11 MiB.
	roomBytes = 12 << 20
	// usualBytes stay in use; what a birth needs beyond is given back, so that the next child gets no copy of it.
	usualBytes = 64 << 10
	// lastAddress is above all that a process has.
	lastAddress = 1 << 56
)

// newMemory maps the memory of births. It stays until the program ends.
func newMemory() (*memory, error) {
	shared := os.Getpagesize()
	room, err := unix.Mmap(-1, 0, roomBytes+shared, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map memory for births: %w", err)
	}
	last := unsafe.Pointer(&room[roomBytes])
	if _, err := unix.MmapPtr(-1, 0, last, uintptr(shared), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON|unix.MAP_FIXED); err != nil {
		return nil, fmt.Errorf("map memory that births share: %w", err)
	}
	code, err := mapping(reflect.ValueOf(vforkExec).Pointer())
	if err != nil {
		return nil, err
	}
	m := &memory{plan: (*plan)(unsafe.Pointer(&room[0])), shared: (*childReport)(last), room: room[:roomBytes]}
	kept := []span{code, {address(&room[0]), address(&room[0]) + uintptr(len(room))}}
	slices.SortFunc(kept, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	begin := uintptr(0)
	for _, s := range append(kept, span{begin: lastAddress}) {
		m.others = append(m.others, span{begin, s.begin})
		begin = s.end
	}
	return m, nil
}

// mapping finds what is mapped at an address of this program.
func mapping(at uintptr) (span, error) {
	file, err := os.Open("/proc/self/maps")
	if err != nil {
		return span{}, fmt.Errorf("find the program's code: %w", err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var s span
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x ", &s.begin, &s.end); err == nil && s.begin <= at && at < s.end {
			return s, nil
		}
	}
	return span{}, errors.New("find the program's code: it is not among what is mapped")
}

// hide excludes all other memory from children (MADV_DONTFORK). Children get a copy of what the runtime maps between
// this and a birth, which only costs time.
func (m *memory) hide() { m.advise(unix.MADV_DONTFORK) }

// show makes children get a copy of all other memory again.
func (m *memory) show() {
	m.advise(unix.MADV_DOFORK)
	m.others = nil
}

func (m *memory) advise(advice uintptr) {
	for _, s := range m.others {
		_, _, _ = syscall.RawSyscall(syscall.SYS_MADVISE, s.begin, s.end-s.begin, advice) // ENOMEM: not all of it is mapped
	}
}

// reset forgets the plan before.
func (m *memory) reset() {
	if m.used > usualBytes {
		_ = unix.Madvise(m.room[usualBytes:], unix.MADV_DONTNEED)
	}
	m.used, m.plan.count = int(unsafe.Sizeof(*m.plan)), 0
}

// array gives n elements of the memory's room.
func array[T any](m *memory, n int) ([]T, error) {
	const align = int(unsafe.Alignof(uintptr(0)))
	begin, size := (m.used+align-1)&^(align-1), n*int(unsafe.Sizeof(*new(T)))
	if size > len(m.room)-begin {
		return nil, syscall.E2BIG
	}
	m.used = begin + size
	return unsafe.Slice((*T)(unsafe.Add(unsafe.Pointer(&m.room[0]), begin)), n), nil
}

// text gives the address of a copy of s that ends with a zero byte.
func (m *memory) text(s string) (uintptr, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return 0, syscall.EINVAL
	}
	b, err := array[byte](m, len(s)+1)
	if err != nil {
		return 0, err
	}
	b[copy(b, s)] = 0
	return address(&b[0]), nil
}

// texts gives the address of a list of texts that ends with a zero.
func (m *memory) texts(list []string) (uintptr, error) {
	at, err := array[uintptr](m, len(list)+1)
	if err != nil {
		return 0, err
	}
	for i, s := range list {
		if at[i], err = m.text(s); err != nil {
			return 0, err
		}
	}
	at[len(list)] = 0
	return address(&at[0]), nil
}

// groups gives the address of a copy of ids of groups.
func (m *memory) groups(ids []uint32) (uintptr, error) {
	at, err := array[uint32](m, len(ids))
	if err != nil {
		return 0, err
	}
	copy(at, ids)
	return uintptr(unsafe.Pointer(unsafe.SliceData(at))), nil
}
