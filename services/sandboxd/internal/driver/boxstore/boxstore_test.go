package boxstore_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/pkg/waittest"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/driver/boxstore"
	"github.com/evalfleet/evalfleet/services/sandboxd/internal/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record is that of a driver whose boxes are nothing but their folders.
type record struct {
	boxstore.Record
	Note string
}

// shelf is such a driver.
type shelf struct {
	*boxstore.Store
	ended []string
	fails error // the error of ending a box
	blind error // the error of looking for one
}

// newShelf opens a folder with a short name, as paths of sockets must have.
func newShelf(t *testing.T) *shelf {
	t.Helper()
	dir, err := os.MkdirTemp("", "boxes-") //nolint:usetesting // for the length of its name
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return reopen(t, dir)
}

func reopen(t *testing.T, dir string) *shelf {
	t.Helper()
	s := &shelf{}
	var err error
	s.Store, err = boxstore.Open(boxstore.Config{
		Dir: dir, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Find: func(_ context.Context, id string) (func(int) bool, error) {
			if s.blind != nil {
				return nil, s.blind
			}
			if rec, err := boxstore.Read[record](s.Store, id); err != nil || rec.Note == "gone" {
				return nil, driver.Lost(id, "")
			}
			return func(pid int) bool { return pid == os.Getpid() }, nil
		},
		End: func(_ context.Context, id string) error {
			s.ended = append(s.ended, id)
			return s.fails
		},
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// make creates a box, or the part of it before the creation fails.
func (s *shelf) make(ctx context.Context, spec driver.Spec, note string, fails error) (driver.Report, error) {
	return s.Create(ctx, spec.ID, func() (driver.Report, error) {
		rec := record{Record: boxstore.NewRecord(spec), Note: note}
		rec.Report = driver.Report{Workdir: "/" + note}
		if err := os.MkdirAll(s.Control(spec.ID), 0o700); err != nil {
			return driver.Report{}, err
		}
		if err := s.Write(spec.ID, rec); err != nil || fails != nil {
			return driver.Report{}, errors.Join(err, fails)
		}
		rec.Ready = true
		return rec.Report, s.Write(spec.ID, rec)
	})
}

func TestABoxIsMadeOnce(t *testing.T) {
	t.Parallel()
	s, spec := newShelf(t), driver.Spec{ID: "a", Owner: "me", Labels: map[string]string{"k": "v"}}
	first, err := s.make(t.Context(), spec, "first", nil)
	require.NoError(t, err)
	again, err := s.make(t.Context(), spec, "second", nil)
	require.NoError(t, err)
	assert.Equal(t, first, again)

	list, err := reopen(t, s.Dir()).List("me", func(id string) (bool, string, error) { return id == "a", "for want of " + id, nil })
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.True(t, list[0].Alive)
	assert.Equal(t, spec.Labels, list[0].Labels)
	assert.Equal(t, first, list[0].Report)
	list, err = s.List("someone else", nil)
	require.NoError(t, err)
	assert.Empty(t, list)

	require.NoError(t, s.Destroy(t.Context(), "a"))
	require.NoError(t, s.Destroy(t.Context(), "a"))
	assert.NoDirExists(t, s.Folder("a"))
}

func TestABoxThatWasMadeAndIsGoneIsLost(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	_, err := s.make(t.Context(), driver.Spec{ID: "a"}, "gone", nil)
	require.NoError(t, err)
	_, err = s.make(t.Context(), driver.Spec{ID: "a"}, "gone", nil)
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST), "%v", err)
	for _, id := range []string{"a", "never-was", "../x"} {
		_, err = s.Connect(waittest.Context(t), id)
		assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST), "%v", err)
	}
}

func TestWhatCouldNotBeMadeLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	_, err := s.make(t.Context(), driver.Spec{ID: "a"}, "x", errors.New("no"))
	require.EqualError(t, err, "no")
	assert.Equal(t, []string{"a", "a"}, s.ended, "before, for what a crash left, and after")
	assert.NoDirExists(t, s.Folder("a"))

	// If it cannot be ended either, its folder stays to be found, and the caller receives the error of the creation.
	s.fails = errors.New("engine away")
	require.NoError(t, os.MkdirAll(s.Folder("b"), 0o700))
	_, err = s.make(t.Context(), driver.Spec{ID: "b"}, "x", nil)
	require.EqualError(t, err, "engine away")
	list, err := s.List("me", nil)
	require.NoError(t, err)
	require.Len(t, list, 1, "a folder without a record is everybody's")
	assert.False(t, list[0].Alive)
}

