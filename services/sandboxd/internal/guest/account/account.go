// Package account finds the users of a sandbox and lets the guest act for one.
package account

import (
	"bufio"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalfleet/evalfleet/pkg/bound"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/fault"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest/walk"
)

// Account is a user of the sandbox.
type Account struct {
	Name     string
	UID, GID uint32
	Groups   []uint32
	Home     string
}

// Lookup finds a user by name, id, or either with `:group`, in the sandbox's own /etc/passwd and /etc/group. An id
// without a name is a user without a home (`/`), whose group has the same number. The empty name is the program's own
// user.
func Lookup(name string) (Account, error) {
	user, group, _ := strings.Cut(name, ":")
	if user == "" {
		user = strconv.Itoa(os.Geteuid())
	}
	a, found := byField("/etc/passwd", user)
	if !found {
		uid, err := strconv.ParseUint(user, 10, 32)
		if err != nil {
			return Account{}, fault.UnknownUser(name)
		}
		a = Account{Name: user, UID: uint32(uid), GID: uint32(uid), Home: "/"}
	}
	if group != "" {
		gid, found := groupID(group)
		if !found {
			return Account{}, fault.UnknownUser(name)
		}
		a.GID = gid
	}
	a.Groups = groupsOf(a)
	return a, nil
}

// CheckerID is the user and group of checks: an id that no image and no driver gives to another.
const CheckerID = 65_533

// Checker is the user of checks. If the guest cannot act for other users, it is the guest's own user, who runs commands
// too.
func Checker() Account {
	if os.Geteuid() != 0 {
		return Account{Name: "checker", UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	}
	return Account{Name: "checker", UID: CheckerID, GID: CheckerID, Groups: []uint32{}}
}

// Current reports whether the program itself is this user, so that nothing needs to be switched.
func (a Account) Current() bool { return a.UID == uint32(os.Geteuid()) && os.Geteuid() != 0 }

// Reachable fails when the program cannot act as this user.
func (a Account) Reachable() error {
	if os.Geteuid() == 0 || a.Current() {
		return nil
	}
	return fault.NoUserSwitch(a.Name)
}

// Do runs f with the user's rights on files: on a separate thread whose file system user is a. Files that f creates
// belong to the user. f must not start goroutines that touch files.
func (a Account) Do(f func() error) error {
	if err := a.Reachable(); err != nil {
		return err
	}
	if os.Geteuid() != 0 || a.UID == 0 {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Leaving root as the file system's user drops the thread's capabilities over files, and returning restores them.
	if err := setFS(a.UID, a.GID); err != nil {
		return err
	}
	defer func() {
		if err := setFS(0, 0); err != nil {
			runtime.LockOSThread() // the thread is spoilt: it ends with its goroutine
		}
	}()
	return f()
}

func setFS(uid, gid uint32) error {
	if err := unix.Setfsgid(int(gid)); err != nil {
		return err
	}
	return unix.Setfsuid(int(uid))
}

// byField reads the line of passwd whose name or id is key.
func byField(file, key string) (Account, bool) {
	for f := range lines(file) {
		if len(f) < 6 || f[0] != key && f[2] != key {
			continue
		}
		uid, e1 := strconv.ParseUint(f[2], 10, 32)
		gid, e2 := strconv.ParseUint(f[3], 10, 32)
		if e1 == nil && e2 == nil {
			return Account{Name: f[0], UID: uint32(uid), GID: uint32(gid), Home: f[5]}, true
		}
	}
	return Account{}, false
}

// groupID finds a group by name or id.
func groupID(group string) (uint32, bool) {
	for f := range lines("/etc/group") {
		if len(f) >= 3 && f[0] == group {
			group = f[2]
			break
		}
	}
	gid, err := strconv.ParseUint(group, 10, 32)
	return uint32(gid), err == nil
}

// groupsOf lists the groups that name the user as a member.
func groupsOf(a Account) []uint32 {
	groups := []uint32{}
	for f := range lines("/etc/group") {
		if len(f) < 4 {
			continue
		}
		for member := range strings.SplitSeq(f[3], ",") {
			if gid, err := strconv.ParseUint(f[2], 10, 32); member == a.Name && err == nil {
				groups = append(groups, uint32(gid))
			}
		}
	}
	return groups
}

// lines returns the fields of each line of a file of /etc, which the tenant may have replaced by anything; none if the
// file cannot be read.
func lines(file string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		f, _, err := walk.Regular(file)
		if err != nil {
			return
		}
		defer f.Close()
		for s := bufio.NewScanner(io.LimitReader(f, bound.AccountFileBytes)); s.Scan(); {
			if !yield(strings.Split(s.Text(), ":")) {
				return
			}
		}
	}
}
