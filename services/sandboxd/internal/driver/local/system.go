package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	guestaccount "github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/account"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/box"
)

// What a box shows of the platform itself.
const (
	guestTarget  = "/.evalfleet/guestd"
	checksTarget = "/.evalfleet-checks"
	pythonTarget = "/opt/python"
	systemPath   = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Users of a box.
const (
	userName = "agent"
	userID   = 1000
	userHome = "/home/agent"
	workdir  = "/workspace"
	ttyGroup = 5
)

// systemFolders are shown where they are; on most systems all but /usr are links into it.
var systemFolders = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// systemSettings are what programs of the system need of /etc. None of it holds a secret.
var systemSettings = []string{
	"alternatives", "ca-certificates", "crypto-policies", "debian_version", "fonts", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias",
	"localtime", "magic", "magic.mime", "mime.types", "os-release", "perl", "pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem", "protocols", "python3",
	"services", "ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "terminfo", "timezone",
}

// devices are shown where the host has them.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// system is what this machine's boxes are made of.
type system struct {
	trees   []box.Tree
	links   map[string]string
	devices []string
	path    string
	python  string // prefix on the host; empty when the system's is used
}

// findSystem finds what the machine has. python is the prefix of an installation to show, or empty to find one by the
// host's PATH. An installation that contains any of private is not shown; the log notes that.
func findSystem(ctx context.Context, python, searchPath string, private []string, log *slog.Logger) system {
	s := system{links: map[string]string{}, path: systemPath}
	for _, name := range systemFolders {
		s.show("/"+name, "/"+name)
	}
	for _, name := range systemSettings {
		s.show("/etc/"+name, "/etc/"+name)
	}
	for _, java := range glob("/etc/java*") {
		s.show(java, java)
	}
	for _, name := range devices {
		if _, err := os.Stat("/dev/" + name); err == nil {
			s.devices = append(s.devices, name)
		}
	}
	if python == "" {
		python = findPython(ctx, searchPath)
	}
	if err := tooWide(python, private); err != nil {
		log.Warn("sandboxes have the system's Python alone", "reason", err)
		python = ""
	}
	if python != "" && !strings.HasPrefix(python, "/usr/") && python != "/usr" {
		// At its own path, since that is built into its programs and scripts; by another name, so that PATH shows
		// nothing of the host.
		s.python = python
		s.show(python, python)
		s.path = pythonTarget + "/bin:" + systemPath
		if python != pythonTarget {
			s.links[pythonTarget] = python
		}
	}
	return s
}

// tooWide rejects a Python installation whose prefix contains one of the folders in private, which would be shown with
// it.
func tooWide(python string, private []string) error {
	if python == "" {
		return nil
	}
	for _, folder := range private {
		if folder != "" && (within(folder, python) || within(followed(folder), followed(python))) {
			return fmt.Errorf("the Python installation at %s cannot be shown in sandboxes, since %s is in there; install Python in a folder of its own, or name one (sandboxd.python)", python, folder)
		}
	}
	return nil
}

// within reports whether a path is the folder or is in it.
func within(path, folder string) bool {
	rest, err := filepath.Rel(folder, path)
	return err == nil && rest != ".." && !strings.HasPrefix(rest, "../")
}

// followed is a path without links, as far as it is there.
func followed(path string) string {
	if found, err := filepath.EvalSymlinks(path); err == nil {
		return found
	}
	return path
}

// show adds what is at source, if anything; links of the top stay links.
func (s *system) show(source, target string) {
	info, err := os.Lstat(source)
	if err != nil {
		return
	}
	if info.Mode()&os.ModeSymlink != 0 {
		to, err := os.Readlink(source)
		if err == nil && (strings.HasPrefix(to, "usr/") || strings.HasPrefix(to, "/usr/") || strings.HasPrefix(to, "../usr/")) {
			s.links[target] = to
			return
		}
		if info, err = os.Stat(source); err != nil {
			return
		}
	}
	s.trees = append(s.trees, box.Tree{Target: target, Mount: box.Mount{Source: source}, File: !info.IsDir()})
}

// findPython gives the prefix of the python3 that the host's PATH means, following shims and virtual environments to
// the installation that they belong to; empty when there is none or it does not answer.
func findPython(ctx context.Context, searchPath string) string {
	program := ""
	for _, dir := range filepath.SplitList(searchPath) {
		file := filepath.Join(dir, "python3")
		if info, err := os.Stat(file); err == nil && !info.IsDir() && unix.Access(file, unix.X_OK) == nil {
			program = file
			break
		}
	}
	if program == "" || strings.HasPrefix(program, "/usr/") || strings.HasPrefix(program, "/bin/") {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-I", "-c", "import sys; print(sys.base_prefix)")
	cmd.Env = []string{"PATH=" + searchPath, "HOME=/"}
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	prefix := strings.TrimSpace(string(out))
	if _, err := os.Stat(filepath.Join(prefix, "bin", "python3")); err != nil || !filepath.IsAbs(prefix) || prefix == "/" {
		return ""
	}
	return prefix
}

// hostPath is PATH in a box that sees the host's files.
func (s *system) hostPath() string {
	if s.python != "" {
		return filepath.Join(s.python, "bin") + ":" + systemPath
	}
	return systemPath
}

// settings are the files of /etc that a box has of its own.
func settings(users []account) map[string]string {
	var passwd, group strings.Builder
	for _, u := range users {
		fmt.Fprintf(&passwd, "%s:x:%d:%d::%s:%s\n", u.name, u.id, u.id, u.home, u.shell)
		fmt.Fprintf(&group, "%s:x:%d:\n", u.group, u.id)
	}
	fmt.Fprintf(&group, "tty:x:%d:\n", ttyGroup)
	return map[string]string{
		"/etc/passwd":        passwd.String(),
		"/etc/group":         group.String(),
		"/etc/hostname":      hostname + "\n",
		"/etc/hosts":         "127.0.0.1 localhost " + hostname + "\n::1 localhost\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
		"/etc/host.conf":     "multi on\n",
		// A login shell keeps the environment that the command was given.
		"/etc/profile": "# The environment is the one that the sandbox gives.\n[ -n \"$PATH\" ] || export PATH=" + systemPath + "\n",
	}
}

const hostname = "sandbox"

// account is a user of a box.
type account struct {
	name, group string
	id          int
	home, shell string
}

// accounts lists the users of a box; without root there is one, since only one can be mapped.
func accounts(many bool) []account {
	agent := account{userName, userName, userID, userHome, "/bin/bash"}
	if !many {
		return []account{agent}
	}
	return []account{
		{"root", "root", 0, "/root", "/bin/bash"},
		agent,
		{"nobody", "nogroup", nobodyID, "/nonexistent", "/usr/sbin/nologin"},
		{"checker", "checker", guestaccount.CheckerID, "/nonexistent", "/usr/sbin/nologin"},
	}
}

const nobodyID = 65534

// folders are the writable folders of a box. Root is who owns what belongs to no command.
func (s *system) folders(root, user int, work string) []box.Folder {
	list := []box.Folder{
		{Path: "/tmp", Mode: 0o1777, UID: root, GID: root},
		{Path: "/var/tmp", Mode: 0o1777, UID: root, GID: root},
		{Path: "/dev/shm", Mode: 0o1777, UID: root, GID: root},
		{Path: "/run", Mode: 0o755, UID: root, GID: root},
		{Path: "/opt", Mode: 0o755, UID: root, GID: root},
		{Path: "/var/log", Mode: 0o755, UID: root, GID: root},
		{Path: userHome, Mode: 0o755, UID: user, GID: user},
	}
	add := func(f box.Folder) {
		if !slices.ContainsFunc(list, func(have box.Folder) bool { return have.Path == f.Path }) {
			list = append(list, f)
		}
	}
	if root == 0 {
		add(box.Folder{Path: "/root", Mode: 0o711})
	}
	add(box.Folder{Path: work, Mode: 0o755, UID: user, GID: user})
	if s.python != "" {
		// The way to it can be walked but not looked at.
		for path := filepath.Dir(s.python); path != "/"; path = filepath.Dir(path) {
			add(box.Folder{Path: path, Mode: 0o711, UID: root, GID: root})
		}
	}
	return list
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

func glob(pattern string) []string {
	names, err := filepath.Glob(pattern)
	if errors.Is(err, filepath.ErrBadPattern) {
		return nil
	}
	return names
}