// A power failure may leave a record empty or truncated. The other boxes are still listed.
func TestARecordThatCannotBeReadIsNone(t *testing.T) {
	t.Parallel()
	for name, left := range map[string]string{"empty": "", "cut off": `{"ID": "tor`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(t)
			for _, id := range []string{"torn", "whole"} {
				_, err := s.make(t.Context(), driver.Spec{ID: id, Owner: "me"}, "first", nil)
				require.NoError(t, err)
			}
			require.NoError(t, os.WriteFile(filepath.Join(s.Folder("torn"), "box.json"), []byte(left), 0o600))
			list, err := s.List("me", func(string) (bool, string, error) { return true, "", nil })
			require.NoError(t, err)
			require.Len(t, list, 2)
			assert.WithinDuration(t, time.Now(), list[0].Created, time.Minute)
			list[0].Created = time.Time{}
			assert.Equal(t, driver.Observed{ID: "torn"}, list[0], "what is left of it can be found")
			assert.True(t, list[1].Alive)

			report, err := s.make(t.Context(), driver.Spec{ID: "torn", Owner: "me"}, "second", nil)
			require.NoError(t, err)
			assert.Equal(t, "/second", report.Workdir, "it is made anew")
			require.NoError(t, s.Destroy(t.Context(), "torn"))
		})
	}
}

// TestABoxThatGoesWhileItIsListed has a box be destroyed after its record was read and before it is looked for.
func TestABoxThatGoesWhileItIsListed(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	for _, id := range []string{"goes", "stays"} {
		_, err := s.make(t.Context(), driver.Spec{ID: id, Owner: "me"}, "", nil)
		require.NoError(t, err)
	}
	list, err := s.List("me", func(id string) (bool, string, error) {
		if id == "goes" {
			require.NoError(t, s.Destroy(t.Context(), id))
		}
		_, err := boxstore.Read[record](s.Store, id)
		return true, "", err
	})
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "stays", list[0].ID)
}

func TestTheGuestIsLetIn(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	_, err := s.make(t.Context(), driver.Spec{ID: "a"}, "x", nil)
	require.NoError(t, err)
	open, err := s.Listen("a", func(pid int) bool { return pid == os.Getpid() })
	require.NoError(t, err)
	theirs, err := net.Dial("unix", filepath.Join(s.Control("a"), guest.SocketName))
	require.NoError(t, err)
	defer theirs.Close()
	waittest.For(t, open.Connected(), "the guest's connection")
	ours, err := s.Connect(waittest.Context(t), "a")
	require.NoError(t, err)
	require.NoError(t, ours.Close())

	done := make(chan error, 1)
	go func() {
		_, err := s.Connect(waittest.Context(t), "a")
		done <- err
	}()
	require.NoError(t, s.Destroy(t.Context(), "a"))
	err = waittest.For(t, done, "the end of the wait for a box that is destroyed")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SANDBOX_LOST), "%v", err)
}

func TestAnEndedCallIsNoLoss(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	_, err := s.make(t.Context(), driver.Spec{ID: "a"}, "x", nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Connect(ctx, "a")
	assert.ErrorIs(t, err, context.Canceled)
	// While somebody works on it too.
	_, err = s.Create(t.Context(), "b", func() (driver.Report, error) {
		_, err := s.Connect(ctx, "b")
		assert.ErrorIs(t, err, context.Canceled)
		return driver.Report{}, nil
	})
	require.NoError(t, err)
}

// TestAShortageIsNoLossOfABox looks for a box while the machine is short of descriptors.
func TestAShortageIsNoLossOfABox(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	_, err := s.make(t.Context(), driver.Spec{ID: "a"}, "", nil)
	require.NoError(t, err)
	s = reopen(t, s.Dir())
	s.blind = &os.PathError{Op: "open", Path: "/proc/1/stat", Err: syscall.EMFILE}
	_, err = s.Connect(t.Context(), "a")
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_SERVICE_UNAVAILABLE), "%v", err)
	assert.Positive(t, rpcerr.RetryAfter(err))
}

// TestAFailureOfTheMachineIsAskedForAgain lets the creation of a box fail for transient reasons.
func TestAFailureOfTheMachineIsAskedForAgain(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	for errno, want := range map[syscall.Errno]errorsv1.ErrorReason{
		syscall.ENOSPC: errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA, syscall.EDQUOT: errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA,
		syscall.EMFILE: errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA, syscall.ENOMEM: errorsv1.ErrorReason_ERROR_REASON_SANDBOX_QUOTA,
		syscall.EIO: errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, syscall.EROFS: errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE,
		syscall.ESTALE: errorsv1.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE,
		syscall.EPERM:  errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED,
	} {
		_, err := s.make(t.Context(), driver.Spec{ID: "a"}, "", &os.PathError{Op: "write", Path: "box.json", Err: errno})
		assert.Equal(t, want, rpcerr.Reason(err), "%v", err)
		assert.Equal(t, want != errorsv1.ErrorReason_ERROR_REASON_UNSPECIFIED, rpcerr.RetryAfter(err) > 0, "%v", err)
		require.ErrorContains(t, err, "box.json")
	}
	refused := rpcerr.InvalidField("spec", "no")
	_, err := s.make(t.Context(), driver.Spec{ID: "a"}, "", errors.Join(refused, syscall.ENOSPC))
	assert.True(t, rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_INVALID_REQUEST), "%v", err)
}
