package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what a report was measured on.
type Machine struct {
	Cores  int    `json:"cores"`
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	// Load is the load average over the minute before the run, caused by other programs. Empty if the system does not
	// report it.
	Load string `json:"load,omitempty"`
}

// ThisMachine describes the machine as it is now.
func ThisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(load), " ")
	}
	return m
}

// String describes the machine in a few words.
func (m Machine) String() string {
	s := fmt.Sprintf("%d cores, %s/%s, kernel %s, %s", m.Cores, m.OS, m.Arch, m.Kernel, m.Go)
	if m.Load != "" {
		s += ", load before the run " + m.Load
	}
	return s
}
