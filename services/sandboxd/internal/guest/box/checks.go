package box

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A check has powers over files that no command has, so that it can read files that commands have restricted to
// themselves. Code of the agent that a check runs has these powers as well. ConfineChecks restricts them to the folders
// of the agent: the files that later checks use stay unchanged.

// CheckCaps are the capabilities of a check that has mounts of its own. They count for files of the box alone: the user
// namespace of the box, or the container, holds no others.
var CheckCaps = []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER}

// landlockCaps are those of a check that Landlock confines, which does not keep the modes of files.
var landlockCaps = []uintptr{unix.CAP_DAC_OVERRIDE}

// unconfined is the entry of weaker if checks cannot be confined.
const unconfined = "checks: code of the agent that a check runs can change system files that later checks use"

// ConfineChecks restricts the children of the calling thread to changes in the given folders, and returns the
// capabilities that a check may have: in a mount namespace of its own, or by Landlock if the thread may create none.
// Without folders there is nothing to confine. The calling thread must be used only for checks. weaker names what is
// missing if neither is possible.
func ConfineChecks(folders []string) (caps []uintptr, weaker []string, err error) {
	if len(folders) == 0 {
		return CheckCaps, nil, nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err == nil {
		if err := fixAllBut(folders); err != nil {
			return nil, nil, &PartError{Part: "mounts of checks", Err: err}
		}
		return CheckCaps, nil, nil
	}
	if err := landlock(folders); Transient(err) {
		return nil, nil, &PartError{Part: "mounts of checks", Err: err}
	} else if err != nil {
		return CheckCaps, []string{unconfined + " (" + err.Error() + ")"}, nil
	}
	return landlockCaps, nil, nil
}

// fixAllBut makes all mounts of the thread's own mount namespace read-only but the folders, which become mounts of
// their own.
func fixAllBut(folders []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	open := make([]int, len(folders))
	for i, folder := range folders {
		fd, err := unix.OpenTree(unix.AT_FDCWD, folder, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("open the tree %s: %w", folder, err)
		}
		defer unix.Close(fd)
		open[i] = fd
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("make all mounts read-only (needs Linux 5.12): %w", err)
	}
	for i, folder := range folders {
		if err := attach(open[i], folder); err != nil {
			return err
		}
	}
	return nil
}

// Rights of Landlock by which files change. Without the last (Linux 6.2) a file could be cut whatever the others say.
const (
	landlockChanges = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	landlockVersion = 3 // has them all
)

// landlock lets the thread change the folders, write to devices, and change nothing else. It sets no_new_privs, which
// that needs.
func landlock(folders []string) error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return fmt.Errorf("no mount namespace and no Landlock: %w", errno)
	}
	if version < landlockVersion {
		return errors.New("no mount namespace, and the kernel's Landlock is older than Linux 6.2")
	}
	all := unix.LandlockRulesetAttr{Handled_access_fs: landlockChanges}
	rules, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET,
		uintptr(unsafe.Pointer(&all)), unsafe.Sizeof(all.Handled_access_fs), 0)
	if errno != 0 {
		return fmt.Errorf("make rules of Landlock: %w", errno)
	}
	defer unix.Close(int(rules))
	for _, folder := range folders {
		if err := landlockAllow(rules, folder, landlockChanges); err != nil {
			return err
		}
	}
	if err := landlockAllow(rules, "/dev", unix.LANDLOCK_ACCESS_FS_WRITE_FILE); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0); errno != 0 {
		return fmt.Errorf("enter Landlock: %w", errno)
	}
	return nil
}

func landlockAllow(rules uintptr, folder string, rights uint64) error {
	fd, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", folder, err)
	}
	defer unix.Close(fd)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, rules, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("allow %s by Landlock: %w", folder, errno)
	}
	return nil
}
