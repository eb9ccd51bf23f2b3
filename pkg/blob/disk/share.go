package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// share makes files readable to all processes that share a directory, each possibly running as a user of its own. The
// directory itself determines it: if its group may write, the group gets the permissions of the owner on everything
// within; and files that root creates belong to the directory's owner.
type share struct {
	group    fs.FileMode // bits of the group, and the bit by which it is inherited
	uid, gid int         // owner of files that root creates; -1 for other users
}

func shareOf(root *os.Root) (share, error) {
	info, err := root.Stat(".")
	if err != nil {
		return share{}, err
	}
	s := share{uid: -1, gid: -1}
	if info.Mode()&0o020 != 0 {
		s.group = info.Mode() & (0o070 | fs.ModeSetgid)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		s.uid, s.gid = int(owner.Uid), int(owner.Gid)
	}
	return s, nil
}

// give extends the owner's permissions to the group.
func (s share) give(root *os.Root, name string, bits fs.FileMode) error {
	if s.uid > 0 || s.gid > 0 {
		if err := root.Lchown(name, s.uid, s.gid); err != nil {
			return err
		}
	}
	if s.group == 0 {
		return nil
	}
	group := bits >> 3 & s.group // the owner's bits, as far as the group has them
	if bits&0o100 != 0 {
		group |= s.group & fs.ModeSetgid
	}
	return root.Chmod(name, bits|group)
}

// mkdir makes a directory unless it exists.
func (s *Store) mkdir(name string) error {
	err := s.root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.share.give(s.root, name, 0o700)
}
