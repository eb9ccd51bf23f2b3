package docker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// The engine measures a container by walking its folders, which misses files that were removed while a process has them
// open or mapped. They are found by way of the processes, which takes root in the engine's process namespace.

// file is a file on this machine.
type file struct{ dev, inode uint64 }

// A container with more open and mapped files than mostLinks, or whose search takes longer than searchTime, cannot be
// measured and could hide what it writes. Programs do not have so many.
const (
	mostLinks  = 1 << 19
	searchTime = 30 * time.Second
)

// kcmpFiles asks whether two threads share their descriptors (linux/kcmp.h).
const kcmpFiles = 2

// seesProcesses reports whether this program may look at the open files of all users' processes. An error leaves that
// unknown.
func seesProcesses(first int) (bool, error) {
	_, err := os.ReadDir("/proc/" + strconv.Itoa(first) + "/fd")
	if box.Transient(err) {
		return false, fmt.Errorf("look at what a container has open: %w", err)
	}
	return err == nil, nil
}

// containerID matches the id of a container in the name of a cgroup.
var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// removed are the removed files of a container that its processes still have open, with their sizes in bytes.
type removed struct {
	files map[file]int64
	links int // that were looked at
	most  int
	left  time.Duration // for the rest of the search
}

// full reports whether the search must stop early: there are more links than most, or no time is left.
func (r *removed) full() bool { return r.links > r.most || r.left <= 0 }

func (r *removed) bytes() (sum int64) {
	for _, bytes := range r.files {
		sum += bytes
	}
	return sum
}

// unlinked finds the removed files of containers, looking at no more than a given number of links of each.
func unlinked(ctx context.Context, containers map[string]bool, most int) (map[string]*removed, error) {
	found := map[string]*removed{}
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, process := range processes {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		groups, _ := os.ReadFile(process + "/cgroup") // none where it has ended
		id := containerOf(string(groups), containers)
		if id == "" {
			continue
		}
		if found[id] == nil {
			found[id] = &removed{files: map[file]int64{}, most: most, left: searchTime}
		}
		found[id].addProcess(ctx, process)
	}
	return found, ctx.Err()
}

// addProcess adds the files that the threads of a process have. A thread may have descriptors of its own; descriptors
// that threads share are looked at once. All threads share their memory, which is visible through those that live.
func (r *removed) addProcess(ctx context.Context, process string) {
	if r.full() {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.left)
	defer cancel()
	defer func() { r.left -= time.Since(began) }()
	mapped := 0
	var apart []int // threads that share no descriptors with one another
	threads, _ := filepath.Glob(process + "/task/[0-9]*")
	for _, thread := range threads {
		if r.full() || ctx.Err() != nil {
			return
		}
		id, _ := strconv.Atoi(filepath.Base(thread)) // the pattern is right
		if !slices.ContainsFunc(apart, func(other int) bool { return shareFiles(id, other) }) {
			apart = append(apart, id)
			r.add(ctx, thread+"/fd/")
		}
		if mapped == 0 {
			mapped = r.add(ctx, "/proc/"+filepath.Base(thread)+"/map_files/")
		}
	}
}

// shareFiles reports whether two threads share their descriptors; false if the kernel does not say.
func shareFiles(a, b int) bool {
	order, _, errno := unix.RawSyscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFiles, 0, 0, 0)
	return errno == 0 && order == 0
}

// containerOf returns which of the containers the cgroups of a process belong to; empty for none. For an engine that
// itself runs in a container, the cgroup names that container first.
func containerOf(groups string, containers map[string]bool) string {
	for _, id := range containerID.FindAllString(groups, -1) {
		if containers[id] {
			return id
		}
	}
	return ""
}

// add adds the removed files to which the links in a folder of /proc lead, and counts the links. A process may end, or
// close files, in the meantime.
func (r *removed) add(ctx context.Context, folder string) (links int) {
	dir, err := os.Open(folder)
	if err != nil {
		return 0
	}
	defer dir.Close()
	for !r.full() && ctx.Err() == nil {
		names, err := dir.Readdirnames(1000)
		if err != nil {
			break
		}
		for _, name := range names {
			r.look(folder + name)
		}
		links += len(names)
		r.links += len(names)
	}
	return links
}

func (r *removed) look(path string) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if unix.Stat(path, &st) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Statfs(path, &fs) != nil {
		return
	}
	if fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.HUGETLBFS_MAGIC { // those are memory
		r.files[file{st.Dev, st.Ino}] = st.Blocks * 512
	}
}
