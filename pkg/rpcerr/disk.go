package rpcerr

import (
	"errors"
	"syscall"
	"time"
)

// diskAgain is when a caller outside may look again whether a disk is back.
const diskAgain = 5 * time.Second

// FromDisk classifies errors of a disk, and of a machine that lacks a resource to use the disk, as errors for which
// [StoreAway] returns true. Other errors, such as a missing file, are returned unchanged. What names the data on the
// disk, such as `the bodies`.
func FromDisk(err error, what string) error {
	away := func(cause, format string) error {
		return StoreUnavailable(cause, diskAgain, format+": %w", what, err)
	}
	switch {
	case err == nil, StoreAway(err):
		return err
	case isErrno(err, syscall.ENOSPC, syscall.EDQUOT):
		return away("full", "the disk of %s is full, so it takes nothing; free space there, then try again")
	case isErrno(err, syscall.EIO, syscall.EROFS, syscall.ESTALE, syscall.ENODEV, syscall.ENXIO, syscall.ETIMEDOUT, syscall.EUCLEAN, syscall.ENOTDIR, syscall.ELOOP):
		return away("io", "the disk of %s fails; the system's log may say why")
	case isErrno(err, syscall.EACCES, syscall.EPERM):
		return away("io", "the server may not use the folder of %s; give its user the rights")
	case isErrno(err, syscall.EMFILE, syscall.ENFILE):
		return away("io", "no more files can be opened, so %s cannot be; raise the limit of open files")
	case isErrno(err, syscall.ENOMEM, syscall.ENOBUFS):
		return away("memory", "memory is too short for %s")
	}
	return err
}

func isErrno(err error, all ...syscall.Errno) bool {
	for _, errno := range all {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
