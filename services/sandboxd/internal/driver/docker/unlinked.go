package docker

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// The engine measures a container by walking its folders, where it does not find files that were removed while a process has them open or
// mapped. They are found by the processes, which takes the eyes of root in the engine's process namespace.

// file is a file on this machine.
type file struct{ dev, inode uint64 }

// seesProcesses tells whether this program may look at what the processes of any user have open.
func seesProcesses(first int) bool {
	_, err := os.ReadDir("/proc/" + strconv.Itoa(first) + "/fd")
	return err == nil
}

// containerID finds the id of a container in the name of a cgroup.
var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// unlinked tells for each of the containers how many bytes are in files that were removed while its processes have them open.
func unlinked(containers map[string]bool) map[string]int64 {
	found := map[string]map[file]int64{}
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, process := range processes {
		groups, _ := os.ReadFile(process + "/cgroup") // none where it has ended
		id := containerOf(string(groups), containers)
		if id == "" {
			continue
		}
		if found[id] == nil {
			found[id] = map[file]int64{}
		}
		// Threads may have descriptors of their own. Their memory is the same, and is seen by those that live.
		mapped := 0
		threads, _ := filepath.Glob(process + "/task/[0-9]*")
		for _, thread := range threads {
			addUnlinked(found[id], thread+"/fd/")
			if mapped == 0 {
				mapped = addUnlinked(found[id], "/proc/"+filepath.Base(thread)+"/map_files/")
			}
		}
	}
	sums := map[string]int64{}
	for id, files := range found {
		for _, bytes := range files {
			sums[id] += bytes
		}
	}
	return sums
}

// containerOf finds which of the containers the cgroups of a process are of; empty for none. An engine that runs in a container names
// that one before its own.
func containerOf(groups string, containers map[string]bool) string {
	for _, id := range containerID.FindAllString(groups, -1) {
		if containers[id] {
			return id
		}
	}
	return ""
}

// addUnlinked adds the removed files to which the links in a folder of /proc lead, and counts the links. A process may end, and close
// files, meanwhile.
func addUnlinked(files map[file]int64, folder string) int {
	links, _ := os.ReadDir(folder)
	for _, link := range links {
		var st unix.Stat_t
		var fs unix.Statfs_t
		path := folder + link.Name()
		if unix.Stat(path, &st) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Statfs(path, &fs) != nil {
			continue
		}
		if fs.Type != unix.TMPFS_MAGIC && fs.Type != unix.HUGETLBFS_MAGIC { // those are memory
			files[file{st.Dev, st.Ino}] = st.Blocks * 512
		}
	}
	return len(links)
}
